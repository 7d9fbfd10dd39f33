//! Huge pages, where a process fills them.
//!
//! The kernel makes a huge page resident in a sixth of the time of its 512 pages, and all of them
//! at once. So it is asked for them in *units* only: whole huge pages at the frontier that slabs
//! are carved from once the process has many slabs. These are filled from the lowest address on, so
//! at most the last one is part empty. Slices of a unit are marked one by one; the free ones that
//! were never touched go to slabs only, and merge with nothing beyond the unit. Before any page of
//! a unit is purged it is split, and an ordinary part of the arena for good: the kernel would keep
//! what is left of a huge page as a whole, and put back together what it was asked to take apart.
//!
//! Advice parts mappings, whose number is limited. So units are opened in batches that grow with
//! the slabs, and [`super::ended`] bounds the ranges in which they ended.

use super::Use;
use super::arena::Arena;
use super::commit::Stretch;
use super::heap::{Locked, PageHeap};
use super::place::Place;
use super::span::{Record, State};
use super::want::{Age, Density, Want};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Huge, Os};
use core::ops::Range;
use core::ptr::NonNull;

/// From this size of all slabs on, new slabs come from units: the last unit, part empty, is at most
/// a thirtieth of them.
const LEAST_SLAB_BYTES: usize = 64 << 20;

/// A batch of units is this part of all slabs ...
const BATCH_PART: usize = 8;
/// ... and at most this many units (128 MiB): their tables are touched at once.
const MOST_UNITS: usize = 64;

/// When slabs come from huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// In processes with many slabs.
    Auto = 0,
    /// Never.
    Never = 1,
    /// From the first slab on; and arenas as a whole may have huge pages.
    Always = 2,
}

impl<O: Os> PageHeap<O> {
    /// Sets when slabs come from huge pages. Arenas that exist stay as they are.
    pub fn set_huge(&self, policy: Policy) {
        self.huge.store(policy as u8, Relaxed);
    }

    /// Tells the kernel what the policy says of a new mapping as a whole: nothing by default.
    ///
    /// # Safety
    /// - The range is of one reservation, and no thread uses it.
    pub(super) unsafe fn advise_mapping(&self, base: NonNull<u8>, bytes: usize) {
        let advice = match self.huge_policy() {
            Policy::Auto => return,
            Policy::Never => Huge::Avoid,
            Policy::Always => Huge::Want,
        };
        // SAFETY: the caller's promise; the advice changes no contents.
        unsafe { self.os.advise_huge(base, bytes, advice) };
    }

    /// Asks the kernel for huge pages in a stretch of units.
    pub(super) fn advise_units(&self, stretch: &Stretch<'_>) {
        if stretch.units > 0 {
            let start = stretch.arena.layout().address(stretch.from);
            self.advise(start..start + stretch.units * HUGE_BYTES, Huge::Want);
        }
    }

    /// Makes the unit that a slice is in an ordinary part of the arena, if it is one. Free spans in
    /// it that were dirty count as old from now on. The lock is not held while the kernel splits
    /// the huge page; meanwhile the unit's spans come and go.
    pub(super) fn end_unit(&self, place: Place<'_>) {
        if !place.record().is_huge() {
            return;
        }
        let (arena, from) = (place.arena, place.index / HUGE_SLICES * HUGE_SLICES);
        let start = arena.layout().address(from);
        let unit = start..start + HUGE_BYTES;
        let told = self
            .locked()
            .ended()
            .include(unit.clone(), arena.layout().range());
        if let Some(range) = told {
            self.advise(range, Huge::Avoid);
        }
        self.advise(unit, Huge::Split);
        self.locked().make_ordinary(arena, from);
    }

    fn advise(&self, range: Range<usize>, advice: Huge) {
        if let Some(start) = NonNull::new(range.start as *mut u8) {
            // SAFETY: all callers name ranges of one arena, which is one reservation; advice
            // changes no contents.
            unsafe { self.os.advise_huge(start, range.len(), advice) };
        }
    }

    fn huge_policy(&self) -> Policy {
        match self.huge.load(Relaxed) {
            0 => Policy::Auto,
            1 => Policy::Never,
            _ => Policy::Always,
        }
    }
}

/// Whether two free neighbours may become one: they are of a kind, and not of two units.
pub(super) fn may_merge(before: &Record, after: &Record) -> bool {
    match (before.is_huge(), after.is_huge()) {
        (false, false) => true,
        (true, true) => !after.index.get().is_multiple_of(HUGE_SLICES),
        _ => false,
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// At most `most` units at the frontier of an arena for a request that suits them, if the
    /// policy has it so.
    pub(super) fn stretch_of_units(&self, want: &Want, most: usize) -> Option<Stretch<'h>> {
        let slabs = self.inner.counts.by_use[Use::Slab as usize - 1].slices * SLICE_BYTES;
        let wanted = match self.heap.huge_policy() {
            Policy::Auto => slabs >= LEAST_SLAB_BYTES,
            Policy::Never => false,
            Policy::Always => true,
        };
        let fits = want.density == Density::Dense && want.slices == 1 && want.align == 1;
        if !wanted || !fits || self.heap.os.strict_commit() {
            return None;
        }
        let batch = (slabs / BATCH_PART / HUGE_BYTES).clamp(1, MOST_UNITS);
        (0..self.heap.arenas().len()).find_map(|id| self.units_in(id, batch.min(most)))
    }

    fn units_in(&self, id: usize, units: usize) -> Option<Stretch<'h>> {
        let arena = self.arena(id);
        let at = arena.frontier().next_multiple_of(HUGE_SLICES);
        let room = self.heap.growth_end(id).checked_sub(at)? / HUGE_SLICES;
        let units = units.min(room);
        (units > 0).then(|| Stretch::of_units(arena, id, at, units))
    }

    /// Moves the frontier over units that are committed. Returns the first.
    pub(super) fn open_units(&mut self, stretch: &Stretch<'h>) -> Option<&'h Record> {
        let Stretch {
            arena,
            id,
            from,
            to,
            ..
        } = *stretch;
        self.pass_frontier(id, from);
        arena.set_frontier(to);
        for at in (from..to).step_by(HUGE_SLICES) {
            let unit = self.fresh(id, at, HUGE_SLICES);
            mark(arena, at, Huge::Want);
            self.add_free(unit, Age::New);
        }
        Some(arena.record(from))
    }

    /// Makes the units ordinary that no slab came to yet.
    pub(super) fn give_up_units(&mut self) {
        for arena in self.heap.arenas() {
            let mut index = arena.layout().head;
            while index < arena.frontier() {
                let span = arena.record(index);
                let end = span.end();
                let is_whole = span.slices.get() == HUGE_SLICES && span.dirty.get() == 0;
                if span.state() == State::Free && span.is_huge() && is_whole {
                    self.make_ordinary(arena, index);
                }
                index = end;
            }
        }
    }

    /// Makes the unit at slice `from` an ordinary part of the arena, if it is one. Free spans in it
    /// that were dirty count as old from now on.
    pub(super) fn make_ordinary(&mut self, arena: &'h Arena, from: usize) {
        if !arena.record(from).is_huge() {
            return;
        }
        let free = free_in_unit(arena, from);
        let spans = || (from..from + HUGE_SLICES).filter(|index| free & 1 << (index - from) != 0);
        for span in spans().map(|index| arena.record(index)) {
            self.detach(span);
            self.unqueue(span);
            span.set_state(State::Blank);
        }
        mark(arena, from, Huge::Avoid);
        for span in spans().map(|index| arena.record(index)) {
            self.add_free(span, Age::Old);
        }
    }
}

/// The first slices of the free spans of a unit, as bits. No span passes its ends.
fn free_in_unit(arena: &Arena, from: usize) -> u32 {
    let (mut index, mut free) = (from, 0);
    while index < from + HUGE_SLICES {
        let record = arena.record(index);
        if record.state() == State::Free {
            free |= 1 << (index - from);
        }
        index = record.end();
    }
    free
}

/// Notes of all slices of the unit at `from` whether they are huge.
fn mark(arena: &Arena, from: usize, advice: Huge) {
    (from..from + HUGE_SLICES).for_each(|index| arena.record(index).set_huge(advice == Huge::Want));
}
