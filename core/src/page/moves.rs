//! Moving pages from span to span, and what it costs in mappings.
//!
//! Pages that the kernel moved keep the offset of the place they come from, so their mapping cannot
//! merge with its neighbours: each move takes up to two more of `vm.max_map_count`. So spans that
//! pages were moved into are marked and counted, at most [`MOST_MOVED`] at once, and mapped afresh when
//! they are freed: that gives their pages back to the kernel and lets the mappings merge again.
//! Spans that the program mapped something over are marked in the same way.
//! Where every commit is charged nothing is moved, for there mapping afresh may be refused.

use super::heap::{Locked, PageHeap};
use super::place::Place;
use super::span::State;
use super::zero::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::{Os, OutOfMemory};
use core::ptr::NonNull;

/// Most spans in use with moved pages: an eighth of the default `vm.max_map_count`.
const MOST_MOVED: usize = 4096;

impl<O: Os> PageHeap<O> {
    /// Moves the pages of the first `bytes` bytes (a multiple of the OS page) from one span to another without
    /// copying. The source then reads as zero there and counts as asked for 0 bytes, so that its free with
    /// [`Dirty::Prefix`] of [`Place::bytes`] has nothing to add. Nothing changes on an error.
    ///
    /// # Safety
    /// - Both are first bytes of different spans in use, the caller's, each at least `bytes` long.
    /// - What was written to the source lies within the bytes asked for, or was reported as dirty.
    pub unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), OutOfMemory> {
        if self.os.strict_commit() || self.moved_spans.load(Relaxed) >= MOST_MOVED {
            return Err(OutOfMemory);
        }
        // SAFETY: the caller's promise; spans in use are committed, different spans disjoint.
        let moved = unsafe { self.os.move_pages(from, to, bytes) };
        let mut locked = self.locked();
        locked.inner.counts.calls.move_pages += 1;
        moved?;
        if let (Some(source), Some(target)) = (locked.span_at(from), locked.span_at(to)) {
            // What came along is old data, whether its user wrote it or not.
            locked.note_writes(target, Dirty::Prefix(bytes));
            locked.note_moved(source, bytes);
            if !target.record().swap_moved(true) {
                self.moved_spans.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Maps a span afresh that pages were moved into; true if its bytes are all zero now. The lock is not
    /// held: giving pages back takes long, and the span is still the caller's.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, which nobody uses any more.
    pub(super) unsafe fn renew_if_moved(&self, base: NonNull<u8>) -> bool {
        let Some(place) = self.moved_at(base) else {
            return false;
        };
        // SAFETY: the caller's promise; a span in use is committed.
        let renewed = unsafe { self.os.renew(base, place.slices() * SLICE_BYTES) }.is_ok();
        if renewed && place.record().swap_moved(false) {
            self.moved_spans.fetch_sub(1, Relaxed);
        }
        renewed
    }

    /// Maps the end of a span afresh, beyond its first `kept` slices, if pages were moved into it.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, of which nobody uses that end any more.
    pub(super) unsafe fn renew_end_if_moved(&self, base: NonNull<u8>, kept: usize) {
        let Some(place) = self.moved_at(base) else {
            return;
        };
        let given = place.slices().saturating_sub(kept) * SLICE_BYTES;
        if given > 0 {
            // If the kernel refuses, the mapping stays apart; the end counts as maybe dirty either way.
            // SAFETY: the caller's promise; the end lies in the span.
            let _ = unsafe { self.os.renew(base.add(kept * SLICE_BYTES), given) };
        }
    }

    /// Notes that the range was mapped anew by somebody else: spans in use that it touches are no longer what
    /// the kernel says of anonymous memory, and are mapped afresh when they are freed. Outside of the arenas this
    /// costs a comparison for each.
    pub fn note_foreign(&self, address: usize, bytes: usize) {
        if self.locate(address).is_none() {
            return;
        }
        let locked = self.locked();
        let end = address.saturating_add(bytes);
        locked.for_each_record(|place, record| {
            let first = place.slice_base();
            let touched = first < end && address < first + record.slices.get() * SLICE_BYTES;
            if touched && matches!(record.state(), State::Used(_)) && !record.swap_moved(true) {
                self.moved_spans.fetch_add(1, Relaxed);
            }
        });
    }

    /// The span in use at `base`, if pages were moved into it.
    fn moved_at(&self, base: NonNull<u8>) -> Option<Place<'_>> {
        let place = self.locate(base.as_ptr() as usize)?;
        (place.use_().is_some() && place.record().is_moved()).then_some(place)
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// The first `bytes` bytes of a span in use read as zero; the rest of what was asked for does not.
    fn note_moved(&mut self, place: Place<'h>, bytes: usize) {
        let asked = place.bytes();
        self.note_writes(place, Dirty::Prefix(asked));
        let record = place.record();
        self.spell_out(record);
        let cleared =
            place
                .arena
                .clear_prefix(place.index, record.end(), bytes / self.page_bytes());
        record.dirty.set(record.dirty.get() - cleared);
        self.set_bytes(place, 0);
    }
}
