//! What large reused blocks of about one size were found to be of late: untouched, or written all over.
//!
//! Programs repeat themselves: a buffer that is asked for again and again is mostly used in the same
//! way. After [`SURE`] findings in a row the next is expected to be the same; every [`LOOK_EVERY`]th time
//! the kernel is asked all the same. An expectation never makes a result wrong, only dear or cheap.

use crate::base::sync::plain::{AtomicI8, AtomicU8, Ordering::Relaxed};

/// Findings in a row that make a habit.
const SURE: i8 = 4;
/// How often a habit is looked at again.
const LOOK_EVERY: i8 = 8;
/// Where the counting starts over: far over [`SURE`], a multiple of [`LOOK_EVERY`].
const MOST: i8 = 120;

/// Steps of size in a doubling.
const STEPS: usize = 4;
const SIZES: usize = STEPS * usize::BITS as usize;

/// What the kernel found about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// No page is populated.
    Untouched,
    /// All are.
    Full,
    /// Some are.
    Mixed,
}

/// What to do with a block's samples; see [`super::samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// They were purged the last time: what they tell counts now.
    Judge,
    /// It is time to purge them.
    Probe,
    /// Neither.
    Wait,
}

/// Every so many long blocks with populated pages the samples of one are purged.
const PROBE_EVERY: u8 = 4;
/// Set where samples were purged.
const PROBED: u8 = 1 << 7;

/// A memory of findings, by size. Zeroed, it remembers nothing.
#[derive(Debug)]
pub(super) struct Habits {
    /// [`PROBED`], and how many times [`Habits::next_look`] was asked.
    looks: [AtomicU8; SIZES],
    /// How many findings in a row: above 0 of [`Finding::Untouched`], below 0 of [`Finding::Full`].
    rows: [AtomicI8; SIZES],
}

impl Habits {
    pub(super) const fn new() -> Self {
        Self {
            looks: [const { AtomicU8::new(0) }; SIZES],
            rows: [const { AtomicI8::new(0) }; SIZES],
        }
    }

    fn row(&self, bytes: usize) -> &AtomicI8 {
        &self.rows[row_of(bytes)]
    }

    /// What to do with the samples of a block of this size that had populated pages.
    pub(super) fn next_look(&self, bytes: usize) -> Look {
        let looks = &self.looks[row_of(bytes)];
        let count = looks.load(Relaxed);
        looks.store(count.wrapping_add(1) & !PROBED, Relaxed);
        if count & PROBED != 0 {
            Look::Judge
        } else if count.is_multiple_of(PROBE_EVERY) {
            Look::Probe
        } else {
            Look::Wait
        }
    }

    /// The samples of a block of this size were purged.
    pub(super) fn note_probe(&self, bytes: usize) {
        self.looks[row_of(bytes)].fetch_or(PROBED, Relaxed);
    }

    /// What a block of this size is expected to be; [`Finding::Mixed`] when the kernel is to be asked.
    pub(super) fn expected(&self, bytes: usize) -> Finding {
        let row = self.row(bytes);
        let count = row.load(Relaxed);
        if count.abs() < SURE || count % LOOK_EVERY == 0 {
            return Finding::Mixed;
        }
        row.store(longer(count), Relaxed);
        if count > 0 {
            Finding::Untouched
        } else {
            Finding::Full
        }
    }

    /// Remembers what was found; says how many times in a row it was.
    pub(super) fn note(&self, bytes: usize, finding: Finding) -> usize {
        let row = self.row(bytes);
        let count = match (finding, row.load(Relaxed)) {
            (Finding::Mixed, _) => 0,
            (Finding::Untouched, count @ 1..) | (Finding::Full, count @ ..0) => longer(count),
            (Finding::Untouched, _) => 1,
            (Finding::Full, _) => -1,
        };
        row.store(count, Relaxed);
        count.unsigned_abs() as usize
    }
}

/// The number of the row of blocks of about this size.
fn row_of(bytes: usize) -> usize {
    let shift = bytes.max(STEPS).ilog2();
    let step = bytes >> (shift - STEPS.ilog2()) & (STEPS - 1);
    shift as usize * STEPS + step
}

/// One more of the same.
fn longer(count: i8) -> i8 {
    if count.abs() >= MOST {
        count.signum() * (MOST - LOOK_EVERY + 1)
    } else {
        count + count.signum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_habit_takes_findings_in_a_row() {
        for finding in [Finding::Untouched, Finding::Full] {
            let habits = Habits::new();
            for round in 1..=SURE as usize {
                assert_eq!(habits.expected(MIB), Finding::Mixed);
                assert_eq!(habits.note(MIB, finding), round);
            }
            assert_eq!(habits.expected(MIB), finding);
            assert_eq!(habits.expected(2 * MIB), Finding::Mixed);
            assert_eq!(
                habits.expected(MIB + MIB / 8),
                finding,
                "about the same size"
            );
            assert_eq!(habits.note(MIB, Finding::Mixed), 0);
            assert_eq!(habits.expected(MIB), Finding::Mixed);
        }
    }

    #[test]
    fn a_habit_is_looked_at_for_ever() {
        for finding in [Finding::Untouched, Finding::Full] {
            let habits = Habits::new();
            let (mut asked, mut last) = (0, 0);
            for round in 0..10_000 {
                if habits.expected(MIB) == Finding::Mixed {
                    habits.note(MIB, finding);
                    assert!(round - last <= LOOK_EVERY as usize, "{round} after {last}");
                    (asked, last) = (asked + 1, round);
                }
            }
            assert!(
                (10_000 / LOOK_EVERY as usize..1_500).contains(&asked),
                "{asked}"
            );
        }
    }

    #[test]
    fn samples_are_judged_after_they_were_purged() {
        let habits = Habits::new();
        for _ in 0..100 {
            assert_eq!(habits.next_look(MIB), Look::Probe);
            habits.note_probe(MIB);
            assert_eq!(habits.next_look(MIB), Look::Judge);
            for _ in 2..PROBE_EVERY {
                assert_eq!(habits.next_look(MIB), Look::Wait);
            }
        }
    }

    #[test]
    fn every_size_has_its_row() {
        let habits = Habits::new();
        for bytes in [0, 1, 4096, 1 << 47, usize::MAX] {
            assert_eq!(habits.note(bytes, Finding::Full), 1, "{bytes}");
        }
    }
}
