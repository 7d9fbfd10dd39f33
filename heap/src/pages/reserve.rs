//! Address space: opens arenas, commits their tables, and gives up what was never used of them.
//!
//! The caller holds [`PageHeap::committing`], and not the heap's lock.

use super::arena::{Arena, Commit, MAX_ARENAS, Step};
use super::heap::{Locked, PageHeap};
use super::layout::Layout;
use super::request::SpanRequest;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory};
use core::ops::Range;
use core::ptr::NonNull;

/// Slices of the preferred arena (1 TiB), and of the smallest that is worth a system call (1 MiB).
const MOST_SLICES: usize = (1 << 40) / SLICE_BYTES;
const LEAST_SLICES: usize = (1 << 20) / SLICE_BYTES;
/// An arena takes at most this part of a limited address space, unless one request needs more.
const LIMIT_PART: usize = 8;
/// Under a limit below this (64 MiB), on the address space or on writable memory, arenas are small,
/// so that their tables are small, and nothing is committed ahead.
const AMPLE_SLICES: usize = (64 << 20) / SLICE_BYTES;
/// Under a limit on writable memory below this (4 MiB), there are no thread caches, and a request
/// may get a block of a larger class.
const SCANT_SLICES: usize = (4 << 20) / SLICE_BYTES;
/// Slices of the first arena where reserving address space is expensive (256 MiB); a further one
/// has as many as all before it.
const DEAR_SLICES: usize = (256 << 20) / SLICE_BYTES;
/// Slices of the first arena at the program break (4 MiB).
const BREAK_SLICES: usize = (4 << 20) / SLICE_BYTES;
/// How often to try a lock whose holder the caller may have interrupted.
const LOCK_TRIES: usize = 1000;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

/// Why nothing was made.
pub(super) enum Refusal {
    /// The kernel refused to commit: giving back what is free may help.
    Commit,
    /// There is no address space, or no room for another arena.
    Space,
}

impl core::convert::From<OutOfMemory> for Refusal {
    fn from(_: OutOfMemory) -> Self {
        Self::Commit
    }
}

/// Slices that an arena may reserve under a limit on the address space.
fn kept_slices(limit: usize) -> usize {
    (limit / LIMIT_PART / SLICE_BYTES).min(MOST_SLICES)
}

impl<O: Os> PageHeap<O> {
    /// Opens the first arena if there is none yet, so that what the program does before its first
    /// allocation cannot keep the heap from one.
    pub fn open(&self) {
        let _alone = self.committing.lock();
        if self.arenas().is_empty() {
            // If it is refused, the first allocation tries again.
            let _ = self.open_arena(&SpanRequest::anywhere(1));
        }
    }

    /// To be called when the limit on the process's address space may have changed: what is
    /// reserved and not used counts against it, and keeps threads from starting. Does not wait for
    /// the heap's locks for long: the caller may have interrupted their holder.
    pub fn address_limit_changed(&self) {
        self.fit_address_limit(self.os.address_limit().unwrap_or(usize::MAX));
    }

    /// Makes arenas that are too long for a limit of `limit` bytes of address space fit it.
    ///
    /// A program that sets the limit a little above the size of its address space counts the
    /// reserve as used. Under such a limit the arenas keep what they reserved and stop growing, and
    /// the kernel bounds what is opened in addition. Under any other limit, they give back what is
    /// reserved and not used.
    pub(super) fn fit_address_limit(&self, limit: usize) {
        let kept = kept_slices(limit);
        let is_long = |arena: &Arena| arena.end() > arena.layout().head + kept;
        let last_long = || self.arenas().iter().rposition(is_long);
        if last_long().is_none() && self.closed.load(Relaxed) == 0 {
            return;
        }
        let Some(_alone) = (0..LOCK_TRIES).find_map(|_| self.committing.try_lock()) else {
            return;
        };
        let counts_reserve = self.leaves_little(limit);
        let closed = last_long().filter(|_| counts_reserve);
        self.closed
            .store(closed.map_or(0, |last| last + 1), Relaxed);
        if !counts_reserve {
            let shortened = self.arenas().iter().map(|arena| self.shorten(arena, kept));
            shortened
                .flatten()
                .flatten()
                .for_each(|range| self.unmap_range(range));
        }
    }

    /// Whether a limit leaves the process room, but little compared with what is mapped.
    fn leaves_little(&self, limit: usize) -> bool {
        let reserved = || self.arenas().iter().map(Arena::end).sum::<usize>() * SLICE_BYTES;
        let mapped = self.os.mapped_bytes().unwrap_or_else(reserved);
        let room = limit.checked_sub(mapped);
        room.is_some_and(|room| room < limit / LIMIT_PART)
    }

    /// Bytes reserved by arenas that no longer grow.
    fn closed_bytes(&self) -> usize {
        let closed = &self.arenas()[..self.closed.load(Relaxed)];
        let rest = closed.iter().map(|arena| arena.end() - arena.frontier());
        rest.sum::<usize>() * SLICE_BYTES
    }

    /// Shortens an arena to what was used of it and `kept` slices. Returns the addresses that it no
    /// longer needs. Concurrent frees are not affected: tags and tables of slices that were ever
    /// used stay. The caller holds `committing`.
    fn shorten(&self, arena: &Arena, kept: usize) -> Option<[Range<usize>; 3]> {
        let mut locked = (0..LOCK_TRIES).find_map(|_| self.try_locked())?;
        let (layout, old) = (arena.layout(), arena.end());
        let used = arena.find(arena.frontier(), arena.ready(), Commit::No);
        let end = (layout.head + kept).max(used);
        if end >= old {
            return None;
        }
        let (tags, groups) = arena.tables(end);
        let (old_tags, old_groups) = arena.tables(old);
        let slices = layout.address(end)..layout.address(old);
        let ranges = match old == layout.slices {
            true => [slices, tags..groups, 0..0],
            // What lies between was given back earlier, and may have another owner by now.
            false => [slices, tags..old_tags, old_groups..groups],
        };
        let committed = arena.set_commit(end, arena.ready().max(end), Commit::No);
        let counts = &mut locked.inner.counts;
        counts.committed_slices -= committed;
        let released = ranges.iter().map(Range::len).sum::<usize>() / SLICE_BYTES;
        counts.reserved_slices = counts.reserved_slices.saturating_sub(released);
        arena.set_end(end);
        // What lies beyond may soon belong to another arena.
        self.publish_tags();
        locked.write_mirror();
        Some(ranges)
    }

    fn unmap_range(&self, range: Range<usize>) {
        if let Some(start) = NonNull::new(range.start as *mut u8).filter(|_| !range.is_empty()) {
            // SAFETY: of one arena; no span was ever there, nor tables that are committed, and none
            // will be: the arena ends before.
            unsafe { self.os.unmap_part(start, range.len()) };
        }
    }

    /// Opens a new arena in which the request fits. An error when there is no address space, or
    /// when the kernel refused to commit its tables.
    pub(super) fn open_arena(&self, request: &SpanRequest) -> Result<(), Refusal> {
        // Asked once, and not first under the lock, because the answer is in a file.
        let _ = self.os.strict_commit();
        let (id, arena) = self.unopened().ok_or(Refusal::Space)?;
        let layout = self.reserve(request).ok_or(Refusal::Space)?;
        // SAFETY: `committing` is held and the arena not published.
        unsafe { arena.prepare(layout) };
        let base = NonNull::new(layout.base as *mut u8).ok_or(Refusal::Space)?;
        if let Err(refused) = self.open_tables(arena) {
            // SAFETY: the whole reservation of `reserve`, not yet published.
            unsafe { self.os.unmap(base, layout.slices * SLICE_BYTES) };
            return Err(refused.into());
        }
        // SAFETY: the whole reservation of `reserve`, not yet published.
        unsafe { self.advise_mapping(base, layout.slices * SLICE_BYTES) };
        self.locked().inner.counts.reserved_slices += layout.slices;
        self.publish(id);
        Ok(())
    }

    /// Gives up what is reserved and was never used, because it counts where the bytes that the
    /// process may lock are limited. Later requests open arenas of what size the kernel then
    /// grants. Does nothing if half of all arenas are open, because a program may call this again
    /// and again without success.
    pub fn unreserve(&self) {
        if self.arenas().len() < MAX_ARENAS / 2 {
            self.fit_address_limit(0);
        }
    }

    /// Reserves an arena of the preferred size, or else ever smaller ones, down to what the request
    /// needs.
    fn reserve(&self, request: &SpanRequest) -> Option<Layout> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let usable = request.slices.checked_add(request.align - 1)?;
        let least = Layout::plan_for(usable, self.sides, page)?;
        let least = least.slices.max(LEAST_SLICES);
        let mut slices = self.liked_slices().max(least);
        loop {
            if let Some(base) = self.reserve_slices(slices) {
                let plan = Layout::plan(slices, self.sides, page);
                return Some(plan.at(base.as_ptr() as usize));
            }
            if slices == least {
                return self.reserve_at_break(least);
            }
            slices = (slices / 2).max(least);
        }
    }

    /// Slices of the preferred arena.
    fn liked_slices(&self) -> usize {
        let limit = self.os.address_limit();
        let kept = limit.map_or(MOST_SLICES, |limit| {
            kept_slices(limit.saturating_sub(self.closed_bytes()))
        });
        let data = self
            .os
            .data_limit()
            .map_or(MOST_SLICES, |limit| limit / SLICE_BYTES);
        if data < AMPLE_SLICES || kept < AMPLE_SLICES / LIMIT_PART {
            self.be_thrifty();
            if data < SCANT_SLICES {
                self.be_scant();
            }
            return kept.min(data.max(AMPLE_SLICES / LIMIT_PART));
        }
        let paid = match self.os.reserves_freely() {
            true => MOST_SLICES,
            false => self.reserved_slices().max(DEAR_SLICES),
        };
        kept.min(paid)
    }

    fn reserved_slices(&self) -> usize {
        self.locked().inner.counts.reserved_slices
    }

    /// An arena where no mapping can be added, because the process has as many as it may.
    fn reserve_at_break(&self, least: usize) -> Option<Layout> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let doubled = self.reserved_slices().min(DEAR_SLICES);
        [doubled.max(BREAK_SLICES).max(least), least]
            .into_iter()
            .find_map(|slices| {
                self.calls.count_reserve();
                let bytes = slices.checked_mul(SLICE_BYTES)?;
                let base = self.os.reserve_at_break(bytes, HUGE_BYTES)?;
                Some(Layout::plan(slices, self.sides, page).at(base.as_ptr() as usize))
            })
    }

    fn reserve_slices(&self, slices: usize) -> Option<NonNull<u8>> {
        self.calls.count_reserve();
        self.os
            .reserve(slices.checked_mul(SLICE_BYTES)?, HUGE_BYTES)
    }

    /// Commits the first tables of an arena; the first slices, their neighbours, in the same call
    /// if the kernel lets us.
    fn open_tables(&self, arena: &Arena) -> Result<(), OutOfMemory> {
        let head = arena.layout().head;
        let (Some(tags), Some(group)) = (arena.tags_step(head + 1), arena.groups_step(head + 1))
        else {
            return Err(OutOfMemory);
        };
        self.commit_bytes(tags.address, tags.bytes)?;
        let first = match self.is_thrifty() {
            true => head,
            false => (head + FIRST_SLICES)
                .next_multiple_of(HUGE_SLICES)
                .min(group.slices),
        };
        let slices_too = group.bytes + (first - head) * SLICE_BYTES;
        let together = self.commit_bytes(group.address, slices_too).is_ok();
        if !together {
            self.commit_bytes(group.address, group.bytes)?;
        }
        arena.set_tagged(tags.slices);
        arena.set_ready(group.slices);
        let mut locked = self.locked();
        if together {
            locked.set_committed(arena, head, first);
        }
        locked.inner.counts.metadata_bytes += tags.bytes + group.bytes;
        Ok(())
    }

    pub(super) fn commit_bytes(&self, address: usize, bytes: usize) -> Result<(), OutOfMemory> {
        self.calls.count_commit();
        let start = NonNull::new(address as *mut u8).ok_or(OutOfMemory)?;
        // SAFETY: all callers name ranges of one arena, which is one reservation.
        unsafe { self.os.commit(start, bytes) }
    }

    fn commit_step(&self, step: Step) -> Result<(), OutOfMemory> {
        self.commit_bytes(step.address, step.bytes)?;
        self.locked().inner.counts.metadata_bytes += step.bytes;
        Ok(())
    }

    /// Commits what slices below `to` need in the tables.
    fn ready_tables(&self, id: usize, to: usize) -> Result<(), OutOfMemory> {
        let arena = &self.arenas()[id];
        if let Some(step) = arena.tags_step(to) {
            self.commit_step(step)?;
            arena.set_tagged(step.slices);
            if id == 0 {
                self.publish_tags();
            }
        }
        if let Some(step) = arena.groups_step(to) {
            self.commit_step(step)?;
            arena.set_ready(step.slices);
        }
        Ok(())
    }

    /// Commits those of the slices `from..to` that have no tables yet, and their tables. The slices
    /// first: tables are never given back, so a request that is refused must not have paid for
    /// them.
    pub(super) fn commit_with_tables(
        &self,
        id: usize,
        from: usize,
        to: usize,
    ) -> Result<(), OutOfMemory> {
        let arena = &self.arenas()[id];
        let from = from.max(arena.ready());
        if from >= to {
            return self.ready_tables(id, to);
        }
        let (address, bytes) = (arena.layout().address(from), (to - from) * SLICE_BYTES);
        self.commit_bytes(address, bytes)?;
        if let Err(refused) = self.ready_tables(id, to) {
            self.take_back(address, bytes);
            return Err(refused);
        }
        self.locked().set_committed(arena, from, to);
        Ok(())
    }

    /// Uncommits what was committed just now and has no tables.
    fn take_back(&self, address: usize, bytes: usize) {
        self.calls.count_uncommit();
        if let Some(start) = NonNull::new(address as *mut u8) {
            // SAFETY: slices beyond the tables are in no span. If the kernel refuses, they stay
            // readable, and are committed once more when they are needed.
            let _ = unsafe { self.os.uncommit(start, bytes) };
        }
    }
}

impl<O: Os> Locked<'_, O> {
    pub(super) fn set_committed(&mut self, arena: &Arena, from: usize, to: usize) {
        self.inner.counts.committed_slices += arena.set_commit(from, to, Commit::Yes);
    }
}
