//! What the rooms above ask of the page heap: spans given out, taken back, made longer and shorter.

use super::Use;
use super::heap::{Locked, PageHeap, address_of};
use super::moves::Renewal;
use super::place::{Extension, Span};
use super::want::{Age, Density, From, Goal, Want};
use super::zero_state::Dirty;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use core::ptr::NonNull;

impl<O: Os> PageHeap<O> {
    /// A span of `slices` slices at a multiple of `align_slices` slices (a power of two), for a
    /// user who asks for `bytes` of it. `None` when the kernel or a limit refuses memory; then
    /// nothing has changed.
    pub fn alloc(
        &self,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
    ) -> Option<Span<'_>> {
        self.alloc_from(From::Anywhere, slices, align_slices, use_, bytes)
    }

    /// Like [`PageHeap::alloc`]; says where the span may come from.
    pub fn alloc_from(
        &self,
        from: From,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
    ) -> Option<Span<'_>> {
        debug_assert!(slices > 0 && align_slices.is_power_of_two());
        let want = Want {
            slices,
            align: align_slices,
            from,
            density: match use_ {
                Use::Slab => Density::Dense,
                Use::Large | Use::Stack | Use::Meta => Density::Unknown,
            },
        };
        let (mut locked, room) = self.room_for(&Goal::Fit(&want), use_)?;
        let (place, zero) = locked.take(room, slices, use_, bytes);
        let warm = place.record().dirty.get() * locked.page_bytes();
        self.end(locked);
        if use_ == Use::Stack {
            // Its pages are given back one by one, while it is in use.
            self.end_unit(place);
        }
        Some(Span {
            base: address_of(place),
            slices,
            zero,
            cold: slices * SLICE_BYTES - warm,
            place,
        })
    }

    /// Takes a whole span back. Its tag becomes 0. A span that the program mapped over, and that
    /// the kernel refuses to map afresh, stays in use for good.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, which no thread uses any more.
    /// - `dirty` covers all that was written to it since it was given out.
    pub unsafe fn free(&self, base: NonNull<u8>, dirty: Dirty) {
        // SAFETY: the caller's promise.
        unsafe { self.free_aged(base, dirty, Age::New) }
    }

    /// Like [`PageHeap::free`]; says for how long the span was not used.
    ///
    /// # Safety
    /// - As [`PageHeap::free`].
    pub unsafe fn free_aged(&self, base: NonNull<u8>, dirty: Dirty, age: Age) {
        // SAFETY: the caller's promise: no thread uses the span.
        let dirty = match unsafe { self.renew_from(base, 0) } {
            Renewal::NoNeed => dirty,
            Renewal::Zero => Dirty::Zeroed,
            Renewal::Refused => return,
        };
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            locked.free(place, dirty, age);
        }
        self.end(locked);
    }

    /// Makes a span longer, to `new_slices` slices (more than it has), if what follows it is free;
    /// sets the bytes asked for. Nothing changes on `None`.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    pub unsafe fn grow_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
    ) -> Option<Extension<'_>> {
        let place = self.locate(base.as_ptr() as usize)?;
        let (record, use_) = (place.record(), place.use_()?);
        let extra = new_slices.checked_sub(place.slices())?;
        if extra == 0 || record.is_huge() {
            return None;
        }
        let goal = Goal::At {
            id: record.arena(),
            at: record.end(),
            slices: extra,
        };
        let (mut locked, (free, _)) = self.room_for(&goal, use_)?;
        let place = locked.span_at(base)?;
        let grown = locked.grow(place, free, extra, bytes);
        self.end(locked);
        Some(grown)
    }

    /// Gives the end of a span back so that `new_slices` slices (at least one) remain; sets the
    /// bytes asked for.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, the caller's, of at least `new_slices` slices.
    /// - No thread uses what is given back; `dirty` covers all that was written to the whole span.
    pub unsafe fn shrink_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
        dirty: Dirty,
    ) {
        // SAFETY: the caller's promise: no thread uses what is given back.
        let renewal = unsafe { self.renew_from(base, new_slices) };
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            let kept = match renewal {
                Renewal::Refused => place.slices(),
                Renewal::NoNeed | Renewal::Zero => new_slices,
            };
            locked.shrink(place, kept, bytes, dirty);
        }
        self.end(locked);
    }

    /// Does what is due: for callers that have not come by for a while.
    pub fn tend(&self) {
        self.end(self.locked());
    }

    /// Gives up the lock, then does what is due.
    pub(super) fn end(&self, locked: Locked<'_, O>) {
        let due = locked.chores();
        drop(locked);
        self.do_chores(due);
    }

    /// Sets the bytes asked for of a span whose slices stay.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    /// - `dirty` covers all that was written to it so far, unless the later free will.
    pub unsafe fn set_bytes(&self, base: NonNull<u8>, bytes: usize, dirty: Dirty) {
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            locked.note_writes(place, dirty);
            locked.set_bytes(place, bytes);
        }
    }
}
