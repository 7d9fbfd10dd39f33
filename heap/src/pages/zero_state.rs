//! The zero state: which OS pages may hold old data, carried through every change of hands.
//!
//! A slice has a mask with one bit a page. A large block that is freed may be dirty anywhere: to
//! write that into its masks, and to count them at every reuse, would cost time for every slice. So
//! the record of such a span says that all of it is dirty ([`ZeroState::AllDirty`]). Its masks are
//! out of date until they are needed: when a short part is cut out of it, when it merges with spans
//! of which more is known, before a purge, and before its pages move.

use super::arena::{Arena, Commit};
use super::span::{SpanRecord, ZeroState};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use core::ops::Range;

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

impl DirtyRun {
    /// A whole unit of huge pages. The kernel may have made all of it resident, even clean pages.
    pub(super) fn unit(from: usize, address: usize) -> DirtyRun {
        let (to, bytes) = (from + HUGE_SLICES, HUGE_BYTES);
        DirtyRun {
            from,
            to,
            address,
            bytes,
        }
    }

    /// Its first slices, of at most `most` bytes.
    pub(super) fn within(self, most: usize) -> DirtyRun {
        let to = self.to.min(self.from + most / SLICE_BYTES);
        let end = self.address / SLICE_BYTES * SLICE_BYTES + (to - self.from) * SLICE_BYTES;
        let bytes = self.bytes.min(end - self.address);
        DirtyRun { to, bytes, ..self }
    }
}

/// How many clean slices at the front of a free span a slab leaves aside to begin on a dirty one:
/// the guard of a freed stack and what the coroutine did not use. With more between them, slabs
/// would cost more in records (the far words of eight slices share a page) and holes than they
/// reuse.
const MOST_SKIPPED: usize = 8;
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

    /// Marks all of the slices `from..to` as clean. Returns how many pages were dirty.
    pub(super) fn clear_dirty(&self, from: usize, to: usize) -> usize {
        let dirty = self.count_dirty(from, to);
        self.fill_masks(from, to, 0);
        dirty
    }

    /// Marks pages of a span as clean. Returns how many were dirty.
    pub(super) fn clear_pages(&self, span: &SpanRecord, pages: Range<usize>) -> usize {
        let per_slice = self.layout().pages_per_slice;
        let was_dirty = |page: &usize| {
            let mask = self.mask(span.index.get() + page / per_slice);
            let (old, bit) = (mask.load(Relaxed), 1 << (page % per_slice));
            mask.store(old & !bit, Relaxed);
            old & bit != 0
        };
        pages.filter(was_dirty).count()
    }

    /// Gives all slices `from..to` the same mask.
    pub(super) fn fill_masks(&self, from: usize, to: usize, mask: u16) {
        for old in self.masks(from, to).flatten() {
            old.store(mask, Relaxed);
        }
    }

    /// Marks the first `pages` OS pages of the slices `from..to` as dirty. Returns how many were
    /// not before.
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

    /// Marks the first `pages` OS pages of the slices `from..to` as clean. Returns how many were
    /// dirty.
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
    pub(super) fn first_dirty(&self, from: usize, to: usize) -> Option<usize> {
        let mut masks = self.masks(from, to).flatten();
        Some(from + masks.position(|mask| mask.load(Relaxed) != 0)?)
    }

    /// Where a slab should begin in a free span with dirty pages: on the first slice with one, if
    /// that is near its front.
    pub(super) fn first_touched(&self, free: &SpanRecord) -> usize {
        let first = free.index.get();
        let (from, to) = (free.clean_slices(), free.slices.get().min(MOST_SKIPPED));
        if free.zero_state() == ZeroState::AllDirty || from >= to {
            return first;
        }
        self.first_dirty(first + from, first + to).unwrap_or(first)
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

impl Arena {
    /// Calls `visit` with the offset and the length of every run of pages among the first `bytes`
    /// bytes of a span that may be dirty. The last run may end within a page.
    pub(super) fn each_dirty_run(
        &self,
        span: &SpanRecord,
        bytes: usize,
        mut visit: impl FnMut(usize, usize),
    ) {
        if self.is_all_dirty(span) {
            return visit(0, bytes);
        }
        let page = self.layout().page_bytes();
        let pages = bytes.div_ceil(page);
        let mut first = self.find_page(span, 0..pages, |mask| mask);
        while first < pages {
            let next = self.find_page(span, first..pages, |mask| !mask);
            visit(first * page, (next * page).min(bytes) - first * page);
            first = self.find_page(span, next..pages, |mask| mask);
        }
    }

    /// The first of these pages of a span that is in the set that `wanted` makes of its slice's
    /// mask; the end of the range if there is none.
    pub(super) fn find_page(
        &self,
        span: &SpanRecord,
        pages: Range<usize>,
        wanted: fn(u16) -> u16,
    ) -> usize {
        let (per_slice, full) = (self.layout().pages_per_slice, self.layout().full_mask());
        let mut at = pages.start;
        while at < pages.end {
            let mask = self.mask(span.index.get() + at / per_slice).load(Relaxed);
            let found = (wanted(mask) & full) >> (at % per_slice);
            if found != 0 {
                return (at + found.trailing_zeros() as usize).min(pages.end);
            }
            at += per_slice - at % per_slice;
        }
        pages.end
    }
}

/// Spans in use shorter than this (1 MiB) have masks.
const LEAST_SLICES: usize = 16;

/// A span that is dirty throughout stays so when it is merged with at most this part of its length.
const SPREAD: usize = 16;

impl Arena {
    /// OS pages of `slices` slices.
    fn pages_of(&self, slices: usize) -> usize {
        slices * self.layout().pages_per_slice
    }

    fn is_all_dirty(&self, span: &SpanRecord) -> bool {
        span.dirty.get() == self.pages_of(span.slices.get())
    }

    /// Pages that may be dirty in a part of a span.
    pub(super) fn share(&self, span: &SpanRecord, from: usize, to: usize) -> usize {
        match span.dirty.get() {
            0 => 0,
            _ if self.is_all_dirty(span) => self.pages_of(to - from),
            _ => self.count_dirty(from, to),
        }
    }

    /// How many pages the last slice of a short span has beyond the requested bytes, if any of them
    /// may be dirty. 0 where the last slice is not in use, or all of it.
    pub(super) fn tail_pages(&self, span: &SpanRecord) -> usize {
        let (slices, per_slice) = (span.slices.get(), self.layout().pages_per_slice);
        let used = span.bytes().wrapping_sub((slices - 1) * SLICE_BYTES);
        if slices >= LEAST_SLICES || !(1..SLICE_BYTES).contains(&used) {
            return 0;
        }
        let used = (used * per_slice).div_ceil(SLICE_BYTES);
        let dirty = match self.is_all_dirty(span) {
            true => self.layout().full_mask(),
            false => self.mask(span.end() - 1).load(Relaxed),
        };
        match u32::from(dirty) >> used {
            0 => 0,
            _ => per_slice - used,
        }
    }

    /// Brings a span's masks up to date.
    pub(super) fn write_masks(&self, span: &SpanRecord) {
        if span.zero_state() == ZeroState::AllDirty {
            self.fill_masks(span.index.get(), span.end(), self.layout().full_mask());
            span.set_zero_state(ZeroState::PerPage);
        }
    }

    /// Every page of a span counts as dirty from now on.
    fn mark_all_dirty(&self, span: &SpanRecord) {
        span.set_zero_state(ZeroState::AllDirty);
        span.back.set(0);
        span.dirty.set(self.pages_of(span.slices.get()));
    }

    /// What was cut out of a span with this detail keeps it, unless it is too short.
    pub(super) fn keep_zero_state(&self, part: &SpanRecord, detail: ZeroState) {
        part.set_zero_state(detail);
        if part.slices.get() < LEAST_SLICES {
            self.write_masks(part);
        }
    }

    /// Carries what the user wrote into the zero state of a span in use.
    pub(super) fn note_writes(&self, span: &SpanRecord, dirty: Dirty) {
        match (span.zero_state(), dirty) {
            (_, Dirty::Zeroed) => self.note_zero(span),
            (_, Dirty::PrefixBut { bytes, clean }) => {
                self.note_prefix(span, bytes);
                self.note_clean(span, clean);
            }
            (_, Dirty::AsBefore) | (ZeroState::AllDirty, _) => {}
            (ZeroState::PerPage, Dirty::Prefix(bytes)) => self.note_prefix(span, bytes),
            (ZeroState::PerPage, Dirty::All) => self.note_prefix(span, usize::MAX),
        }
    }

    fn note_zero(&self, span: &SpanRecord) {
        self.fill_masks(span.index.get(), span.end(), 0);
        span.set_zero_state(ZeroState::PerPage);
        span.dirty.set(0);
    }

    /// Some pages of a span of one slice read as zero.
    fn note_clean(&self, span: &SpanRecord, clean: u16) {
        let mask = self.mask(span.index.get());
        let old = mask.load(Relaxed);
        mask.store(old & !clean, Relaxed);
        debug_assert_eq!(span.slices.get(), 1);
        span.dirty
            .set(span.dirty.get() - (old & clean).count_ones() as usize);
    }

    fn note_prefix(&self, span: &SpanRecord, bytes: usize) {
        let slices = span.slices.get();
        if slices >= LEAST_SLICES && bytes > (slices - 1) * SLICE_BYTES {
            return self.mark_all_dirty(span);
        }
        if self.is_all_dirty(span) {
            return;
        }
        let pages = bytes.div_ceil(self.layout().page_bytes());
        let added = self.mark_dirty(span.index.get(), span.end(), pages);
        span.dirty.set(span.dirty.get() + added);
    }

    /// Adds to a span in use what was cut out of a free one behind it.
    pub(super) fn join(&self, span: &SpanRecord, added: &SpanRecord) {
        let slices = span.slices.get() + added.slices.get();
        let all_dirty = span.zero_state() == ZeroState::AllDirty;
        if !all_dirty {
            self.write_masks(added);
        }
        span.dirty.set(span.dirty.get() + added.dirty.get());
        self.set_length(span, slices);
        if all_dirty {
            self.mark_all_dirty(span);
        }
    }

    /// Cuts a span in use at slice `cut`. What follows is in no span, and returned.
    pub(super) fn cut_off(&self, span: &SpanRecord, cut: usize) -> &SpanRecord {
        let (end, rest) = (span.end(), self.record(cut));
        let given = self.share(span, cut, end);
        rest.place(span.arena() as u8, cut);
        rest.dirty.set(given);
        self.set_length(rest, end - cut);
        rest.set_zero_state(span.zero_state());
        span.dirty.set(span.dirty.get() - given);
        self.set_length(span, cut - span.index.get());
        rest
    }

    /// Makes the details of neighbours, which are in no order and no count now, the same, so that
    /// they can be merged. Returns it.
    pub(super) fn unify(&self, parts: &[Option<&SpanRecord>; 3]) -> ZeroState {
        let parts = || parts.iter().flatten();
        let slices_of = |detail| {
            let with = parts().filter(|part| part.zero_state() == detail);
            with.map(|part| part.slices.get()).sum::<usize>()
        };
        let (known, covered) = (
            slices_of(ZeroState::PerPage),
            slices_of(ZeroState::AllDirty),
        );
        if covered == 0 {
            return ZeroState::PerPage;
        }
        let fits =
            |part: &SpanRecord| part.zero_state() == ZeroState::AllDirty || self.is_committed(part);
        let spreads = known * SPREAD <= covered && parts().all(|part| fits(part));
        if spreads {
            parts().for_each(|part| self.mark_all_dirty(part));
            return ZeroState::AllDirty;
        }
        parts().for_each(|part| self.write_masks(part));
        ZeroState::PerPage
    }

    fn is_committed(&self, span: &SpanRecord) -> bool {
        self.find(span.index.get(), span.end(), Commit::No) == span.end()
    }
}
