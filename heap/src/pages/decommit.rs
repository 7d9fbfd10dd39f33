//! How commit goes back to the kernel, where the kernel charges it: under strict overcommit, and
//! under a limit on writable memory. Whole huge pages of free spans are uncommitted, so that
//! mappings stay few.

use super::arena::{Arena, Commit};
use super::heap::{Locked, PageHeap};
use super::span::{Record, State};
use super::want::Age;
use crate::base::units::{HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory, Purged};
use core::ops::Range;
use core::ptr::NonNull;

/// Most huge pages that one call uncommits (8 MiB).
const MOST_UNITS: usize = 4;

/// Where a walk over free spans stands.
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
    pub(super) fn uncommit_part(&self, part: &Record) -> Result<usize, OutOfMemory> {
        let arena = &self.arenas()[part.arena()];
        let (from, to) = (part.index.get(), part.end());
        self.calls.note_uncommit();
        let start = NonNull::new(arena.layout().address(from) as *mut u8).ok_or(OutOfMemory)?;
        // SAFETY: slices of a free span, in one arena, set aside, so no thread uses them.
        unsafe { self.os.uncommit(start, (to - from) * SLICE_BYTES)? };
        let mut locked = self.locked();
        let returned = arena.note(from, to, Commit::No);
        locked.inner.counts.committed_slices -= returned;
        locked.count_returned(returned * SLICE_BYTES);
        locked.return_part(part, to, Purged::Zero);
        Ok(returned * SLICE_BYTES)
    }

    /// Uncommits the whole huge pages of free spans, but for what the program locked. Returns how
    /// many bytes of commit went back: none where the kernel charges no commit, for then its
    /// refusal was not about what is committed.
    pub(super) fn relinquish(&self) -> usize {
        if !self.os.strict_commit() && self.os.data_limit().is_none() {
            return 0;
        }
        let (mut bytes, mut cursor) = (0, Cursor::default());
        self.locked().give_up_units();
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
}

impl<'h, O: Os> Locked<'h, O> {
    /// Sets whole huge pages aside that are free and committed, at the cursor or beyond it.
    fn next_committed(&mut self, cursor: &mut Cursor) -> Option<&'h Record> {
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
    fn committed_at(&mut self, arena: &'h Arena, cursor: &mut Cursor) -> Option<&'h Record> {
        let span = arena.record(cursor.index);
        if span.state() != State::Free || span.is_huge() {
            return None;
        }
        let from = cursor.from.clamp(cursor.index, span.end());
        let (from, to) = committed_units(arena, from..span.end())?;
        cursor.from = to;
        self.spell_out(span);
        Some(self.set_aside(span, from, to - from))
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
