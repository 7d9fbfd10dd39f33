//! What `calloc` expects of a large reused block: untouched, or populated throughout.
//!
//! Programs repeat themselves: a buffer that is allocated again and again is mostly used in the
//! same way. After some findings in a row the next is expected to be the same; every
//! [`LOOK_EVERY`]th time the kernel is queried all the same. A misprediction costs time, never
//! correctness.
//!
//! *Probe pages* are a few OS pages of a long block, evenly spread, that stand for all of it. They
//! answer two questions that would cost more to ask of every page. Is a block that was full once
//! full again? And does the program still use the pages that `calloc` clears, time after time? For
//! the second, Neap purges them. If they are populated the next time, the program touched them
//! since. If not, it does not touch the others either.

use crate::base::sync::plain::{AtomicI8, AtomicU8, Ordering::Relaxed};
use crate::base::units::SLICE_BYTES;

/// This many findings of [`Occupancy::All`] in a row predict the next: to be wrong costs a write.
const SURELY_FULL: i8 = 4;
/// This many findings of [`Occupancy::None`] in a row predict the next: to be wrong throws away
/// pages, which cost some 40 times as much to fault in as to write. A block that is used every 32nd
/// time or more often never gets there.
const SURELY_UNTOUCHED: i8 = 32;
/// Every time of this many, the kernel is queried although the finding is predicted.
const LOOK_EVERY: i8 = 8;
/// Where the counting starts over: far over the two, a multiple of [`LOOK_EVERY`].
const MOST: i8 = 120;

/// Steps of size in a doubling.
const STEPS: usize = 4;
const SIZES: usize = STEPS * usize::BITS as usize;

/// What the kernel found about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupancy {
    /// No page is populated.
    None,
    /// All are.
    All,
    /// Some are.
    Some,
}

/// What to do with a block's probe pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// They were purged a while ago: see whether the program touched them since.
    Judge,
    /// It is time to purge them.
    Probe,
    /// Neither.
    Wait,
}

/// Of this many long blocks with populated pages, the probe pages of one are purged.
const PROBE_EVERY: u8 = 4;
/// From here on the probe pages were purged; what is above counts how often they were found
/// untouched since.
const PROBED: u8 = 64;
/// This many times in a row make a block idle: until then it was written for as much as it costs to
/// fault a part of it in again.
const SURELY_IDLE: u8 = 16;

/// A memory of findings, by size. Zeroed, it remembers nothing.
#[derive(Debug)]
pub(super) struct Predictor {
    /// Below [`PROBED`]: how often [`Predictor::next_step`] was called. Blocks of one size share
    /// their probe pages' count.
    probes: [AtomicU8; SIZES],
    /// How many findings in a row: above 0 of [`Occupancy::None`], below 0 of [`Occupancy::All`].
    rows: [AtomicI8; SIZES],
}

impl Predictor {
    pub(super) const fn new() -> Self {
        Self {
            probes: [const { AtomicU8::new(0) }; SIZES],
            rows: [const { AtomicI8::new(0) }; SIZES],
        }
    }

    fn row(&self, bytes: usize) -> &AtomicI8 {
        &self.rows[row_of(bytes)]
    }

    /// What to do with the probe pages of a block of this size that had populated pages.
    pub(super) fn next_step(&self, bytes: usize) -> ProbeStep {
        let probes = &self.probes[row_of(bytes)];
        let count = probes.load(Relaxed);
        if count >= PROBED {
            return ProbeStep::Judge;
        }
        probes.store((count + 1) % PROBE_EVERY, Relaxed);
        if count == 0 {
            ProbeStep::Probe
        } else {
            ProbeStep::Wait
        }
    }

    /// The probe pages of a block of this size were purged.
    pub(super) fn record_probe(&self, bytes: usize) {
        self.probes[row_of(bytes)].store(PROBED, Relaxed);
    }

    /// The program touched the probe pages that were purged.
    pub(super) fn record_use(&self, bytes: usize) {
        self.probes[row_of(bytes)].store(1, Relaxed);
    }

    /// It did not. True when that is so often enough.
    pub(super) fn record_idle(&self, bytes: usize) -> bool {
        let probes = &self.probes[row_of(bytes)];
        let times = probes.load(Relaxed).max(PROBED) - PROBED + 1;
        let enough = times >= SURELY_IDLE;
        probes.store(if enough { 1 } else { PROBED + times }, Relaxed);
        enough
    }

    /// What a block of this size is expected to be; [`Occupancy::Some`] when the kernel is to be
    /// asked.
    pub(super) fn expected(&self, bytes: usize) -> Occupancy {
        let row = self.row(bytes);
        let count = row.load(Relaxed);
        let unsure = (-SURELY_FULL + 1..SURELY_UNTOUCHED).contains(&count);
        if unsure || count % LOOK_EVERY == 0 {
            return Occupancy::Some;
        }
        row.store(longer(count), Relaxed);
        if count > 0 {
            Occupancy::None
        } else {
            Occupancy::All
        }
    }

    /// Remembers what was found; says how many times in a row it was.
    pub(super) fn record(&self, bytes: usize, finding: Occupancy) -> usize {
        let row = self.row(bytes);
        let count = match (finding, row.load(Relaxed)) {
            (Occupancy::Some, _) => 0,
            (Occupancy::None, count @ 1..) | (Occupancy::All, count @ ..0) => longer(count),
            (Occupancy::None, _) => 1,
            (Occupancy::All, _) => -1,
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

/// Bytes for which there is one probe page; a run has at least two.
const APART: usize = 1 << 20;
const MOST_SAMPLES: usize = 16;

/// Of this many probe pages, the slice around one is looked at, to tell whether a block is full.
const SLICE_EVERY: usize = 4;

/// The probe pages of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbePages {
    start: usize,
    /// Bytes from one to the next, a multiple of a slice.
    apart: usize,
    count: usize,
    page: usize,
}

impl ProbePages {
    /// The probe pages of a run of at least two slices, in OS pages of `page` bytes.
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

    /// The slice's worth of bytes that probe page `number` lies in: the last of its part of the
    /// block.
    fn slice(&self, number: usize) -> Run {
        Run {
            start: self.start + (number + 1) * self.apart - SLICE_BYTES,
            bytes: SLICE_BYTES,
        }
    }

    /// Another page of its slice for every probe page, for programs like to touch pages at even
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
    fn a_prediction_takes_findings_in_a_row() {
        let sure = [
            (Occupancy::None, SURELY_UNTOUCHED + 1),
            (Occupancy::All, SURELY_FULL),
        ];
        for (finding, sure) in sure {
            let predictor = Predictor::new();
            for round in 1..=sure as usize {
                assert_eq!(predictor.expected(MIB), Occupancy::Some);
                assert_eq!(predictor.record(MIB, finding), round);
            }
            assert_eq!(predictor.expected(MIB), finding);
            assert_eq!(predictor.expected(2 * MIB), Occupancy::Some);
            assert_eq!(
                predictor.expected(MIB + MIB / 8),
                finding,
                "about the same size"
            );
            assert_eq!(predictor.record(MIB, Occupancy::Some), 0);
            assert_eq!(predictor.expected(MIB), Occupancy::Some);
        }
    }

    #[test]
    fn a_prediction_is_checked_again_and_again() {
        for finding in [Occupancy::None, Occupancy::All] {
            let predictor = Predictor::new();
            let (mut asked, mut last) = (0, 0);
            for round in 0..10_000 {
                if predictor.expected(MIB) == Occupancy::Some {
                    predictor.record(MIB, finding);
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
    fn probe_pages_are_judged_until_they_tell() {
        let predictor = Predictor::new();
        for _ in 0..100 {
            assert_eq!(predictor.next_step(MIB), ProbeStep::Probe);
            predictor.record_probe(MIB);
            for _ in 1..SURELY_IDLE {
                assert_eq!(predictor.next_step(MIB), ProbeStep::Judge);
                assert!(!predictor.record_idle(MIB));
            }
            assert!(predictor.record_idle(MIB));
            for _ in 1..PROBE_EVERY {
                assert_eq!(predictor.next_step(MIB), ProbeStep::Wait);
            }
        }
        assert_eq!(predictor.next_step(MIB), ProbeStep::Probe);
        predictor.record_probe(MIB);
        predictor.record_use(MIB);
        assert_eq!(predictor.next_step(MIB), ProbeStep::Wait);
    }

    #[test]
    fn every_size_has_its_row() {
        let predictor = Predictor::new();
        for bytes in [0, 1, 4096, 1 << 47, usize::MAX] {
            assert_eq!(predictor.record(bytes, Occupancy::All), 1, "{bytes}");
        }
    }

    #[test]
    fn probe_pages_lie_in_the_block_and_apart() {
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
            let samples = ProbePages::of(run, page);
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
