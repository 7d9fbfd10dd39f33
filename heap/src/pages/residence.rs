//! Which OS pages of the arenas are in RAM, slice by slice: what a ledger needs to tell every
//! byte's place.

use super::arena::{Arena, MAX_ARENAS, SliceRef, pointer};
use super::heap::PageHeap;
use super::span::{State, Use};
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
    /// One entry a slice, arena by arena; empty if there was no memory for it or the kernel did not
    /// tell. A reservation of its own.
    table: &'static mut [Pages],
    /// How many slices of each arena are in the table.
    covered: [u32; MAX_ARENAS],
}

impl<O: Os> PageHeap<O> {
    /// Asks the kernel which pages are in RAM. Takes no lock.
    pub fn residence(&self) -> Residence<'_, O> {
        // Filled in place, for it is large and the caller's stack may be small.
        let mut residence = Residence {
            heap: self,
            table: &mut [],
            covered: [0; MAX_ARENAS],
        };
        for (covered, arena) in residence.covered.iter_mut().zip(self.arenas()) {
            let end = arena.frontier.get().next_multiple_of(HUGE_SLICES);
            *covered = end.min(arena.end.get()) as u32;
        }
        residence.table = residence.room().unwrap_or_default();
        let mut arenas = 0..self.arenas().len();
        if residence.is_known() && !arenas.all(|arena| residence.ask_about(arena)) {
            residence.give_up();
        }
        residence
    }
}

impl<O: Os> Residence<'_, O> {
    /// Whether the kernel told.
    pub fn is_known(&self) -> bool {
        !self.table.is_empty()
    }

    /// The pages of a slice; `None` if the kernel did not tell.
    pub fn pages(&self, place: &SliceRef<'_>) -> Option<Pages> {
        let is_here = |arena: &Arena| core::ptr::eq(arena, place.arena);
        let arena = self.heap.arenas().iter().position(is_here)?;
        self.table.get(self.index(arena, place.index)?).copied()
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

    fn index(&self, arena: usize, slice: usize) -> Option<usize> {
        let before: usize = self.covered[..arena].iter().map(|&n| n as usize).sum();
        (slice < self.covered[arena] as usize).then_some(before + slice)
    }

    fn room(&self) -> Option<&'static mut [Pages]> {
        let (os, page) = (&self.heap.os, self.heap.os.page_bytes());
        let slices: usize = self.covered.iter().map(|&n| n as usize).sum();
        let bytes = (slices * size_of::<Pages>())
            .next_multiple_of(page)
            .max(page);
        let base = os.reserve(bytes, page)?;
        // SAFETY: all of a new reservation, which reads as zero, and which no other code uses.
        unsafe {
            if os.commit(base, bytes).is_err() {
                os.unmap(base, bytes);
                return None;
            }
            let entries = bytes / size_of::<Pages>();
            Some(core::slice::from_raw_parts_mut(
                base.cast().as_ptr(),
                entries,
            ))
        }
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
                // SAFETY: tables, or spans; pages of an arena that are only reserved are not
                // populated.
                from >= to
                    || unsafe { heap.os.populated(pointer(from), to - from, &mut visit) }.is_ok()
            })
    }

    /// Notes a run of pages, by their numbers in the arena.
    fn note(&mut self, arena: usize, run: core::ops::Range<usize>, backing: &Backing, page: usize) {
        let per_slice = SLICE_BYTES / page;
        let mut at = run.start;
        while at < run.end {
            let end = run.end.min((at / per_slice + 1) * per_slice);
            let bits = (u16::MAX >> (16 - (end - at))) << (at % per_slice);
            let index = self.index(arena, at / per_slice);
            if let Some(entry) = index.and_then(|index| self.table.get_mut(index)) {
                match backing {
                    Backing::Swap => entry.swapped |= bits,
                    Backing::Ram | Backing::HugePage | Backing::Shared => entry.resident |= bits,
                }
            }
            at = end;
        }
    }

    fn give_up(&mut self) {
        let table = core::mem::take(&mut self.table);
        if let Some(first) = table.first_mut() {
            let (start, bytes) = (NonNull::from(first).cast(), size_of_val(table));
            // SAFETY: the reservation of `room`, which is this value's own.
            unsafe { self.heap.os.unmap(start, bytes) };
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
            for place in arena.spans(arena.layout().head, arena.frontier.get()) {
                if let State::Used(use_) = place.record().state() {
                    visit(place, use_);
                }
            }
        }
    }
}

/// Visits the slices of the span that starts at `place`; returns the index of the first slice after
/// it.
fn part_of(place: SliceRef<'_>, end: usize, visit: &mut impl FnMut(SliceRef<'_>, Part)) -> usize {
    let (arena, first) = (place.arena, place.index);
    if first >= arena.frontier.get() {
        visit(place, Part::Beyond);
        return first + 1;
    }
    let record = arena.record(first);
    let after = (first + record.length()).min(end).min(arena.frontier.get());
    let all_dirty = record.all_dirty.get();
    let is_large = record.state() == State::Used(Use::Large);
    let is_cached =
        is_large && place.tag() == 0 && record.bytes() > 0 && !record.is_overmapped.get();
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
