//! The zero state of a span as the kernel says: for spans of which little was touched, nobody knows where.

use super::arena::Arena;
use super::heap::PageHeap;
use super::place::Place;
use super::span::Detail;
use super::zero::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::{Os, Populated, Unknown};
use core::ptr::NonNull;

impl<O: Os> PageHeap<O> {
    /// Sets the zero state of a span that is about to be freed to what is populated; what nobody can tell about is
    /// dirty. Not under the lock: the zero state of a span in use is its user's, and asking takes long. Returns what is left to
    /// say.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, which nobody uses any more.
    pub(super) unsafe fn ask_span(&self, base: NonNull<u8>) -> Dirty {
        let Some(place) = self.locate(base.as_ptr().addr()) else {
            return Dirty::All;
        };
        let (arena, index, slices) = (place.arena, place.index, place.slices());
        arena.fill_masks(index, index + slices, 0);
        place.record().set_detail(Detail::Masks);
        let visit = |run: Populated| place.mark_run(run.start, run.start + run.bytes);
        // SAFETY: the caller's promise: spans in use are committed.
        let answer = unsafe { self.os.populated(base, slices * SLICE_BYTES, visit) };
        if let Err(Unknown { from }) = answer {
            place.mark_run(from, arena.layout().address(index + slices));
        }
        let dirty = arena.count_dirty(index, index + slices);
        place.record().dirty.set(dirty);
        Dirty::AsBefore
    }
}

impl Place<'_> {
    /// Marks the pages from one address to another, both in the span that starts here, as dirty.
    fn mark_run(&self, from: usize, to: usize) {
        let page = self.arena.layout().page_bytes();
        for at in (from..to).step_by(page) {
            let offset = at - self.slice_base();
            self.arena.mark_page(
                self.index + offset / SLICE_BYTES,
                offset % SLICE_BYTES / page,
            );
        }
    }
}

impl Arena {
    fn mark_page(&self, index: usize, page: usize) {
        let mask = self.mask(index);
        mask.store(mask.load(Relaxed) | 1 << page, Relaxed);
    }
}
