//! Frees spans of which little was touched, in unknown places. The kernel says which pages are
//! populated, and only these are dirty from then on. One query covers neighbouring spans, because a
//! query costs ten times as much as one more span in it.

use super::arena::{Arena, SliceRef};
use super::heap::PageHeap;
use super::renew::Renewal;
use super::span::{Age, ZeroState};
use super::zero_state::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::{Os, Populated, Unknown};
use core::ptr::NonNull;

/// Neighbouring slices of whole spans in use.
#[derive(Clone, Copy)]
struct SpanRun<'h> {
    arena: &'h Arena,
    from: usize,
    to: usize,
}

impl<O: Os> PageHeap<O> {
    /// Takes neighbouring whole spans back, `bytes` bytes of them. Like [`PageHeap::free`], but the
    /// kernel says which pages are dirty; pages that it does not report on count as dirty. `age`
    /// says for how long they were not used.
    ///
    /// # Safety
    /// - At `base` a span in use begins, `bytes` bytes later one ends, those between are in use,
    ///   and no thread uses any of them any more.
    pub unsafe fn free_querying_kernel(&self, base: NonNull<u8>, bytes: usize, age: Age) {
        let (mut at, end) = (base.as_ptr().addr(), base.as_ptr().addr() + bytes);
        while let Some(place) = self.locate(at).filter(|_| at < end) {
            let (arena, from) = (place.arena, place.index);
            let to = (from + (end - at) / SLICE_BYTES).min(arena.frontier());
            let run = SpanRun { arena, from, to };
            // SAFETY: the caller's promise.
            unsafe { self.query_range(run) };
            let mut locked = self.locked();
            for place in run.spans() {
                // A mapping of the program's that could not be taken away stays.
                if !place.record().is_overmapped() {
                    locked.free(place, Dirty::AsBefore, age);
                }
            }
            self.finish(locked);
            at = arena.layout().address(to);
        }
    }

    /// Sets the zero state of spans in use to what is populated. Without the lock, because the zero
    /// state of a span in use belongs to its user, and the query takes long.
    ///
    /// # Safety
    /// - No thread uses the spans any more.
    unsafe fn query_range(&self, run: SpanRun<'_>) {
        let SpanRun { arena, from, to } = run;
        let start = arena.layout().address(from);
        let Some(base) = NonNull::new(start as *mut u8) else {
            return;
        };
        for place in run.spans() {
            // SAFETY: the caller's promise.
            let renewal = unsafe { self.renew_from(place, 0) };
            // The caller frees what is not overmapped. Only stacks come here, and no pages are
            // moved into them, so a refusal leaves the mark.
            debug_assert!(renewal != Renewal::Refused || place.record().is_overmapped());
            place.record().set_zero_state(ZeroState::PerPage);
        }
        arena.fill_masks(from, to, 0);
        let visit = |found: Populated| run.mark(found.start - start, found.bytes);
        let bytes = (to - from) * SLICE_BYTES;
        // SAFETY: the caller's promise: spans in use are committed.
        if let Err(Unknown { from }) = unsafe { self.os.populated(base, bytes, visit) } {
            run.mark(from - start, start + bytes - from);
        }
        for place in run.spans() {
            let record = place.record();
            record
                .dirty
                .set(arena.count_dirty(place.index, record.end()));
        }
    }
}

impl<'h> SpanRun<'h> {
    fn spans(self) -> impl Iterator<Item = SliceRef<'h>> {
        let Self { arena, from, to } = self;
        let mut next = from;
        core::iter::from_fn(move || {
            let place = (next < to).then_some(SliceRef { arena, index: next })?;
            next = arena.record(next).end().max(next + 1);
            Some(place)
        })
    }

    /// Marks the pages of some bytes as dirty.
    fn mark(self, offset: usize, bytes: usize) {
        let page = self.arena.layout().page_bytes();
        for at in (offset..offset + bytes).step_by(page) {
            let mask = self.arena.mask(self.from + at / SLICE_BYTES);
            mask.store(mask.load(Relaxed) | 1 << (at % SLICE_BYTES / page), Relaxed);
        }
    }
}
