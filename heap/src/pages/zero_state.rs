//! The zero state: a bit for each OS page that may be dirty, carried through every change of hands.

use super::arena::{Arena, Commit};
use super::place::Place;
use crate::base::sync::plain::Ordering::Relaxed;

/// What is known about the contents of a span just given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Every byte reads as zero.
    AllZero,
    /// Some OS pages may hold old data: the masks say which.
    MaybeDirty,
}

impl Zero {
    pub(super) fn of(dirty_pages: usize) -> Self {
        if dirty_pages == 0 {
            Self::AllZero
        } else {
            Self::MaybeDirty
        }
    }
}

/// What the user of a span may have written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// Nothing since it was given out.
    AsBefore,
    /// At most this many bytes from the span's start (beyond them: as before).
    Prefix(usize),
    /// Of a span of one slice: at most this many bytes from its start, and not the OS pages `clean`
    /// of it, which read as zero now.
    PrefixBut {
        /// Bytes.
        bytes: usize,
        /// The lowest page in the lowest bit.
        clean: u16,
    },
    /// Anything.
    All,
    /// All of it reads as zero now (its pages were moved away or purged).
    Zeroed,
}

/// OS pages of one slice run that are to be purged by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirtyRun {
    /// First slice of the run.
    pub(super) from: usize,
    /// Slice after the run.
    pub(super) to: usize,
    /// Address of the first dirty page.
    pub(super) address: usize,
    /// Bytes to the end of the last dirty page.
    pub(super) bytes: usize,
}

/// Most clean slices between two dirty ones that one purge passes over.
const MOST_GAP: usize = 16;

impl Arena {
    /// Pages of the slices `from..to` whose masks say maybe dirty.
    pub(super) fn count_dirty(&self, from: usize, to: usize) -> usize {
        self.masks(from, to)
            .flatten()
            .map(|mask| mask.load(Relaxed).count_ones() as usize)
            .sum()
    }

    /// Notes that nothing in the slices `from..to` is dirty. Returns how many pages were.
    pub(super) fn clear_dirty(&self, from: usize, to: usize) -> usize {
        let dirty = self.count_dirty(from, to);
        self.fill_masks(from, to, 0);
        dirty
    }

    /// Gives all slices `from..to` the same mask.
    pub(super) fn fill_masks(&self, from: usize, to: usize, mask: u16) {
        for old in self.masks(from, to).flatten() {
            old.store(mask, Relaxed);
        }
    }

    /// Notes that the first `pages` OS pages of the slices `from..to` may be dirty. Returns how
    /// many were not before.
    pub(super) fn mark_dirty(&self, from: usize, to: usize, pages: usize) -> usize {
        let per_slice = self.layout().pages_per_slice;
        let full = self.layout().full_mask();
        let (mut left, mut added) = (pages, 0);
        for index in from..to {
            if left == 0 {
                break;
            }
            let bits = if left >= per_slice {
                full
            } else {
                full >> (per_slice - left)
            };
            let old = self.mask(index).load(Relaxed);
            self.mask(index).store(old | bits, Relaxed);
            added += (bits & !old).count_ones() as usize;
            left -= left.min(per_slice);
        }
        added
    }

    /// Notes that the first `pages` OS pages of the slices `from..to` are zero. Returns how many
    /// were dirty.
    pub(super) fn clear_prefix(&self, from: usize, to: usize, pages: usize) -> usize {
        let per_slice = self.layout().pages_per_slice;
        let whole = (pages / per_slice).min(to - from);
        let mut cleared = self.clear_dirty(from, from + whole);
        if from + whole < to {
            let mask = self.mask(from + whole);
            let bits = mask.load(Relaxed) & ((1 << (pages % per_slice)) - 1);
            mask.store(mask.load(Relaxed) & !bits, Relaxed);
            cleared += bits.count_ones() as usize;
        }
        cleared
    }

    /// The first slice of `from..to` with a dirty page. Free spans may be millions of slices long.
    fn first_dirty(&self, from: usize, to: usize) -> Option<usize> {
        let mut masks = self.masks(from, to).flatten();
        Some(from + masks.position(|mask| mask.load(Relaxed) != 0)?)
    }

    /// The next dirty pages in the slices `from..to`, at most `most` of them (but all of the first
    /// slice), over at most as many slices. Clean pages between dirty ones are in the run where
    /// they are few: purging absent pages costs less than another call.
    pub(super) fn next_dirty(&self, from: usize, to: usize, most: usize) -> Option<DirtyRun> {
        let dirty = |index: usize| self.mask(index).load(Relaxed).count_ones() as usize;
        let first = self.first_dirty(from, to)?;
        let (mut last, mut pages) = (first, dirty(first));
        for index in first + 1..to.min(first.saturating_add(most)) {
            let committed = self.find(index, index + 1, Commit::Yes) == index;
            pages += dirty(index);
            if !committed || index - last > MOST_GAP || pages > most {
                break;
            }
            if dirty(index) > 0 {
                last = index;
            }
        }
        let (layout, page) = (self.layout(), self.layout().page_bytes());
        let lead = self.mask(first).load(Relaxed).trailing_zeros() as usize;
        let used = 16 - self.mask(last).load(Relaxed).leading_zeros() as usize;
        let address = layout.address(first) + lead * page;
        let bytes = layout.address(last) + used * page - address;
        Some(DirtyRun {
            from: first,
            to: last + 1,
            address,
            bytes,
        })
    }
}

impl Place<'_> {
    /// Calls `visit` with the offset and the length of every run of pages among the first `bytes`
    /// bytes of the span that starts here that its masks call dirty. The last run may end within a
    /// page.
    pub(super) fn each_dirty_run(&self, bytes: usize, mut visit: impl FnMut(usize, usize)) {
        let (page, per_slice) = (
            self.arena.layout().page_bytes(),
            self.arena.layout().pages_per_slice,
        );
        let is_dirty = |number: usize| {
            let mask = self
                .arena
                .mask(self.index + number / per_slice)
                .load(Relaxed);
            mask & (1 << (number % per_slice)) != 0
        };
        let pages = bytes.div_ceil(page);
        let mut next = 0;
        while let Some(first) = (next..pages).find(|&number| is_dirty(number)) {
            next = (first..pages)
                .find(|&number| !is_dirty(number))
                .unwrap_or(pages);
            visit(first * page, (next * page).min(bytes) - first * page);
        }
    }
}
