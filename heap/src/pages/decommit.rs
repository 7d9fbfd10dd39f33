//! Whole huge pages of free spans: uncommitted, and split.
//!
//! Where the kernel charges commit (strict overcommit, or a limit on writable memory), free memory
//! is also uncommitted, in whole huge pages, so that mappings stay few. A unit of huge pages
//! ([`super::huge`]) is split before any page of it is purged.

use super::arena::{Arena, Commit, SliceRef};
use super::heap::{Locked, PageHeap};
use super::huge::{Policy, mark};
use super::span::{Age, SpanRecord, State};
use super::zero_state::Dirty;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Huge, Os, OutOfMemory};
use core::ops::Range;
use core::ptr::NonNull;

/// Most huge pages that one call uncommits (8 MiB).
const MOST_UNITS: usize = 4;

/// Most bytes that an edge of a purged range may take the advice from huge pages along with it.
const MOST_EDGE: usize = 16 << 20;

/// How far a walk over free spans has come.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    arena: usize,
    /// The slice where the span begins, or 0: where the arena's first does.
    index: usize,
    /// The slices of the span below this one were looked at.
    from: usize,
}

impl<O: Os> PageHeap<O> {
    /// Uncommits a part that was set aside, then puts it back. Returns how many bytes of commit
    /// went back; when the kernel refuses, the part stays set aside.
    pub(super) fn uncommit_part(&self, part: &SpanRecord) -> Result<usize, OutOfMemory> {
        let arena = &self.arenas()[part.arena()];
        let (from, to) = (part.index.get(), part.end());
        let start = NonNull::new(arena.layout().address(from) as *mut u8).ok_or(OutOfMemory)?;
        // SAFETY: slices of a free span, in one arena, set aside, so no thread uses them.
        unsafe { self.map_afresh(start, (to - from) * SLICE_BYTES, Commit::No) }
            .map_err(|_| OutOfMemory)?;
        let mut locked = self.locked();
        let returned = arena.set_commit(from, to, Commit::No);
        locked.inner.counts.committed_slices -= returned;
        locked.count_returned(returned * SLICE_BYTES);
        arena.clear_dirty(from, to);
        locked.return_part(part, to);
        Ok(returned * SLICE_BYTES)
    }

    /// For a request for `slices` slices that found no room: makes clean units room for it, and
    /// where the kernel charges commit, uncommits the whole huge pages of free spans, except those
    /// that the program locked. Returns how many bytes are room or went back.
    pub(super) fn decommit_free(&self, slices: usize) -> usize {
        let is_charged = self.os.strict_commit() || self.os.data_limit().is_some();
        // Splits no unit in vain, because later slabs could use its huge pages.
        if !is_charged && slices > self.locked().inner.counts.free_slices {
            return 0;
        }
        let mut bytes = self.locked().split_untouched_units();
        if !is_charged {
            return bytes;
        }
        let mut cursor = Cursor::default();
        while !self.os.is_locked() {
            let _alone = self.purging.lock();
            let part = self.locked().next_committed(&mut cursor);
            let Some(part) = part else { break };
            match self.uncommit_part(part) {
                Ok(more) => bytes += more,
                Err(OutOfMemory) => drop(self.locked().put_back(part, Age::New)),
            }
        }
        bytes
    }

    /// If the slice is in a unit, makes the unit an ordinary part of the arena. Every free page of
    /// it counts as dirty from then on, because a fault in one page made the whole huge page
    /// resident. The lock is not held while the kernel splits the huge page; meanwhile spans of the
    /// unit may be taken and freed.
    pub(super) fn split_unit(&self, place: SliceRef<'_>) {
        if !place.record().is_huge() {
            return;
        }
        let (arena, from) = (place.arena, place.index / HUGE_SLICES * HUGE_SLICES);
        let start = arena.layout().address(from);
        let unit = start..start + HUGE_BYTES;
        let mut locked = self.locked();
        let told = (locked.split_units()).include(unit.clone(), arena.layout().range(), usize::MAX);
        drop(locked);
        // Told even where it was told before, because it may since have been asked for huge pages.
        self.advise(told.unwrap_or(unit.clone()), Huge::Avoid);
        self.advise(unit, Huge::Split);
        self.locked().make_ordinary(arena, from, Dirty::All);
    }

    /// Where the kernel uses huge pages everywhere: asks for none at the edges of a range that was
    /// purged. Else the kernel would make the pages there resident again, unasked, together with
    /// those beyond the edge. Where that would take the advice from far more than an edge, there is
    /// none.
    pub(super) fn keep_ordinary(&self, arena: &Arena, range: Range<usize>) {
        if !self.os.has_huge_everywhere() || self.huge_policy() == Policy::Always {
            return;
        }
        for edge in [range.start, range.end] {
            let start = edge / HUGE_BYTES * HUGE_BYTES;
            let all = arena.layout().range();
            if start == edge || !all.contains(&start) {
                continue;
            }
            let unit = start..start + HUGE_BYTES;
            let told = self.locked().split_units().include(unit, all, MOST_EDGE);
            let Some(told) = told else { continue };
            // What the arena claims and has not mapped may be the program's.
            for mapped in arena.mapped() {
                let range = told.start.max(mapped.start)..told.end.min(mapped.end);
                if !range.is_empty() {
                    self.advise(range, Huge::Avoid);
                }
            }
        }
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// Sets whole huge pages aside that are free and committed, at the cursor or beyond it.
    fn next_committed(&mut self, cursor: &mut Cursor) -> Option<&'h SpanRecord> {
        while let Some(arena) = self.heap.arenas().get(cursor.arena) {
            cursor.index = cursor.index.max(arena.layout().head);
            while cursor.index < arena.frontier() {
                if let Some(part) = self.committed_at(arena, cursor) {
                    return Some(part);
                }
                // Within a span that grew at its front meanwhile, records are blank.
                let span = arena.record(cursor.index);
                cursor.index = match span.state() {
                    State::Blank => cursor.index + 1,
                    _ => span.end(),
                };
            }
            cursor.arena += 1;
            cursor.index = 0;
        }
        None
    }

    /// The same in the span that begins at the cursor.
    fn committed_at(&mut self, arena: &'h Arena, cursor: &mut Cursor) -> Option<&'h SpanRecord> {
        let span = arena.record(cursor.index);
        if span.state() != State::Free || span.is_huge() {
            return None;
        }
        let from = cursor.from.clamp(cursor.index, span.end());
        let (from, to) = committed_units(arena, from..span.end())?;
        cursor.from = to;
        arena.write_masks(span);
        Some(self.set_aside(span, from, to - from))
    }

    /// Makes units that are all free and clean ordinary again. Returns how many bytes they have.
    fn split_untouched_units(&mut self) -> usize {
        let mut bytes = 0;
        for arena in self.heap.arenas() {
            let mut index = arena.layout().head;
            while index < arena.frontier() {
                let span = arena.record(index);
                let end = span.end();
                let is_whole = span.slices.get() == HUGE_SLICES && span.dirty.get() == 0;
                if span.state() == State::Free && span.is_huge() && is_whole {
                    self.make_ordinary(arena, index, Dirty::AsBefore);
                    bytes += HUGE_BYTES;
                }
                index = end;
            }
        }
        bytes
    }

    /// Makes the unit at slice `from` an ordinary part of the arena, if it is one. Free spans in it
    /// that are dirty count as old from now on.
    #[inline(never)]
    fn make_ordinary(&mut self, arena: &'h Arena, from: usize, dirty: Dirty) {
        if !arena.record(from).is_huge() {
            return;
        }
        mark(arena, from, Huge::Avoid);
        let mut index = from;
        while index < from + HUGE_SLICES {
            let span = arena.record(index);
            index = span.end();
            if span.state() == State::Free {
                self.detach(span);
                self.unqueue(span);
                span.set_state(State::Blank);
                arena.note_writes(span, dirty);
                span.know_clean(0);
                self.add_free(span, Age::Old);
            }
        }
    }
}

/// The first whole huge pages among free slices that are committed at least in part, as slices: at
/// most [`MOST_UNITS`] of them.
pub(super) fn committed_units(arena: &Arena, slices: Range<usize>) -> Option<(usize, usize)> {
    // An arena's base is a multiple of a huge page, so slice numbers tell the boundaries.
    let end = slices.end / HUGE_SLICES * HUGE_SLICES;
    let first = slices.start.next_multiple_of(HUGE_SLICES);
    if first >= end {
        return None;
    }
    let from = arena.find(first, end, Commit::Yes) / HUGE_SLICES * HUGE_SLICES;
    if from >= end {
        return None;
    }
    let most = end.min(from + MOST_UNITS * HUGE_SLICES);
    let to = arena
        .find(from, most, Commit::No)
        .next_multiple_of(HUGE_SLICES);
    Some((from, to.clamp(from + HUGE_SLICES, most)))
}
