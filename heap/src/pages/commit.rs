//! Decides what is committed, and when, and what the hard limit grants: spans, and pages of spans
//! in use that come back.
//!
//! Commits use units of 2 MiB, and larger ones as the heap grows, unless the kernel charges every
//! commit. If the kernel refuses, Neap tries again with the exact size. A failure leaves bits and
//! tables as they are. Where the kernel charges commit (strict overcommit, or a limit on writable
//! memory), free memory is also uncommitted, in whole huge pages, so that mappings stay few.
//!
//! No system call is made under the heap's lock. One thread at a time commits, and it holds
//! [`PageHeap::committing`] meanwhile. What it works on belongs to no other thread: a piece of a
//! free span that was set aside, and everything at and beyond an arena's frontier.

use super::arena::{Arena, Commit, pointer};
use super::figures::{Admission, STACK_BYTES};
use super::free_spans::Fit;
use super::heap::{Locked, PageHeap};
use super::huge::mark;
use super::reserve::refused_in;
use super::span::{Age, FitKey, SpanRecord, SpanRequest, SpanSource, Use, Warmth};
use crate::base::policy::START_BYTES;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::tree::Node;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::lock::is_closing;
use crate::os::{Huge, Os, OutOfMemory, RemapError};
use core::ops::Range;

/// Largest unit of commits, in slices (32 MiB).
const MOST_UNIT: usize = 16 * HUGE_SLICES;

/// Free slices become units only if they are more than this part of a batch, because each advice
/// may split a mapping.
const REOPENED_PART: usize = 4;

/// Most huge pages that one call uncommits (8 MiB).
const MOST_UNCOMMITTED: usize = 4;

/// The heap, locked, and committed room in it.
pub(super) type Found<'h, O> = (Locked<'h, O>, Fit<'h>);

/// Why a request has no room yet.
enum Missed {
    /// Something was made or given back, so the request may be tried again.
    Again,
    /// A limit or the kernel refuses it.
    Refused,
}

/// What a request finds.
enum Outcome<'h, O: Os> {
    /// Committed room.
    Found(Found<'h, O>),
    /// A limit that grants it once at most this number of bytes of free pages are dirty.
    Dirty(usize),
    /// Something that can be made.
    Lack(Lack<'h>),
    /// Nothing.
    Refused,
}

/// What a request lacks.
enum Lack<'h> {
    /// Committed slices.
    Slices(CommitRange<'h>),
    /// An arena with room.
    Arena,
}

/// Slices that are to be committed.
#[derive(Clone, Copy)]
pub(super) struct CommitRange<'h> {
    pub(super) arena: &'h Arena,
    pub(super) id: usize,
    /// What of it lies below the frontier: a piece of a free span, set aside.
    pub(super) part: Option<&'h SpanRecord>,
    pub(super) from: usize,
    pub(super) to: usize,
    /// How far a commit that makes a system call anyway may extend; `None`: as far as there are
    /// tables.
    limit: Option<usize>,
    /// How many units of huge pages they are to be; 0: ordinary slices.
    pub(super) units: usize,
    /// The node that they belong to.
    node: usize,
}

/// What may still be tried for a request.
#[derive(Clone, Copy)]
struct Tries {
    /// Most units of huge pages at once.
    units: usize,
    /// Arenas to open: two, because what is claimed for the first may be taken before it is mapped.
    arenas: u32,
    decommit_free: bool,
    /// Look only while no piece is set aside.
    settled: bool,
    /// Pieces that were set aside at the last look may now provide more.
    hidden: bool,
}

impl<O: Os> PageHeap<O> {
    /// The heap, locked, and room for a request in it; `None` when a limit or the kernel refuses.
    pub(super) fn room_for(&self, request: &SpanRequest) -> Option<Found<'_, O>> {
        let locked = self.locked();
        if let Some(room) = locked.find_ready(request)
            && locked.judge(request, Some(room)) == Admission::Granted
        {
            return Some((locked, room));
        }
        drop(locked);
        self.make_room(request)
    }

    /// Whether the heap is no longer small once it has grown for a request.
    fn grows_past_start(&self, request: &SpanRequest) -> bool {
        let bytes = request.slices.saturating_mul(SLICE_BYTES);
        self.extent().saturating_add(bytes) >= START_BYTES
    }

    /// [`PageHeap::room_for`] for a request that finds no committed room, or that a limit does not
    /// grant at once.
    ///
    /// A purge may have the only room that would serve, or the pages that keep the request from a
    /// limit. So before it refuses a request, the heap is looked at once more at a moment when no
    /// piece of it is set aside.
    #[cold]
    fn make_room(&self, request: &SpanRequest) -> Option<Found<'_, O>> {
        let _alone = self.committing.lock();
        if self.grows_past_start(request) {
            self.os.learn_nodes(is_closing);
            self.grain();
        }
        let mut tries = Tries {
            units: usize::MAX,
            arenas: 2,
            decommit_free: true,
            settled: false,
            hidden: false,
        };
        loop {
            match self.look(request, &mut tries) {
                Outcome::Found(found) => return Some(found),
                Outcome::Dirty(most) => {
                    self.purge_above(most);
                    continue;
                }
                Outcome::Lack(lack) => match self.make(&lack, request, &mut tries) {
                    Ok(found) => return Some(found),
                    Err(Missed::Again) => continue,
                    Err(Missed::Refused) => {}
                },
                Outcome::Refused => {}
            }
            // Once more: in a fork's child the pieces that other threads had set aside never come
            // back.
            if !tries.hidden || core::mem::replace(&mut tries.settled, true) {
                return None;
            }
        }
    }

    /// Makes what a request lacks.
    #[inline(never)]
    fn make<'h>(
        &'h self,
        lack: &Lack<'h>,
        request: &SpanRequest,
        tries: &mut Tries,
    ) -> Result<Found<'h, O>, Missed> {
        let made = match lack {
            Lack::Slices(range) => {
                let (locked, room) = self.commit_range(range);
                // Takes the new room at once, so that no other thread takes it first, and because a
                // later search might choose other room.
                let grants = |room| locked.judge(request, Some(room)) == Admission::Granted;
                match room {
                    Ok(room) if grants(room) => return Ok((locked, room)),
                    made => made.map(|_| ()),
                }
            }
            Lack::Arena if tries.arenas > 0 => self.open_arena(request),
            Lack::Arena => return Err(Missed::Refused),
        };
        Err(tries.after(lack, made, || self.decommit_free(request.slices) > 0))
    }

    /// What a request finds. Its frame ends before that of [`PageHeap::make`] begins, because
    /// stacks may be small. The caller holds `committing`.
    #[inline(never)]
    fn look(&self, request: &SpanRequest, tries: &mut Tries) -> Outcome<'_, O> {
        let mut locked = match tries.settled {
            true => self.settled(),
            false => self.locked(),
        };
        tries.hidden = locked.inner.aside > 0 && !request.is_optional();
        let room = locked.find_ready(request);
        match locked.judge(request, room) {
            Admission::Granted => match room {
                Some(room) => Outcome::Found((locked, room)),
                None => locked
                    .find_lack(request, tries.units)
                    .map_or(Outcome::Refused, Outcome::Lack),
            },
            Admission::AfterPurge(most) if locked.may_purge() => Outcome::Dirty(most),
            // The kernel refused to purge what is dirty, or the program locked it.
            Admission::AfterPurge(_) | Admission::Refused => Outcome::Refused,
        }
    }

    /// The heap, locked, with no piece of it set aside. The caller holds `committing`.
    pub(super) fn settled(&self) -> Locked<'_, O> {
        let alone = self.purging.lock();
        let mut locked = self.locked();
        locked.given_up_after(alone);
        locked
    }

    /// Commits a range, then puts it where requests find it. Returns the heap, locked, and the
    /// room that was made.
    fn commit_range<'h>(
        &'h self,
        range: &CommitRange<'h>,
    ) -> (Locked<'h, O>, Result<Fit<'h>, OutOfMemory>) {
        let (arena, from, to) = (range.arena, range.from, range.to);
        let grown = match to > arena.grown() {
            true => self.grow(arena, from, to, range.limit),
            false => (self.ready_tables(arena, to)).map_err(|refused| refused_in(arena, refused)),
        };
        let committed = grown.and_then(|()| {
            let most = arena.ready.get().min(arena.end.get());
            self.commit(arena, from, to, range.limit.unwrap_or(most))
        });
        if committed.is_ok() {
            self.advise_units(range);
        }
        let mut locked = self.locked();
        if committed.is_ok() && range.units > 0 {
            let first = locked.open_units(range);
            return (locked, Ok((first, from)));
        }
        let aside = range.part.map(|part| locked.put_back(part, Age::New));
        let room = committed.and_then(|()| {
            let passed = locked.pass_frontier(range.id, range.to, range.node);
            Ok((passed.or(aside).ok_or(OutOfMemory)?, from))
        });
        (locked, room)
    }

    /// Asks the kernel for huge pages in a range of units, if that leaves few mappings.
    fn advise_units(&self, range: &CommitRange<'_>) {
        if range.units > 0 {
            let start = range.arena.layout().address(range.from);
            let units = start..start + range.units * HUGE_BYTES;
            if self.locked().split_units().exclude(&units) {
                self.advise(units, Huge::Want);
            }
        }
    }

    /// Commits the slices `from..to`, and when that takes a system call at the end, as many after
    /// them as a unit has, below `limit`. What was not committed is clean.
    fn commit(
        &self,
        arena: &Arena,
        from: usize,
        to: usize,
        limit: usize,
    ) -> Result<(), OutOfMemory> {
        let mut at = arena.find(from, to, Commit::No);
        while at < to {
            let end = arena.find(at, to, Commit::Yes);
            let wide = if end == to {
                self.locked().widen(arena, to, limit)
            } else {
                end
            };
            if self.commit_exactly(arena, at, wide).is_err() {
                self.commit_exactly(arena, at, end)?;
            }
            at = arena.find(end, to, Commit::No);
        }
        Ok(())
    }

    pub(super) fn commit_exactly(
        &self,
        arena: &Arena,
        from: usize,
        to: usize,
    ) -> Result<(), OutOfMemory> {
        self.commit_bytes(arena.layout().address(from), (to - from) * SLICE_BYTES)?;
        self.locked().set_committed(arena, from, to);
        Ok(())
    }
}

impl<'h> CommitRange<'h> {
    /// Units of huge pages at the frontier or beyond it.
    fn of_units(arena: &'h Arena, id: usize, at: usize, units: usize, node: usize) -> Self {
        let to = at + units * HUGE_SLICES;
        Self {
            arena,
            id,
            part: None,
            from: at,
            to,
            limit: Some(to),
            units,
            node,
        }
    }
}

impl Tries {
    /// Notes the result of an attempt, and returns whether anything is left to try.
    fn after(
        &mut self,
        lack: &Lack<'_>,
        made: Result<(), OutOfMemory>,
        decommit_free: impl FnOnce() -> bool,
    ) -> Missed {
        match (lack, made) {
            (Lack::Slices(_), Ok(())) => {}
            (Lack::Arena, Ok(())) => self.arenas -= 1,
            // The arena ends before; others may have room.
            (Lack::Slices(range), Err(_)) if range.to > range.arena.reach.get() => {}
            (Lack::Slices(range), Err(_)) if range.units > 0 => {
                self.units = usize::from(range.units > 1);
            }
            (_, Err(_)) if self.decommit_free && decommit_free() => {
                self.decommit_free = false;
            }
            (_, Err(_)) => return Missed::Refused,
        }
        Missed::Again
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// How far a commit that ends at `to` may go on: to the end of the unit, `limit`, or what is
    /// committed.
    fn widen(&self, arena: &Arena, to: usize, limit: usize) -> usize {
        let unit_end = self.unit_end(to).min(limit);
        arena.find(to, unit_end, Commit::Yes).max(to)
    }

    /// Where the unit ends in which the slices before `to` are.
    pub(super) fn unit_end(&self, to: usize) -> usize {
        to.next_multiple_of(if self.heap.thrifty.load(Relaxed) {
            1
        } else if self.heap.os.strict_commit() {
            HUGE_SLICES
        } else {
            (self.inner.counts.committed_slices / 8)
                .next_power_of_two()
                .clamp(HUGE_SLICES, MOST_UNIT)
        })
    }

    /// What a request lacks that finds no committed room; `None` when it cannot be met. What is to
    /// be committed of a free span is set aside.
    fn find_lack(&mut self, request: &SpanRequest, units: usize) -> Option<Lack<'h>> {
        if let Some((free, at)) = self.find_free(request) {
            if let Some((first, whole)) = self.units_within(free, request)
                && units > 0
            {
                let (id, arena) = (free.arena(), self.arena(free.arena()));
                let range = CommitRange::of_units(arena, id, first, whole.min(units), free.node());
                let part = Some(self.set_aside(free, first, range.to - first));
                return Some(Lack::Slices(CommitRange { part, ..range }));
            }
            return Some(Lack::Slices(self.range_in_free_span(
                free,
                at,
                request.slices,
            )));
        }
        if let Some((id, at)) = request.at {
            let range = self.range_behind(id, at, request)?;
            return Some(Lack::Slices(range));
        }
        if request.source == SpanSource::Resident || request.is_too_long() {
            return None;
        }
        let mut arenas = 0..self.heap.arenas().len();
        let range = self
            .range_of_units(request, units)
            .or_else(|| arenas.find_map(|id| self.range_at_frontier(id, request)));
        // A span that the kernel refused to purge may separate two that would be large enough
        // together.
        if range.is_none() && self.rejoin_refused(u64::MAX) {
            return self.find_lack(request, units);
        }
        Some(range.map_or(Lack::Arena, Lack::Slices))
    }

    /// Slices of a free span.
    fn range_in_free_span(
        &mut self,
        free: &'h SpanRecord,
        at: usize,
        slices: usize,
    ) -> CommitRange<'h> {
        let (id, end) = (free.arena(), free.end());
        let arena = self.arena(id);
        let to = at + slices;
        let wide = match arena.find(to - 1, to, Commit::No) < to {
            true => self.widen(arena, to, end),
            false => to,
        };
        CommitRange {
            arena,
            id,
            part: Some(self.set_aside(free, at, wide - at)),
            from: at,
            to,
            limit: Some(wide),
            units: 0,
            node: free.node(),
        }
    }

    /// Slices at the frontier of an arena, the end of a free span before it among them. `None` if
    /// it ends too soon.
    fn range_at_frontier(&mut self, id: usize, request: &SpanRequest) -> Option<CommitRange<'h>> {
        let arena = self.arena(id);
        let frontier = arena.frontier.get();
        let start = self
            .free_before(arena, frontier)
            .filter(|free| !free.is_huge() && free.node() == request.node)
            .map_or(frontier, |free| free.index.get());
        let at = arena.layout().align_up(start, request.align);
        let at = request.start_in(at, arena.reach.get())?;
        self.range_over_frontier(id, at, request)
    }

    /// Slices from `at` on, where a free span that reaches up to the frontier begins, or the
    /// frontier is.
    fn range_behind(
        &mut self,
        id: usize,
        at: usize,
        request: &SpanRequest,
    ) -> Option<CommitRange<'h>> {
        let arena = self.arena(id);
        let free = self.free_at(arena, at);
        let reaches = free.map_or(at, SpanRecord::end) == arena.frontier.get();
        let is_alike = |free: &SpanRecord| !free.is_huge() && free.node() == request.node;
        let suits = reaches && free.is_none_or(is_alike);
        suits.then(|| self.range_over_frontier(id, at, request))?
    }

    /// Slices from `at` on, in the free span before the frontier or beyond it. With several nodes,
    /// the frontier passes whole huge pages, because the node that touches one first has all of it,
    /// and where the kernel uses them everywhere, so that a purge finds all of one.
    fn range_over_frontier(
        &mut self,
        id: usize,
        at: usize,
        request: &SpanRequest,
    ) -> Option<CommitRange<'h>> {
        let (arena, to) = (self.arena(id), at + request.slices);
        let reach = arena.reach.get();
        if to > reach {
            return None;
        }
        // A small heap asks no question, and a larger one asked before it took the lock.
        let heap = self.heap;
        let is_huge = || heap.grows_past_start(request) && heap.grain() > 1;
        let is_wide = heap.os.nodes() > 1 || is_huge() && !heap.os.strict_commit();
        let to = match is_wide && !heap.thrifty.load(Relaxed) {
            true => to.next_multiple_of(HUGE_SLICES).min(reach),
            false => to,
        };
        let frontier = arena.frontier.get();
        let part = match self.free_before(arena, frontier) {
            Some(free) if at < frontier => Some(self.set_aside(free, at, to.min(frontier) - at)),
            _ => None,
        };
        Some(CommitRange {
            arena,
            id,
            part,
            from: at,
            to,
            limit: (to <= frontier).then_some(to),
            units: 0,
            node: request.node,
        })
    }

    /// How many units to open at once for a request; 0 if it does not suit them or the policy
    /// allows none.
    #[inline(never)]
    fn batch(&self, request: &SpanRequest) -> usize {
        let slabs = self.inner.counts.by_use[Use::Slab as usize - 1].slices * SLICE_BYTES;
        let batch = self.heap.huge_policy().batch(slabs);
        // A small heap asks no question: before the heap's start, none was asked without the lock.
        match batch > 0 && request.is_for_slab() && !self.heap.os.strict_commit() {
            true => batch,
            false => 0,
        }
    }

    /// At most `most` units at the frontier of an arena for a request that suits them.
    fn range_of_units(&self, request: &SpanRequest, most: usize) -> Option<CommitRange<'h>> {
        let batch = self.batch(request).min(most);
        self.heap
            .arenas()
            .iter()
            .enumerate()
            .find_map(|(id, arena)| {
                let at = arena.frontier.get().next_multiple_of(HUGE_SLICES);
                let units = batch.min(arena.reach.get().checked_sub(at)? / HUGE_SLICES);
                (units > 0).then(|| CommitRange::of_units(arena, id, at, units, request.node))
            })
    }

    /// The whole huge pages in a free span that was found for a request, as the first slice and the
    /// number of units to open there; `None` if there are none to open.
    pub(super) fn units_within(
        &self,
        free: &SpanRecord,
        request: &SpanRequest,
    ) -> Option<(usize, usize)> {
        if free.warmth() != Warmth::Cold {
            return None;
        }
        let first = free.index.get().next_multiple_of(HUGE_SLICES);
        let whole = free.end().checked_sub(first)? / HUGE_SLICES;
        let batch = self.batch(request);
        (whole > batch / REOPENED_PART && batch > 0).then(|| (first, whole.min(batch)))
    }

    /// Makes units of slices that are committed, beyond the frontier or set aside. Returns the
    /// first.
    fn open_units(&mut self, range: &CommitRange<'h>) -> &'h SpanRecord {
        let (arena, id) = (range.arena, range.id);
        match range.part {
            Some(part) => self.end_aside(part),
            None => {
                self.pass_frontier(id, range.from, range.node);
                arena.frontier.set(range.to);
            }
        }
        for at in (range.from..range.to).step_by(HUGE_SLICES) {
            let unit = self.fresh(id, at, HUGE_SLICES, range.node);
            mark(arena, at, Huge::Want);
            self.add_free(unit, Age::New);
        }
        arena.record(range.from)
    }
}

impl<O: Os> PageHeap<O> {
    /// Uncommits a part that was set aside, then puts it back. Returns how many bytes of commit
    /// went back; when the kernel refuses, the part stays set aside.
    pub(super) fn uncommit_part(&self, part: &SpanRecord) -> Result<usize, RemapError> {
        let arena = &self.arenas()[part.arena()];
        let (from, to) = (part.index.get(), part.end());
        let start = pointer(arena.layout().address(from));
        // SAFETY: slices of a free span, in one arena, set aside, so no thread uses them.
        unsafe { self.map_afresh(start, (to - from) * SLICE_BYTES, Commit::No) }?;
        let mut locked = self.locked();
        let slices = arena.set_commit(from, to, Commit::No);
        locked.inner.counts.committed_slices -= slices;
        locked.count_returned(slices * SLICE_BYTES);
        arena.clear_dirty(from, to);
        locked.return_part(part, to);
        Ok(slices * SLICE_BYTES)
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
        let mut next = FitKey::FIRST;
        while is_charged && !self.os.is_locked() {
            let _alone = self.purging.lock();
            let part = self.locked().next_committed(&mut next);
            let Some(part) = part else { break };
            match self.uncommit_part(part) {
                Ok(more) => bytes += more,
                Err(_) => {
                    self.locked().put_back(part, Age::New);
                    next.place += 1;
                }
            }
        }
        bytes
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// Sets whole huge pages aside that are free and committed, of the first span that has any and
    /// does not come before `next` in the order by fit. Sets `next` to this span.
    fn next_committed(&mut self, next: &mut FitKey) -> Option<&'h SpanRecord> {
        loop {
            let span = self.free_from(*next)?;
            *next = span.key();
            let arena = self.arena(span.arena());
            let units = committed_units(arena, span.index.get()..span.end());
            if let Some((from, to)) = units.filter(|_| !span.is_huge()) {
                arena.write_masks(span);
                return Some(self.set_aside(span, from, to - from));
            }
            next.place += 1;
        }
    }
}

/// The first whole huge pages among free slices that are committed at least in part, as slices: at
/// most [`MOST_UNCOMMITTED`] of them.
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
    let most = end.min(from + MOST_UNCOMMITTED * HUGE_SLICES);
    let to = arena
        .find(from, most, Commit::No)
        .next_multiple_of(HUGE_SLICES);
    Some((from, to.clamp(from + HUGE_SLICES, most)))
}

impl<O: Os> PageHeap<O> {
    /// Counts as resident `bytes` bytes of spans in use that [`PageHeap::count_absent`] excepted.
    /// Returns false, and changes nothing, if the hard limit refuses them.
    pub fn readmit(&self, bytes: usize) -> bool {
        if self.limits.hard() != usize::MAX {
            return self.readmit_within_limit(bytes);
        }
        self.count_absent(-(bytes as isize));
        true
    }

    /// Like [`PageHeap::make_room`], this tries once more while no piece is set aside.
    #[cold]
    fn readmit_within_limit(&self, bytes: usize) -> bool {
        let (_alone, mut is_settled) = (self.committing.lock(), false);
        loop {
            let mut locked = match is_settled {
                true => self.settled(),
                false => self.locked(),
            };
            match self.limits.judge(bytes, 0, || locked.footprint()) {
                Admission::Granted => {
                    // Under the lock, so that no other thread gets the same room.
                    self.count_absent(-(bytes as isize));
                    return true;
                }
                Admission::AfterPurge(most) if locked.may_purge() => {
                    drop(locked);
                    self.purge_above(most);
                }
                _ if is_settled || locked.inner.aside == 0 => return false,
                _ => is_settled = true,
            }
        }
    }
}

impl<O: Os> Locked<'_, O> {
    /// Whether a request that is about to take `room` stays within the hard limit. Dirty pages of
    /// the room are resident already, and pages that are to be moved there count once. Without
    /// room: whether the request may be granted, whatever room it finds.
    pub(super) fn judge(&self, request: &SpanRequest, room: Option<Fit<'_>>) -> Admission {
        if self.heap.limits.hard() == usize::MAX {
            return Admission::Granted;
        }
        let warm = room.map_or(usize::MAX, |room| self.warm_bytes(room, request.slices));
        let (wanted, warm) = match request.use_ {
            // All but the pages that a stack uses first are purged before its first use.
            Use::Stack => (STACK_BYTES, warm.min(STACK_BYTES)),
            _ => (request.slices.saturating_mul(SLICE_BYTES), warm),
        };
        let (added, warm) = (wanted - request.moved, warm.saturating_sub(request.moved));
        self.heap.limits.judge(added, warm, || self.footprint())
    }

    /// Bytes of dirty pages in the first `slices` slices of room.
    fn warm_bytes(&self, (free, at): Fit<'_>, slices: usize) -> usize {
        let arena = self.arena(free.arena());
        arena.share(free, at, at + slices) * self.page_bytes()
    }
}
