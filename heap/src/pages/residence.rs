//! Which OS pages of the arenas are in RAM, slice by slice: what a ledger needs to tell every
//! byte's place.

use super::arena::{MAX_ARENAS, SliceRef};
use super::heap::PageHeap;
use super::span::{SpanRecord, State, Use, ZeroState};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_SLICES, SLICE_BYTES, SLICE_SHIFT};
use crate::os::{Backing, Os, Populated};
use core::ptr::NonNull;

/// OS pages of one slice, the lowest page in the lowest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Pages {
    /// In RAM.
    pub resident: u16,
    /// Swapped out.
    pub swapped: u16,
}

/// What a slice is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The tables at the head of an arena.
    Tables,
    /// A span in use; the slice's number in it.
    Used(Use, usize),
    /// A free span, or a piece of one on its way to the kernel; its pages that may hold old data.
    Free(u16),
    /// Beyond all spans.
    Beyond,
}

/// The kernel's answer about all arenas, at one moment. Holds memory of its own, outside of the
/// arenas.
#[derive(Debug)]
pub struct Residence<'h, O: Os> {
    heap: &'h PageHeap<O>,
    /// One entry a slice, arena by arena; `None` if there was no memory for it or the kernel did
    /// not tell.
    table: Option<NonNull<Pages>>,
    bytes: usize,
    /// How many slices of each arena are in the table.
    covered: [u32; MAX_ARENAS],
}

impl<O: Os> PageHeap<O> {
    /// Asks the kernel which pages are in RAM. Takes no lock.
    pub fn residence(&self) -> Residence<'_, O> {
        // Filled in place, for it is large and the caller's stack may be small.
        let mut residence = Residence {
            heap: self,
            table: None,
            bytes: 0,
            covered: [0; MAX_ARENAS],
        };
        let mut slices = 0;
        for (covered, arena) in residence.covered.iter_mut().zip(self.arenas()) {
            let end = arena.frontier().next_multiple_of(HUGE_SLICES);
            *covered = end.min(arena.end()) as u32;
            slices += *covered as usize;
        }
        residence.bytes = (slices * size_of::<Pages>()).next_multiple_of(self.os.page_bytes());
        residence.table = residence.room();
        if residence.table.is_some() && !residence.ask() {
            residence.give_up();
        }
        residence
    }
}

impl<O: Os> Residence<'_, O> {
    /// Whether the kernel told.
    pub fn is_known(&self) -> bool {
        self.table.is_some()
    }

    /// The pages of a slice; `None` if the kernel did not tell.
    pub fn pages(&self, place: &SliceRef<'_>) -> Option<Pages> {
        let arena = self.number_of(place)?;
        let index = self.index(arena, place.index)?;
        // SAFETY: within the table, which is written before any reader sees it.
        self.table
            .map(|table| unsafe { table.add(index).as_ptr().read() })
    }

    /// Calls `visit` with every slice of every arena, in order, and what it is part of. Takes no
    /// lock: what changes meanwhile is seen as it was or as it is.
    pub fn for_each_slice(&self, mut visit: impl FnMut(SliceRef<'_>, Part)) {
        for (arena, &covered) in self.heap.arenas().iter().zip(&self.covered) {
            let head = arena.layout().head;
            let tables = (0..head).map(|index| (index, Part::Tables));
            tables.for_each(|(index, part)| visit(SliceRef { arena, index }, part));
            let mut index = head;
            while index < covered as usize {
                index = part_of(SliceRef { arena, index }, covered as usize, &mut visit);
            }
        }
    }

    /// The first slice of the span that a slice in use is the `index`th of.
    pub fn first_of<'p>(&self, place: &SliceRef<'p>, index: usize) -> SliceRef<'p> {
        SliceRef {
            arena: place.arena,
            index: place.index - index,
        }
    }

    fn number_of(&self, place: &SliceRef<'_>) -> Option<usize> {
        self.heap
            .arenas()
            .iter()
            .position(|arena| core::ptr::eq(arena, place.arena))
    }

    fn index(&self, arena: usize, slice: usize) -> Option<usize> {
        let before: usize = self.covered[..arena].iter().map(|&n| n as usize).sum();
        (slice < self.covered[arena] as usize).then_some(before + slice)
    }

    fn room(&self) -> Option<NonNull<Pages>> {
        let os = &self.heap.os;
        let base = os.reserve(self.bytes.max(os.page_bytes()), os.page_bytes())?;
        // SAFETY: a reservation of our own, all of it.
        if unsafe { os.commit(base, self.bytes.max(os.page_bytes())) }.is_err() {
            // SAFETY: the reservation, which no thread uses.
            unsafe { os.unmap(base, self.bytes.max(os.page_bytes())) };
            return None;
        }
        Some(base.cast())
    }

    fn ask(&mut self) -> bool {
        (0..self.heap.arenas().len()).all(|arena| self.ask_about(arena))
    }

    fn ask_about(&mut self, number: usize) -> bool {
        let layout = *self.heap.arenas()[number].layout();
        let end = layout.base + ((self.covered[number] as usize) << SLICE_SHIFT);
        // Between the tags and the groups nothing is committed, and what stands there may be
        // another's mapping.
        let (tags, groups) = self.heap.arenas()[number].tables();
        let (heap, page) = (self.heap, layout.page_bytes());
        let mut visit = |run: Populated| {
            let first = (run.start - layout.base) / page;
            self.note(number, first..first + run.bytes / page, &run.backing, page);
        };
        [(layout.base, tags), (groups, end)]
            .into_iter()
            .all(|(from, to)| {
                let Some(start) = NonNull::new(from as *mut u8).filter(|_| from < to) else {
                    return true;
                };
                // SAFETY: tables, or spans; pages of an arena that are only reserved are not
                // populated.
                unsafe { heap.os.populated(start, to - from, &mut visit) }.is_ok()
            })
    }

    /// Notes a run of pages, by their numbers in the arena.
    fn note(&mut self, arena: usize, run: core::ops::Range<usize>, backing: &Backing, page: usize) {
        let per_slice = SLICE_BYTES / page;
        let mut at = run.start;
        while at < run.end {
            let end = run.end.min((at / per_slice + 1) * per_slice);
            let bits = (u16::MAX >> (16 - (end - at))) << (at % per_slice);
            if let (Some(table), Some(index)) = (self.table, self.index(arena, at / per_slice)) {
                // SAFETY: an entry of the table, which only this thread has.
                let entry = unsafe { table.add(index).as_mut() };
                match backing {
                    Backing::Swap => entry.swapped |= bits,
                    Backing::Ram | Backing::HugePage | Backing::Shared => entry.resident |= bits,
                }
            }
            at = end;
        }
    }

    fn give_up(&mut self) {
        if let Some(table) = self.table.take() {
            let bytes = self.bytes.max(self.heap.os.page_bytes());
            // SAFETY: the reservation of `room`, which is this value's own.
            unsafe { self.heap.os.unmap(table.cast(), bytes) };
        }
    }
}

impl<O: Os> Drop for Residence<'_, O> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<O: Os> PageHeap<O> {
    /// Calls `visit` with the first slice of every span in use. Takes no lock: what changes
    /// meanwhile is seen as it was or as it is.
    pub fn for_each_used(&self, mut visit: impl FnMut(SliceRef<'_>, Use)) {
        for arena in self.arenas() {
            let (mut index, end) = (arena.layout().head, arena.frontier());
            while index < end {
                let record = arena.record(index);
                if let State::Used(use_) = record.state() {
                    visit(SliceRef { arena, index }, use_);
                }
                index += slices_of(record);
            }
        }
    }
}

/// How many slices the span has that starts with this record, or may have started before.
fn slices_of(record: &SpanRecord) -> usize {
    match record.state() {
        State::Blank => 1,
        _ => record.slices.get().max(1),
    }
}

/// Visits the slices of the span that starts at `place`; returns the index of the first slice after
/// it.
fn part_of(place: SliceRef<'_>, end: usize, visit: &mut impl FnMut(SliceRef<'_>, Part)) -> usize {
    let (arena, first) = (place.arena, place.index);
    if first >= arena.frontier() {
        visit(place, Part::Beyond);
        return first + 1;
    }
    let record = arena.record(first);
    let after = (first + slices_of(record)).min(end).min(arena.frontier());
    let all_dirty = record.zero_state() == ZeroState::AllDirty;
    let is_large = record.state() == State::Used(Use::Large);
    let is_cached = is_large && place.tag() == 0 && record.bytes() > 0 && !record.is_overmapped();
    for index in first..after {
        let part = match record.state() {
            _ if is_cached => Part::Free(arena.layout().full_mask()),
            State::Used(use_) => Part::Used(use_, index - first),
            _ if all_dirty => Part::Free(arena.layout().full_mask()),
            _ => Part::Free(arena.mask(index).load(Relaxed)),
        };
        visit(SliceRef { arena, index }, part);
    }
    after.max(first + 1)
}
