//! What `calloc` expects of a large reused block: unused, or populated throughout.
//!
//! Programs repeat themselves: a buffer that is allocated again and again is mostly used in the
//! same way. So each size remembers how many findings in a row were the same. After enough of them
//! the next block is expected to be the same, and the kernel is asked about every
//! [`LOOK_EVERY`]th one only. A misprediction costs time, never correctness.
//!
//! *Probe pages* are a few OS pages of a long block, evenly spread, that stand for all of it. They
//! answer two questions that would cost more to ask of every page. Is a block that was full once
//! full again? And does the program still use the pages that `calloc` clears, time after time? For
//! the second, Neap purges them. If they are populated the next time, the program touched them
//! since. If not, it does not touch the others either.

use crate::base::sync::plain::{AtomicI8, AtomicU8, Ordering::Relaxed};
use crate::base::units::SLICE_BYTES;

/// A streak this long predicts the next finding.
const SURE: i8 = 32;
/// Of this many predictions, one is checked: the kernel is asked.
const LOOK_EVERY: i8 = 8;

/// Steps of size in a doubling.
const STEPS: usize = 4;
const SIZES: usize = STEPS * usize::BITS as usize;

/// Of this many long blocks with populated pages, the probe pages of one are purged.
const PROBE_EVERY: u8 = 4;
/// The probe pages were purged, and no block since had them populated.
const PROBED: u8 = PROBE_EVERY;

/// Of this many long blocks whose first part `calloc` keeps, it purges one as a whole.
const PURGE_EVERY: u8 = 32;

/// What the kernel found about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// No page is populated.
    Untouched,
    /// The program did not touch the probe pages since they were purged: what is populated is so
    /// only because Neap wrote zeros to it.
    Idle,
    /// All pages are populated.
    Full,
    /// Some are.
    Mixed,
}

impl Finding {
    /// What a finding adds to a streak: negative for full blocks.
    ///
    /// To be wrong about an untouched block throws away its pages, which cost some 40 times as much
    /// to fault in as to write: a block that is used every 32nd time or more often never gets
    /// there. Each idle block was written, so half as many cost as much as to fault a part of it in
    /// again. To be wrong about a full block costs only a write.
    fn step(self) -> i8 {
        match self {
            Self::Untouched => 1,
            Self::Idle => SURE / 16,
            Self::Full => -SURE / 4,
            Self::Mixed => 0,
        }
    }
}

/// What to do with a block, by what its size is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// Nothing is known: ask the kernel.
    Unknown,
    /// Nothing is populated: purge it all the same, which costs less than a query.
    Unused,
    /// All is populated: write it.
    Full,
}

/// What blocks of all sizes were found to be.
#[derive(Debug)]
pub(super) struct Predictor {
    rows: [Row; SIZES],
}

/// What blocks of about one size were found to be. Zeroed, it remembers nothing.
#[derive(Debug)]
pub(super) struct Row {
    /// The [steps](Finding::step) of equal findings in a row.
    streak: AtomicI8,
    /// [`PROBED`], or how many long blocks ago it was decided whether to purge probe pages.
    probes: AtomicU8,
    /// How many long blocks ago one was purged as a whole.
    kept: AtomicU8,
}

impl Predictor {
    pub(super) const fn new() -> Self {
        Self {
            rows: [const {
                Row {
                    streak: AtomicI8::new(0),
                    probes: AtomicU8::new(0),
                    kept: AtomicU8::new(0),
                }
            }; SIZES],
        }
    }

    /// The row of blocks of about this size.
    pub(super) fn row(&self, bytes: usize) -> &Row {
        let shift = bytes.max(STEPS).ilog2();
        let step = bytes >> (shift - STEPS.ilog2()) & (STEPS - 1);
        &self.rows[shift as usize * STEPS + step]
    }
}

impl Row {
    /// What the next block is expected to be. Each prediction uses up a step of the streak, so
    /// that the kernel is asked again before long.
    pub(super) fn expect(&self) -> Expectation {
        let streak = self.streak.load(Relaxed);
        if streak.abs() < SURE {
            return Expectation::Unknown;
        }
        self.streak.store(streak - streak.signum(), Relaxed);
        if streak > 0 {
            Expectation::Unused
        } else {
            Expectation::Full
        }
    }

    /// Remembers a finding. True when it came often enough to predict the next.
    pub(super) fn record(&self, finding: Finding) -> bool {
        let (old, step) = (self.streak.load(Relaxed), finding.step());
        let kept = if old.signum() == step.signum() {
            old
        } else {
            0
        };
        let streak = kept + step;
        let is_sure = streak.abs() >= SURE;
        let most = streak.signum() * (SURE + LOOK_EVERY - 2);
        self.streak
            .store(if is_sure { most } else { streak }, Relaxed);
        is_sure
    }

    /// The block was purged: nothing is known of the next.
    pub(super) fn forget(&self) {
        self.streak.store(0, Relaxed);
        self.probes.store(1, Relaxed);
    }

    /// Whether the probe pages are purged, and no block since had them populated.
    pub(super) fn is_probed(&self) -> bool {
        self.probes.load(Relaxed) == PROBED
    }

    /// The probe pages were purged.
    pub(super) fn note_probe(&self) {
        self.probes.store(PROBED, Relaxed);
    }

    /// Whether to purge a long block as a whole: what is resident there may be a neighbour's doing,
    /// and would be written again and again.
    pub(super) fn is_time_to_purge(&self) -> bool {
        let count = self.kept.load(Relaxed);
        self.kept.store((count + 1) % PURGE_EVERY, Relaxed);
        count == 0
    }

    /// Whether to purge the probe pages of a long block that is in use.
    pub(super) fn is_time_to_probe(&self) -> bool {
        let count = self.probes.load(Relaxed);
        self.probes
            .store((count % PROBE_EVERY + 1) % PROBE_EVERY, Relaxed);
        count == 0
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

/// Of this many probe pages, one is looked at to tell whether a block is full.
const SAMPLE_EVERY: usize = 4;

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

    /// In the last slice of its part of the block, for every probe page another page of the slice:
    /// programs like to touch pages at even distances.
    fn page(&self, number: usize) -> Run {
        let pages = (SLICE_BYTES / self.page).max(1);
        let slice = self.start + (number + 1) * self.apart - SLICE_BYTES;
        Run {
            start: slice + (number * 5 + 3) % pages * self.page,
            bytes: self.page,
        }
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl DoubleEndedIterator<Item = Run> + ExactSizeIterator {
        (0..self.count).map(|number| self.page(number))
    }

    /// Some of them, the last first.
    pub(super) fn samples(&self) -> impl Iterator<Item = Run> {
        self.pages().rev().step_by(SAMPLE_EVERY)
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
    use std::vec::Vec;

    const MIB: usize = 1 << 20;

    const SURE_FINDINGS: [(Finding, Expectation, usize); 2] = [
        (Finding::Untouched, Expectation::Unused, 32),
        (Finding::Full, Expectation::Full, 4),
    ];

    #[test]
    fn a_prediction_takes_findings_in_a_row() {
        for (finding, expectation, sure) in SURE_FINDINGS {
            let predictor = Predictor::new();
            for round in 1..=sure {
                assert_eq!(predictor.row(MIB).expect(), Expectation::Unknown);
                assert_eq!(predictor.row(MIB).record(finding), round == sure);
            }
            assert_eq!(predictor.row(MIB).expect(), expectation);
            assert_eq!(predictor.row(2 * MIB).expect(), Expectation::Unknown);
            let about = predictor.row(MIB + MIB / 8);
            assert_eq!(about.expect(), expectation, "about the same size");
            for other in [Finding::Mixed, Finding::Idle, Finding::Full] {
                predictor.row(MIB).record(other);
            }
            assert_eq!(predictor.row(MIB).expect(), Expectation::Unknown);
        }
    }

    #[test]
    fn a_prediction_is_checked_again_and_again() {
        for (finding, _, sure) in SURE_FINDINGS {
            let predictor = Predictor::new();
            let (mut asked, mut last) = (0, 0);
            for round in 0..10_000 {
                if predictor.row(MIB).expect() == Expectation::Unknown {
                    predictor.row(MIB).record(finding);
                    assert!(round - last <= LOOK_EVERY as usize, "{round} after {last}");
                    (asked, last) = (asked + 1, round);
                }
            }
            assert_eq!(asked, sure + (10_000 - sure) / LOOK_EVERY as usize);
        }
    }

    #[test]
    fn idle_blocks_are_sure_after_sixteen() {
        let predictor = Predictor::new();
        let row = predictor.row(MIB);
        for _ in 0..100 {
            assert!(row.is_time_to_probe());
            row.note_probe();
            for round in 1..=16 {
                assert!(row.is_probed());
                assert_eq!(row.record(Finding::Idle), round == 16);
            }
            row.forget();
            assert_eq!(row.expect(), Expectation::Unknown);
            assert!(!row.is_probed());
            assert!((1..PROBE_EVERY).all(|_| !row.is_time_to_probe()));
        }
    }

    #[test]
    fn probe_pages_in_use_are_purged_again_only_later() {
        let predictor = Predictor::new();
        let row = predictor.row(MIB);
        for _ in 0..100 {
            assert!(row.is_time_to_probe());
            row.note_probe();
            assert!((0..PROBE_EVERY).all(|_| !row.is_time_to_probe()));
        }
    }

    #[test]
    fn every_size_has_its_row() {
        let predictor = Predictor::new();
        for bytes in [0, 1, 4096, 1 << 47, usize::MAX] {
            let sure: Vec<_> = (0..4)
                .map(|_| predictor.row(bytes).record(Finding::Full))
                .collect();
            assert_eq!(sure, [false, false, false, true], "{bytes}");
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
            let pages: Vec<_> = samples.pages().collect();
            assert_eq!(pages.len(), samples.count());
            assert!(
                pages
                    .windows(2)
                    .all(|two| two[1].start >= two[0].start + APART / 2)
            );
            assert!(pages.iter().all(|sample| sample.start.is_multiple_of(page)));
            assert_eq!(samples.among(run), samples.count());
            assert_eq!(samples.samples().count(), pages.len().div_ceil(4));
            assert!(samples.samples().all(|sample| samples.among(sample) == 1));
        }
    }
}
