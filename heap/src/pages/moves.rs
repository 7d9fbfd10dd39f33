//! Moving pages from span to span, and what it costs in mappings.
//!
//! Pages that the kernel moved keep the offset of the place they come from, so their mapping cannot
//! merge with its neighbours: each move takes up to two more of `vm.max_map_count`. So spans that
//! pages were moved into are marked and counted, at most [`MOST_MOVED`] at once, and mapped afresh
//! when they are freed: that gives their pages back to the kernel and lets the mappings merge
//! again. Spans that the program mapped something over are marked in the same way. Where every
//! commit is charged nothing is moved, for there mapping afresh may be refused.

use super::heap::{Locked, PageHeap};
use super::place::Place;
use super::span::State;
use super::zero_state::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::{Os, RemapError};
use core::ptr::NonNull;

/// Most spans in use with moved pages: an eighth of the default `vm.max_map_count`.
const MOST_MOVED: usize = 4096;

impl<O: Os> PageHeap<O> {
    /// Moves the pages of the first `bytes` bytes (a multiple of the OS page) from one span to
    /// another without copying. The source then reads as zero there and counts as asked for 0
    /// bytes, so that its free with [`Dirty::Prefix`] of [`Place::bytes`] has nothing to add.
    /// Nothing changes on an error, but a target that is [`RemapError::Lost`] stays in use for
    /// good.
    ///
    /// # Safety
    /// - Both are first bytes of different spans in use, the caller's, each at least `bytes` long.
    /// - What was written to the source lies within the bytes asked for, or was reported as dirty.
    pub unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), RemapError> {
        let foreign = |at: NonNull<u8>| {
            let place = self.locate(at.as_ptr() as usize);
            place.is_some_and(|place| place.record().is_foreign())
        };
        let too_many = self.moved_spans.load(Relaxed) >= MOST_MOVED;
        // What is moved leaves pages behind that are absent, and no longer locked.
        let keeps = self.os.is_locked() || self.os.strict_commit();
        if keeps || too_many || foreign(from) {
            return Err(RemapError::Refused);
        }
        // SAFETY: the caller's promise; spans in use are committed, different spans disjoint.
        let moved = unsafe { self.os.move_pages(from, to, bytes) };
        self.calls.note_move();
        moved?;
        let mut locked = self.locked();
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

    /// Maps a span afresh that pages were moved into, or that the program mapped over. The lock is
    /// not held: giving pages back takes long, and the span is still the caller's.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and no thread uses what is beyond the first
    ///   `kept` slices any more.
    pub(super) unsafe fn renew_from(&self, base: NonNull<u8>, kept: usize) -> Renewal {
        let Some(place) = self.locate(base.as_ptr() as usize) else {
            return Renewal::NoNeed;
        };
        let (record, slices) = (place.record(), place.slices());
        if slices <= kept || !(record.is_moved() || record.is_foreign()) {
            return Renewal::NoNeed;
        }
        let bytes = (slices - kept) * SLICE_BYTES;
        // SAFETY: the caller's promise; a span in use is committed.
        let renewed = unsafe { self.os.renew(base.add(kept * SLICE_BYTES), bytes) };
        if renewed == Err(RemapError::Lost) {
            return Renewal::Refused;
        }
        let renewed = renewed.is_ok();
        if renewed {
            // SAFETY: mapped afresh just now, and the caller's promise.
            unsafe { self.advise_mapping(base.add(kept * SLICE_BYTES), bytes) };
        }
        if !renewed && record.is_foreign() {
            return Renewal::Refused;
        }
        if renewed && kept == 0 {
            record.set_foreign(false);
            if record.swap_moved(false) {
                self.moved_spans.fetch_sub(1, Relaxed);
            }
        }
        // Moved pages that could not be mapped afresh are memory of ours all the same.
        if renewed {
            Renewal::Zero
        } else {
            Renewal::NoNeed
        }
    }

    /// Notes that the program mapped a range anew, or that another process fills it: the spans in
    /// use that it touches, which are the caller's, are no longer what the kernel says of anonymous
    /// memory, and are mapped afresh when they are freed. Takes no lock. Outside of the arenas it
    /// costs a comparison for each of them.
    pub fn note_foreign(&self, address: usize, bytes: usize) {
        let Some(place) = self.locate(address) else {
            return;
        };
        let arena = place.arena;
        let (head, frontier) = (arena.layout().head, arena.frontier());
        let starts_span = |index: &usize| arena.record(*index).state() != State::Blank;
        let inside = head..=place.index.min(frontier.saturating_sub(1));
        let Some(mut index) = inside.rev().find(starts_span) else {
            return;
        };
        while index < frontier && arena.layout().address(index) < address.saturating_add(bytes) {
            let record = arena.record(index);
            if matches!(record.state(), State::Used(_)) {
                record.set_foreign(true);
            }
            index = record.end().max(index + 1);
        }
    }
}

/// What came of mapping a span afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is what it was.
    NoNeed,
    /// It reads as zero.
    Zero,
    /// The kernel refused, and what is mapped there is not the heap's: no one may have the span.
    Refused,
}

impl<'h, O: Os> Locked<'h, O> {
    /// The first `bytes` bytes of a span in use read as zero; the rest of what was asked for does
    /// not.
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
