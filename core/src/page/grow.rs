//! What is reserved and committed when.
//!
//! Commits go by units of 2 MiB, larger ones as the heap grows unless every commit is charged; what the
//! kernel refuses is asked for again in the exact size. A failure leaves bits and tables as they are.

use super::arena::{Arena, Commit, Layout, Step};
use super::heap::{Locked, PageHeap};
use super::want::{Density, From, Want};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory};
use core::ptr::NonNull;

/// Slices of the arenas we would like best (1 TiB), and of the smallest worth a system call (1 MiB).
const MOST_SLICES: usize = (1 << 40) / SLICE_BYTES;
const LEAST_SLICES: usize = (1 << 20) / SLICE_BYTES;
/// An arena takes at most this part of a limited address space, unless one request needs more.
const LIMIT_PART: usize = 8;
/// Under a limit below this (64 MiB), on the address space or on writable memory, arenas are small, for so are their tables, and
/// nothing is committed ahead.
const AMPLE_SLICES: usize = (64 << 20) / SLICE_BYTES;
/// Slices of the first arena where address space has its price (256 MiB); a further one has as many as all before it.
const DEAR_SLICES: usize = (256 << 20) / SLICE_BYTES;
/// Slices of the first arena at the end of the program's heap (4 MiB).
const BREAK_SLICES: usize = (4 << 20) / SLICE_BYTES;
/// Largest unit of commits, in slices (32 MiB).
const MOST_UNIT: usize = 16 * HUGE_SLICES;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

/// Slices that an arena may reserve under a limit on the address space.
fn kept_slices(limit: usize) -> usize {
    (limit / LIMIT_PART / SLICE_BYTES).min(MOST_SLICES)
}

impl<O: Os> PageHeap<O> {
    /// Opens the first arena if there is none yet, so that what the program does before its first allocation cannot keep the
    /// heap from one.
    pub fn open(&self) {
        let mut locked = self.locked();
        if self.arenas().is_empty() {
            let want = Want {
                slices: 1,
                align: 1,
                from: From::Anywhere,
                density: Density::Unknown,
            };
            // If it is refused, the first allocation tries again.
            let _ = locked.open_arena(&want);
        }
    }

    /// Hears that the limit on the process's address space may have become lower: what is reserved and not used counts
    /// against it, and keeps threads from starting. Does not wait for the heap's lock for long: the caller may have
    /// interrupted its holder.
    pub fn note_address_limit(&self) {
        const TRIES: usize = 1000;
        let Some(limit) = self.os.address_limit() else {
            return;
        };
        if let Some(mut locked) = (0..TRIES).find_map(|_| self.try_locked())
            && kept_slices(limit) < locked.inner.counts.reserved_slices
        {
            locked.release_reserve(limit);
        }
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// Commits the slices `from..to`, and when that takes a system call at the end, as many after them as a
    /// unit has, below `limit`. What was not committed is clean.
    pub(super) fn commit(
        &mut self,
        arena: &Arena,
        from: usize,
        to: usize,
        limit: usize,
    ) -> Result<(), OutOfMemory> {
        let mut at = arena.find(from, to, Commit::No);
        while at < to {
            let end = arena.find(at, to, Commit::Yes);
            let wide = if end == to {
                self.widen(arena, to, limit)
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

    /// How far a commit that ends at `to` may go on: to the end of the unit, `limit`, or what is committed.
    fn widen(&self, arena: &Arena, to: usize, limit: usize) -> usize {
        let unit = if self.heap.is_thrifty() {
            1
        } else if self.heap.os.strict_commit() {
            HUGE_SLICES
        } else {
            (self.inner.counts.committed_slices / 8)
                .next_power_of_two()
                .clamp(HUGE_SLICES, MOST_UNIT)
        };
        arena
            .find(to, to.next_multiple_of(unit).min(limit), Commit::Yes)
            .max(to)
    }

    fn commit_exactly(&mut self, arena: &Arena, from: usize, to: usize) -> Result<(), OutOfMemory> {
        self.commit_bytes(arena.layout().address(from), (to - from) * SLICE_BYTES)?;
        self.inner.counts.committed_slices += arena.note(from, to, Commit::Yes);
        Ok(())
    }

    fn commit_bytes(&mut self, address: usize, bytes: usize) -> Result<(), OutOfMemory> {
        self.inner.counts.calls.commit += 1;
        let start = NonNull::new(address as *mut u8).ok_or(OutOfMemory)?;
        // SAFETY: all callers name ranges of one arena, which is one reservation.
        unsafe { self.heap.os.commit(start, bytes) }
    }

    fn commit_step(&mut self, step: Step) -> Result<(), OutOfMemory> {
        self.commit_bytes(step.address, step.bytes)?;
        self.inner.counts.metadata_bytes += step.bytes;
        Ok(())
    }

    /// Commits what slices below `to` need in the tables.
    fn ready_tables(&mut self, id: usize, to: usize) -> Result<(), OutOfMemory> {
        let arena = self.arena(id);
        if let Some(step) = arena.tags_step(to) {
            self.commit_step(step)?;
            arena.set_tagged(step.slices);
            if id == 0 {
                self.heap.publish_tags();
            }
        }
        if let Some(step) = arena.groups_step(to) {
            self.commit_step(step)?;
            arena.set_ready(step.slices);
        }
        Ok(())
    }

    /// Commits those of the slices `from..to` that have no tables yet, and their tables. The slices first:
    /// tables are never given back, so a request that is refused must not have paid for them.
    pub(super) fn commit_with_tables(
        &mut self,
        id: usize,
        from: usize,
        to: usize,
    ) -> Result<(), OutOfMemory> {
        let arena = self.arena(id);
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
        self.inner.counts.committed_slices += arena.note(from, to, Commit::Yes);
        Ok(())
    }

    /// Uncommits what was committed just now and has no tables.
    fn take_back(&mut self, address: usize, bytes: usize) {
        self.inner.counts.calls.uncommit += 1;
        if let Some(start) = NonNull::new(address as *mut u8) {
            // SAFETY: slices beyond the tables belong to nobody. If the kernel refuses, they stay readable,
            // and are committed once more when they are needed.
            let _ = unsafe { self.heap.os.uncommit(start, bytes) };
        }
    }

    /// Opens a new arena in which the request fits. Its number; `None` when there is no address space, an
    /// error when the kernel refused to commit its tables.
    pub(super) fn open_arena(&mut self, want: &Want) -> Result<Option<usize>, OutOfMemory> {
        let Some((id, arena)) = self.heap.unopened() else {
            return Ok(None);
        };
        let Some(layout) = self.reserve(want) else {
            return Ok(None);
        };
        // SAFETY: the lock is held and the arena not published.
        unsafe { arena.prepare(layout) };
        if let Err(refused) = self.open_tables(arena) {
            let base = NonNull::new(layout.base as *mut u8).ok_or(refused)?;
            // SAFETY: the whole reservation of `reserve`, of which nobody has heard.
            unsafe { self.heap.os.release(base, layout.slices * SLICE_BYTES) };
            return Err(refused);
        }
        if let Some(base) = NonNull::new(layout.base as *mut u8) {
            // SAFETY: the whole reservation of `reserve`, of which nobody has heard.
            unsafe { self.heap.advise_mapping(base, layout.slices * SLICE_BYTES) };
        }
        self.inner.counts.reserved_slices += layout.slices;
        self.heap.publish(id);
        Ok(Some(id))
    }

    /// Reserves an arena: of the size we like best, else smaller and smaller, down to what the request needs.
    fn reserve(&mut self, want: &Want) -> Option<Layout> {
        let page = self.page_bytes();
        let usable = want.slices.checked_add(want.align - 1)?;
        let least = Layout::plan_for(usable, self.heap.sides, page)?;
        let least = least.slices.max(LEAST_SLICES);
        let mut slices = self.liked_slices().max(least);
        loop {
            if let Some(base) = self.reserve_slices(slices) {
                let plan = Layout::plan(slices, self.heap.sides, page);
                return Some(plan.at(base.as_ptr() as usize));
            }
            if slices == least {
                return self.reserve_at_break(least);
            }
            slices = (slices / 2).max(least);
        }
    }

    /// Slices of the arena we would like best.
    fn liked_slices(&self) -> usize {
        let os = &self.heap.os;
        let kept = os.address_limit().map_or(MOST_SLICES, kept_slices);
        let data = os
            .data_limit()
            .map_or(MOST_SLICES, |limit| limit / SLICE_BYTES);
        if data < AMPLE_SLICES || kept < AMPLE_SLICES / LIMIT_PART {
            self.heap.be_thrifty();
            return kept.min(data.max(AMPLE_SLICES / LIMIT_PART));
        }
        let paid = match os.reserves_freely() {
            true => MOST_SLICES,
            false => self.inner.counts.reserved_slices.max(DEAR_SLICES),
        };
        kept.min(paid)
    }

    /// An arena where no mapping can be added, for the process has as many as it may.
    fn reserve_at_break(&mut self, least: usize) -> Option<Layout> {
        let doubled = self.inner.counts.reserved_slices.min(DEAR_SLICES);
        [doubled.max(BREAK_SLICES).max(least), least]
            .into_iter()
            .find_map(|slices| {
                self.inner.counts.calls.reserve += 1;
                let os = &self.heap.os;
                let base = os.reserve_at_break(slices.checked_mul(SLICE_BYTES)?, HUGE_BYTES)?;
                let plan = Layout::plan(slices, self.heap.sides, self.page_bytes());
                Some(plan.at(base.as_ptr() as usize))
            })
    }

    /// Gives back the address space of every arena that nothing uses, but for what `limit` bytes of address space leave an
    /// arena. Concurrent frees see nothing of it: tags and tables of slices that were ever used stay.
    pub(super) fn release_reserve(&mut self, limit: usize) {
        for arena in self.heap.arenas() {
            let (layout, old) = (arena.layout(), arena.end());
            let used = arena.find(arena.frontier(), arena.ready(), Commit::No);
            let end = (layout.head + kept_slices(limit)).max(used);
            if end >= old {
                continue;
            }
            let (tags, groups) = arena.tables(end);
            let (old_tags, old_groups) = arena.tables(old);
            let committed = arena.note(end, arena.ready().max(end), Commit::No);
            self.inner.counts.committed_slices -= committed;
            arena.set_end(end);
            self.release_range(layout.address(end), layout.address(old));
            if old == layout.slices {
                self.release_range(tags, groups);
            } else {
                // What lies between went back before, and may be another's by now.
                self.release_range(tags, old_tags);
                self.release_range(old_groups, groups);
            }
        }
    }

    fn release_range(&mut self, from: usize, to: usize) {
        let Some(start) = NonNull::new(from as *mut u8).filter(|_| from < to) else {
            return;
        };
        // SAFETY: of one arena; no span was ever there, nor tables that are committed, and none will be: the arena ends before.
        unsafe { self.heap.os.release_part(start, to - from) };
        let slices = (to - from) / SLICE_BYTES;
        let counts = &mut self.inner.counts;
        counts.reserved_slices = counts.reserved_slices.saturating_sub(slices);
    }

    fn reserve_slices(&mut self, slices: usize) -> Option<NonNull<u8>> {
        self.inner.counts.calls.reserve += 1;
        self.heap
            .os
            .reserve(slices.checked_mul(SLICE_BYTES)?, HUGE_BYTES)
    }

    /// Commits the first tables of an arena; the first slices, their neighbours, in the same call if the
    /// kernel lets us.
    fn open_tables(&mut self, arena: &Arena) -> Result<(), OutOfMemory> {
        let head = arena.layout().head;
        let (Some(tags), Some(group)) = (arena.tags_step(head + 1), arena.groups_step(head + 1))
        else {
            return Err(OutOfMemory);
        };
        self.commit_bytes(tags.address, tags.bytes)?;
        let first = match self.heap.is_thrifty() {
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
        if together {
            self.inner.counts.committed_slices += arena.note(head, first, Commit::Yes);
        }
        self.inner.counts.metadata_bytes += tags.bytes + group.bytes;
        Ok(())
    }
}
