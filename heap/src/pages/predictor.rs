//! What large reused blocks of about one size were found to be of late: untouched, or written all
//! over.
//!
//! Programs repeat themselves: a buffer that is asked for again and again is mostly used in the
//! same way. After some findings in a row the next is expected to be the same; every
//! [`LOOK_EVERY`]th time the kernel is asked all the same. A wrong expectation costs time, never
//! correctness.
//!
//! A few OS pages of a long block, evenly spread, that stand for all of it.
//!
//! They answer two questions that would cost more to ask of every page. Is a block that was full
//! full again? And does anybody use the pages that `calloc` writes zeros to, time after time? For
//! the second they are purged: if they are populated the next time, the program touched them since.
//! If not, it does not touch the others either.

use crate::base::sync::plain::{AtomicI8, AtomicU8, Ordering::Relaxed};
use crate::base::units::SLICE_BYTES;

/// Findings of [`Finding::Full`] in a row that make a habit: to be wrong costs a write.
const SURELY_FULL: i8 = 4;
/// Findings of [`Finding::Untouched`] in a row that make one: to be wrong throws away pages, which
/// cost some 40 times as much to fault in as to write. Who uses a block every 32nd time or more
/// often never gets there.
const SURELY_UNTOUCHED: i8 = 32;
/// How often a habit is looked at again.
const LOOK_EVERY: i8 = 8;
/// Where the counting starts over: far over the two, a multiple of [`LOOK_EVERY`].
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
    /// They were purged a while ago: what they tell counts.
    Judge,
    /// It is time to purge them.
    Probe,
    /// Neither.
    Wait,
}

/// Of this many long blocks with populated pages, the samples of one are purged.
const PROBE_EVERY: u8 = 4;
/// From here on samples were purged; what is above counts how often they were found untouched
/// since.
const PROBED: u8 = 64;
/// This many times in a row make a block idle: until then it was written for as much as it costs to
/// fault a part of it in again.
const SURELY_IDLE: u8 = 16;

/// A memory of findings, by size. Zeroed, it remembers nothing.
#[derive(Debug)]
pub(super) struct Habits {
    /// Below [`PROBED`]: how many times [`Habits::next_look`] was asked. The samples of the blocks
    /// of one size are not told apart.
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
        if count >= PROBED {
            return Look::Judge;
        }
        looks.store((count + 1) % PROBE_EVERY, Relaxed);
        if count == 0 { Look::Probe } else { Look::Wait }
    }

    /// The samples of a block of this size were purged.
    pub(super) fn note_probe(&self, bytes: usize) {
        self.looks[row_of(bytes)].store(PROBED, Relaxed);
    }

    /// The program touched the samples that were purged.
    pub(super) fn note_use(&self, bytes: usize) {
        self.looks[row_of(bytes)].store(1, Relaxed);
    }

    /// It did not. True when that is so often enough.
    pub(super) fn note_idle(&self, bytes: usize) -> bool {
        let looks = &self.looks[row_of(bytes)];
        let times = looks.load(Relaxed).max(PROBED) - PROBED + 1;
        let enough = times >= SURELY_IDLE;
        looks.store(if enough { 1 } else { PROBED + times }, Relaxed);
        enough
    }

    /// What a block of this size is expected to be; [`Finding::Mixed`] when the kernel is to be
    /// asked.
    pub(super) fn expected(&self, bytes: usize) -> Finding {
        let row = self.row(bytes);
        let count = row.load(Relaxed);
        let unsure = (-SURELY_FULL + 1..SURELY_UNTOUCHED).contains(&count);
        if unsure || count % LOOK_EVERY == 0 {
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

/// A run of bytes that are to read as zero: its ends lie at a page's start, or where the block
/// ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) bytes: usize,
}

impl Run {
    /// The part of the run among `bytes` bytes at `start`, which is not before it.
    pub(super) fn clip(self, start: usize, bytes: usize) -> Self {
        let left = (self.start + self.bytes).saturating_sub(start);
        Self {
            start,
            bytes: bytes.min(left),
        }
    }
}

/// Bytes for which there is one sample; a run has at least two.
const APART: usize = 1 << 20;
const MOST_SAMPLES: usize = 16;

/// Of this many samples, the slice around one is looked at, to tell whether a block is full.
const SLICE_EVERY: usize = 4;

/// The samples of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples {
    start: usize,
    /// Bytes from one to the next, a multiple of a slice.
    apart: usize,
    count: usize,
    page: usize,
}

impl Samples {
    /// The samples of a run of at least two slices, in OS pages of `page` bytes.
    pub(super) fn of(run: Run, page: usize) -> Self {
        let count = (run.bytes / APART).clamp(2, MOST_SAMPLES);
        Self {
            start: run.start,
            apart: (run.bytes / count) & !(SLICE_BYTES - 1),
            count,
            page,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The slice's worth of bytes that sample `number` lies in: the last of its part of the block.
    fn slice(&self, number: usize) -> Run {
        Run {
            start: self.start + (number + 1) * self.apart - SLICE_BYTES,
            bytes: SLICE_BYTES,
        }
    }

    /// Another page of its slice for every sample, for programs like to touch pages at even
    /// distances.
    fn page(&self, number: usize) -> Run {
        let pages = (SLICE_BYTES / self.page).max(1);
        Run {
            start: self.slice(number).start + (number * 5 + 3) % pages * self.page,
            bytes: self.page,
        }
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = Run> {
        (0..self.count).map(|number| self.page(number))
    }

    /// The slices around some of them.
    pub(super) fn slices(&self) -> impl Iterator<Item = Run> {
        (0..self.count)
            .rev()
            .step_by(SLICE_EVERY)
            .map(|number| self.slice(number))
    }

    /// How many of the pages lie in a run.
    pub(super) fn among(&self, run: Run) -> usize {
        let holds = |page: &Run| run.start <= page.start && page.start < run.start + run.bytes;
        self.pages().filter(holds).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_habit_takes_findings_in_a_row() {
        let sure = [
            (Finding::Untouched, SURELY_UNTOUCHED + 1),
            (Finding::Full, SURELY_FULL),
        ];
        for (finding, sure) in sure {
            let habits = Habits::new();
            for round in 1..=sure as usize {
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
    fn samples_are_judged_until_they_tell() {
        let habits = Habits::new();
        for _ in 0..100 {
            assert_eq!(habits.next_look(MIB), Look::Probe);
            habits.note_probe(MIB);
            for _ in 1..SURELY_IDLE {
                assert_eq!(habits.next_look(MIB), Look::Judge);
                assert!(!habits.note_idle(MIB));
            }
            assert!(habits.note_idle(MIB));
            for _ in 1..PROBE_EVERY {
                assert_eq!(habits.next_look(MIB), Look::Wait);
            }
        }
        assert_eq!(habits.next_look(MIB), Look::Probe);
        habits.note_probe(MIB);
        habits.note_use(MIB);
        assert_eq!(habits.next_look(MIB), Look::Wait);
    }

    #[test]
    fn every_size_has_its_row() {
        let habits = Habits::new();
        for bytes in [0, 1, 4096, 1 << 47, usize::MAX] {
            assert_eq!(habits.note(bytes, Finding::Full), 1, "{bytes}");
        }
    }

    #[test]
    fn samples_lie_in_the_block_and_apart() {
        for (bytes, page) in [
            (2 << 20, 4096),
            (5_000_000, 4096),
            (1 << 30, 16384),
            (3 << 20, 65536),
        ] {
            let run = Run {
                start: 0x10000,
                bytes,
            };
            let samples = Samples::of(run, page);
            let pages: std::vec::Vec<_> = samples.pages().collect();
            assert_eq!(pages.len(), samples.count());
            assert!(
                pages
                    .windows(2)
                    .all(|two| two[1].start >= two[0].start + APART / 2)
            );
            assert!(pages.iter().all(|sample| sample.start.is_multiple_of(page)));
            assert_eq!(samples.among(run), samples.count());
            assert!(samples.slices().all(|slice| samples.among(slice) == 1));
            assert!(
                samples
                    .slices()
                    .all(|slice| slice.start + slice.bytes <= run.start + bytes)
            );
        }
    }
}
