//! A few OS pages of a long block, evenly spread, that stand for all of it.
//!
//! They answer two questions that would cost more to ask of every page. Is a block that was full
//! full again? And does anybody use the pages that `calloc` writes zeros to, time after time? For
//! the second they are purged: if they are populated the next time, the program touched them since.
//! If not, it does not touch the others either.

use super::calloc::Run;
use crate::base::units::SLICE_BYTES;

/// Bytes for which there is one sample; a run has at least two.
const APART: usize = 1 << 20;
const MOST: usize = 16;

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
        let count = (run.bytes / APART).clamp(2, MOST);
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
