//! What is reserved and committed when.
//!
//! Commits go by units of 2 MiB, larger ones as the heap grows unless every commit is charged; what the
//! kernel refuses is asked for again in the exact size. A failure leaves bits and tables as they are.

use super::arena::{Arena, Commit, Layout, Step};
use super::heap::Locked;
use super::want::Want;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory};
use core::ptr::NonNull;

/// Slices of the arenas we would like best (1 TiB), and of the smallest worth a system call (1 MiB).
const MOST_SLICES: usize = (1 << 40) / SLICE_BYTES;
const LEAST_SLICES: usize = (1 << 20) / SLICE_BYTES;
/// An arena takes at most this part of a limited address space, unless one request needs more.
const LIMIT_PART: usize = 8;
/// Largest unit of commits, in slices (32 MiB).
const MOST_UNIT: usize = 16 * HUGE_SLICES;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

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
        let unit = if self.heap.os.strict_commit() {
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
        let allowed = self
            .heap
            .os
            .address_limit()
            .map_or(MOST_SLICES, |limit| limit / LIMIT_PART / SLICE_BYTES);
        let mut slices = allowed.min(MOST_SLICES).max(least);
        loop {
            if let Some(base) = self.reserve_slices(slices) {
                let plan = Layout::plan(slices, self.heap.sides, page);
                return Some(plan.at(base.as_ptr() as usize));
            }
            if slices == least {
                return None;
            }
            slices = (slices / 2).max(least);
        }
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
        let first = (head + FIRST_SLICES)
            .next_multiple_of(HUGE_SLICES)
            .min(group.slices);
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
