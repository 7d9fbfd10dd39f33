//! Spans that are mapped afresh: those that the kernel moved pages into, and those that the program
//! mapped something over.
//!
//! Pages that the kernel moved keep the offset of the place they come from, so their mapping cannot
//! merge with its neighbours: each move takes up to two more of `vm.max_map_count`, and more where
//! the pages come from several mappings. So spans that pages were moved into are marked and
//! counted, at most [`MOST_MOVED`] at once. When the program frees such a span, Neap maps it
//! afresh, which gives its pages back to the kernel and lets the mappings merge again. When one
//! becomes shorter, Neap maps afresh only the part that pages were moved to. Spans that the program
//! mapped something over are marked in the same way. Where every commit is charged, Neap moves
//! nothing, because the kernel may refuse the new mapping.
//!
//! When spans are freed of which the program touched few pages, Neap asks the kernel which pages
//! are populated. Only these count as dirty from then on. One query covers neighbouring spans,
//! because a query costs ten times as much as one more span in it.

use super::arena::{Arena, Commit, SliceRef, pointer};
use super::heap::{Locked, PageHeap};
use super::span::{Age, State, Use};
use super::zero_state::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{SLICE_BYTES, slices_for};
use crate::os::{Os, OutOfMemory, Populated, RemapError, Unknown};
use core::ptr::NonNull;

/// Most spans in use with moved pages: an eighth of the default `vm.max_map_count`.
const MOST_MOVED: usize = 4096;

/// Most mappings whose pages move together. Each time that a span grows in place after a move, it
/// has one mapping more at its next move.
pub const MOST_PIECES: usize = 32;

/// A block may have one mapping for each `PIECE_BYTES` bytes. Finding and moving a mapping takes as
/// long as copying this many bytes to resident pages.
const PIECE_BYTES: usize = 1 << 20;

/// With fewer spans in use that have moved pages, a span may have [`MOST_PIECES`] mappings.
/// Together these are a quarter of the default `vm.max_map_count`.
const FEW_MOVED: usize = 512;

impl<O: Os> PageHeap<O> {
    /// Moves the pages of the first `bytes` bytes (a multiple of the OS page) from one span to
    /// another without copying. The source then reads as zero there and counts as asked for 0
    /// bytes, so that its free with [`Dirty::Prefix`] of [`SliceRef::bytes`] has nothing to add.
    /// Nothing changes on an error, but a target that is [`RemapError::Lost`] stays in use for
    /// good.
    ///
    /// # Safety
    /// - Both are first bytes of different spans in use, the caller's, each at least `bytes` long.
    /// - No page of the source is a guard, or `most_pieces` is 1, because the pieces that were
    ///   moved are copied back if a later one is refused.
    /// - What was written to the source lies within the requested bytes, or was reported as dirty.
    pub unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
        most_pieces: usize,
    ) -> Result<(), RemapError> {
        let (Some(source), Some(target)) = (self.span_at(from), self.span_at(to)) else {
            return Err(RemapError::Refused);
        };
        let moved_spans = self.moved_spans.load(Relaxed);
        let most_pieces = match moved_spans < FEW_MOVED {
            true => (bytes / PIECE_BYTES).clamp(1, most_pieces),
            false => 1,
        };
        // What is moved leaves pages behind that are absent, and no longer locked.
        let keeps = self.os.is_locked() || self.os.strict_commit();
        if keeps || moved_spans >= MOST_MOVED || source.record().is_overmapped.get() {
            return Err(RemapError::Refused);
        }
        // A move takes the page after the source for a moment, if nothing is mapped there.
        let arena = source.arena;
        let is_last = from.as_ptr().addr() + bytes == arena.layout().address(arena.end.get());
        let not_growing = is_last.then(|| self.committing.lock());
        // SAFETY: the caller's promise; spans in use are committed, different spans disjoint.
        let moved = unsafe { self.os.move_pages(from, to, bytes, most_pieces) };
        drop(not_growing);
        // Where a later piece was refused, the earlier ones left their mappings in the target.
        let may_be_parted = moved.is_ok() || moved == Err(RemapError::Refused) && most_pieces > 1;
        if moved != Err(RemapError::Lost) {
            // A mapping of the source's, or a new one: the kernel may have unmapped it before it
            // refused.
            self.advise_mapping(to.as_ptr().addr()..to.as_ptr().addr() + bytes);
        }
        // SAFETY: a span in use: the caller's promise.
        if may_be_parted && unsafe { target.record().swap_moved(slices_for(bytes)) } == 0 {
            self.moved_spans.fetch_add(1, Relaxed);
        }
        moved?;
        let mut locked = self.locked();
        // What came along is old data, whether its user wrote it or not.
        target
            .arena
            .note_writes(target.record(), Dirty::Prefix(bytes));
        locked.note_moved_away(source, bytes);
        Ok(())
    }

    /// Maps a span afresh that pages were moved into, or that the program mapped over. The lock is
    /// not held: giving pages back takes long, and the span is still the caller's.
    ///
    /// # Safety
    /// - `place` is the first slice of a span in use, and no thread uses what is beyond the first
    ///   `kept` slices any more.
    pub(super) unsafe fn renew_from(&self, place: SliceRef<'_>, kept: usize) -> Renewal {
        let (base, record) = (place.pointer(), place.record());
        let (moved, all) = (record.moved_slices(), record.slices.get());
        let is_whole = record.is_overmapped.get() || kept == 0 && moved > 0;
        let end = if is_whole { all } else { moved };
        if end <= kept {
            return Renewal::NoNeed;
        }
        let bytes = (end - kept) * SLICE_BYTES;
        self.keep_tail(record);
        // SAFETY: the caller's promise; a span in use is committed.
        match unsafe { self.map_afresh(base.add(kept * SLICE_BYTES), bytes, Commit::Yes) } {
            Ok(()) => {}
            // Moved pages are Neap's memory even where the kernel did not map them afresh.
            Err(RemapError::Refused) if !record.is_overmapped.get() => return Renewal::NoNeed,
            Err(RemapError::Refused | RemapError::Lost) => return Renewal::Refused,
        }
        // SAFETY: a span in use: the caller's promise.
        let before = unsafe { record.swap_moved(moved.min(kept)) };
        if kept == 0 {
            record.is_overmapped.set(false);
            self.moved_spans.fetch_sub(usize::from(before > 0), Relaxed);
        }
        Renewal::Zero
    }

    /// Maps pages of a span in use afresh, so that they are the heap's and read as zero. The span
    /// stays marked. False if the kernel refuses: then no one may have the pages.
    ///
    /// # Safety
    /// - Whole OS pages of one span in use, which no thread uses.
    pub unsafe fn renew_in_use(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise; a span in use is committed.
        unsafe { self.map_afresh(start, bytes, Commit::Yes) }.is_ok()
    }

    /// Replaces the mapping of a range, which then reads as zero, with or without its commit
    /// charge, and advises the kernel on the new mapping, as on the whole arena at its start. So
    /// does a renewal that failed after the kernel had unmapped the range.
    ///
    /// # Safety
    /// - The range lies in one reservation, and no thread uses it.
    /// - With [`Commit::Yes`], it is committed.
    pub(super) unsafe fn map_afresh(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        commit: Commit,
    ) -> Result<(), RemapError> {
        let mapped = match commit {
            // SAFETY: the caller's promise.
            Commit::Yes => unsafe { self.os.renew(start, bytes) },
            Commit::No => {
                // SAFETY: the caller's promise.
                let mapped = unsafe { self.os.uncommit(start, bytes) };
                mapped.map_err(|OutOfMemory| RemapError::Refused)
            }
        };
        if mapped != Err(RemapError::Lost) {
            self.advise_mapping(start.as_ptr().addr()..start.as_ptr().addr() + bytes);
        }
        mapped
    }

    /// Records that the program mapped a range anew, or that another process fills it. For the
    /// spans in use that it touches, which are the caller's, the kernel's answers about anonymous
    /// memory no longer hold, so they are mapped afresh when they are freed. Calls `visit` with
    /// each of them. Takes no lock. Outside of the arenas it costs a comparison for each of them.
    pub fn note_mapped_over(
        &self,
        address: usize,
        bytes: usize,
        mut visit: impl FnMut(SliceRef<'_>, Use),
    ) {
        let Some(place) = self.locate(address) else {
            return;
        };
        let arena = place.arena;
        let (head, frontier) = (arena.layout().head, arena.frontier.get());
        let starts_span = |index: &usize| arena.record(*index).state() != State::Blank;
        let inside = head..=place.index.min(frontier.saturating_sub(1));
        let Some(first) = inside.rev().find(starts_span) else {
            return;
        };
        let end = address.saturating_add(bytes);
        for place in arena.spans(first, frontier) {
            if place.slice_base() >= end {
                break;
            }
            if let State::Used(use_) = place.record().state() {
                place.record().is_overmapped.set(true);
                if use_ == Use::Stack {
                    self.maps_over_stacks.store(true, Relaxed);
                }
                visit(place, use_);
            }
        }
    }

    /// Whether the program mapped something over the stack whose span starts at `base`.
    #[inline]
    pub fn is_stack_mapped_over(&self, base: usize) -> bool {
        self.maps_over_stacks.load(Relaxed)
            && self.locate(base).is_some_and(|place| place.is_overmapped())
    }
}

/// The result of mapping a span afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is unchanged.
    NoNeed,
    /// It reads as zero.
    Zero,
    /// The kernel refused, and what is mapped there is not the heap's: no one may have the span.
    Refused,
}

impl<'h, O: Os> Locked<'h, O> {
    /// The first `bytes` bytes of a span in use read as zero; the rest of what was asked for does
    /// not.
    fn note_moved_away(&mut self, place: SliceRef<'h>, bytes: usize) {
        let record = place.record();
        let asked = record.bytes();
        place.arena.note_writes(record, Dirty::Prefix(asked));
        place.arena.write_masks(record);
        let (slices, pages) = (bytes / SLICE_BYTES, bytes % SLICE_BYTES / self.page_bytes());
        let whole = place.index + slices;
        let cleared =
            place.arena.clear_dirty(place.index, whole) + place.arena.clear_pages(whole, 0..pages);
        record.dirty.set(record.dirty.get() - cleared);
        self.set_bytes(record, 0);
        self.set_tail(record, 0);
    }
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
            let to = (from + (end - at) / SLICE_BYTES).min(arena.frontier.get());
            // SAFETY: the caller's promise.
            unsafe { self.query_range(arena, from, to) };
            let mut locked = self.locked();
            for place in arena.spans(from, to) {
                // A mapping of the program's that could not be taken away stays.
                if !place.record().is_overmapped.get() {
                    locked.free(place, Dirty::AsBefore, age);
                }
            }
            self.finish(locked);
            at = arena.layout().address(to);
        }
    }

    /// Sets the zero state of the spans in use in `from..to` to what is populated. Without the
    /// lock, because the zero state of a span in use belongs to its user, and the query takes long.
    ///
    /// # Safety
    /// - Whole spans, which no thread uses any more.
    unsafe fn query_range(&self, arena: &Arena, from: usize, to: usize) {
        for place in arena.spans(from, to) {
            // SAFETY: the caller's promise.
            let renewal = unsafe { self.renew_from(place, 0) };
            // The caller frees what is not overmapped. Only stacks come here, and no pages are
            // moved into them, so a refusal leaves the mark.
            debug_assert!(renewal != Renewal::Refused || place.record().is_overmapped.get());
            place.record().all_dirty.set(false);
        }
        arena.fill_masks(from, to, 0);
        let (start, page) = (arena.layout().address(from), arena.layout().page_bytes());
        let bytes = (to - from) * SLICE_BYTES;
        let mark = |at: usize, end: usize| {
            arena.mark_pages(from, (at - start) / page..(end - start).div_ceil(page))
        };
        let visit = |found: Populated| _ = mark(found.start, found.start + found.bytes);
        // SAFETY: the caller's promise: spans in use are committed.
        if let Err(Unknown { from }) = unsafe { self.os.populated(pointer(start), bytes, visit) } {
            mark(from, start + bytes);
        }
        for place in arena.spans(from, to) {
            let record = place.record();
            let dirty = arena.count_dirty(place.index, record.end());
            record.dirty.set(dirty);
        }
    }
}
