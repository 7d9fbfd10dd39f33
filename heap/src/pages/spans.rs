//! Span operations. The caller holds the page heap's lock; records, counts and tags follow.

use super::Use;
use super::commit::Room;
use super::heap::Locked;
use super::place::{Extension, Place};
use super::span::{Record, State};
use super::want::Age;
use super::zero_state::{Dirty, Zero};
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use core::ptr::NonNull;

impl<'h, O: Os> Locked<'h, O> {
    /// The span in use that starts at `base`.
    pub(super) fn span_at(&self, base: NonNull<u8>) -> Option<Place<'h>> {
        let address = base.as_ptr() as usize;
        let place = self
            .heap
            .locate(address)
            .filter(|place| place.use_().is_some());
        debug_assert!(
            place.is_some_and(|place| place.slice_base() == address),
            "a span in use"
        );
        place
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.heap.os.page_bytes().min(SLICE_BYTES)
    }

    /// Gives out the first `slices` slices of committed room.
    pub(super) fn take(
        &mut self,
        (free, at): Room<'h>,
        slices: usize,
        use_: Use,
        bytes: usize,
    ) -> (Place<'h>, Zero) {
        let arena = self.arena(free.arena());
        let record = self.carve(free, at, slices);
        record.set_state(State::Used(use_));
        record.swap_bytes(bytes);
        let counts = &mut self.inner.counts;
        counts.take(slices);
        let figure = &mut counts.by_use[use_ as usize - 1];
        figure.spans += 1;
        figure.slices += slices;
        figure.bytes += bytes;
        (Place { arena, index: at }, Zero::of(record.dirty.get()))
    }

    pub(super) fn free(&mut self, place: Place<'h>, dirty: Dirty, age: Age) {
        let (record, slices) = (place.arena.record(place.index), place.slices());
        self.note_writes(place, dirty);
        self.set_bytes(place, 0);
        place.set_tag(0);
        self.uncount(place, slices);
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].spans -= 1;
        }
        record.set_state(State::Blank);
        self.add_free(record, age);
    }

    /// Adds the first `extra` slices of the free span behind a span in use to it.
    pub(super) fn grow(
        &mut self,
        place: Place<'h>,
        free: &'h Record,
        extra: usize,
        bytes: usize,
    ) -> Extension<'h> {
        let record = place.arena.record(place.index);
        let next = record.end();
        let added = self.carve(free, next, extra);
        let zero = Zero::of(added.dirty.get());
        self.join(record, added);
        self.set_bytes(place, bytes);
        self.inner.counts.take(extra);
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].slices += extra;
        }
        let place = Place {
            index: next,
            ..place
        };
        Extension {
            slices: extra,
            zero,
            place,
        }
    }

    pub(super) fn shrink(
        &mut self,
        place: Place<'h>,
        new_slices: usize,
        bytes: usize,
        dirty: Dirty,
    ) {
        let record = place.arena.record(place.index);
        let (cut, end) = (place.index + new_slices, record.end());
        debug_assert!(new_slices > 0 && cut <= end);
        self.note_writes(place, dirty);
        self.set_bytes(place, bytes);
        if cut >= end || new_slices == 0 {
            return;
        }
        let rest = self.cut_off(record, cut);
        self.uncount(place, end - cut);
        self.add_free(rest, Age::New);
    }

    /// Slices leave a span in use.
    fn uncount(&mut self, place: Place<'h>, slices: usize) {
        self.inner.counts.used_slices -= slices;
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].slices -= slices;
        }
    }

    pub(super) fn set_bytes(&mut self, place: Place<'h>, bytes: usize) {
        let Some(use_) = place.use_() else { return };
        let old = place.arena.record(place.index).swap_bytes(bytes);
        let figure = &mut self.inner.counts.by_use[use_ as usize - 1];
        figure.bytes = figure.bytes + bytes - old;
    }

    /// Calls `visit` with every span, in the order of addresses within an arena.
    pub(super) fn for_each_record(&self, mut visit: impl FnMut(Place<'h>, &'h Record)) {
        for arena in self.heap.arenas() {
            let mut index = arena.layout().head;
            while index < arena.frontier() {
                let record = arena.record(index);
                let end = record.end();
                visit(Place { arena, index }, record);
                index = end.max(index + 1);
            }
        }
    }
}
