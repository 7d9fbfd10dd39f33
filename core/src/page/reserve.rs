//! What is reserved when: arenas opened, and what was never used of them given up.
//!
//! The caller holds [`PageHeap::committing`], and not the heap's lock.

use super::arena::{Arena, Commit, Layout};
use super::grow::Refusal;
use super::heap::PageHeap;
use super::want::Want;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory};
use core::ops::Range;
use core::ptr::NonNull;

/// Slices of the arenas we would like best (1 TiB), and of the smallest worth a system call (1 MiB).
const MOST_SLICES: usize = (1 << 40) / SLICE_BYTES;
const LEAST_SLICES: usize = (1 << 20) / SLICE_BYTES;
/// An arena takes at most this part of a limited address space, unless one request needs more.
const LIMIT_PART: usize = 8;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

impl<O: Os> PageHeap<O> {
    /// Opens a new arena in which the request fits. An error when there is no address space, or when the kernel refused
    /// to commit its tables.
    pub(super) fn open_arena(&self, want: &Want) -> Result<(), Refusal> {
        // Asked once, and not first under the lock, for the answer stands in a file.
        let _ = self.os.strict_commit();
        let (id, arena) = self.unopened().ok_or(Refusal::Space)?;
        let layout = self.reserve(want).ok_or(Refusal::Space)?;
        // SAFETY: `committing` is held and the arena not published.
        unsafe { arena.prepare(layout) };
        let base = NonNull::new(layout.base as *mut u8).ok_or(Refusal::Space)?;
        if let Err(refused) = self.open_tables(arena) {
            // SAFETY: the whole reservation of `reserve`, of which nobody has heard.
            unsafe { self.os.release(base, layout.slices * SLICE_BYTES) };
            return Err(refused.into());
        }
        // SAFETY: the whole reservation of `reserve`, of which nobody has heard.
        unsafe { self.advise_mapping(base, layout.slices * SLICE_BYTES) };
        self.locked().inner.counts.reserved_slices += layout.slices;
        self.publish(id);
        Ok(())
    }

    /// Gives up what is reserved and was never used, for it counts where the process may lock only so many bytes. Later
    /// requests open arenas of what size the kernel then grants.
    pub fn give_up_rest(&self) {
        let _alone = self.committing.lock();
        for arena in self.arenas() {
            let (layout, ready) = (arena.layout(), arena.ready());
            let end = arena.find(arena.frontier(), ready, Commit::No);
            let end = end.min(arena.tagged());
            if end == arena.limit() {
                continue;
            }
            let rest = layout.address(end)..layout.address(arena.limit());
            let locked = self.locked();
            locked.inner.counts.committed_slices -= arena.note(end, ready, Commit::No);
            locked.inner.counts.reserved_slices -= arena.limit() - end;
            arena.set_limit(end);
            drop(locked);
            // Once for each arena: the next time its limit is where this ends.
            self.give_up(rest);
            self.give_up(arena.unused_tables());
        }
    }

    fn give_up(&self, range: Range<usize>) {
        let start = NonNull::new(range.start as *mut u8).filter(|_| !range.is_empty());
        if let Some(start) = start {
            // SAFETY: within an arena, beyond all spans and all tables, and no longer within its limit.
            unsafe { self.os.give_up(start, range.len()) };
        }
    }

    /// Reserves an arena: of the size we like best, else smaller and smaller, down to what the request needs.
    fn reserve(&self, want: &Want) -> Option<Layout> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let usable = want.slices.checked_add(want.align - 1)?;
        let least = Layout::plan_for(usable, self.sides, page)?;
        let least = least.slices.max(LEAST_SLICES);
        let allowed = self
            .os
            .address_limit()
            .map_or(MOST_SLICES, |limit| limit / LIMIT_PART / SLICE_BYTES);
        let mut slices = allowed.min(MOST_SLICES).max(least);
        loop {
            if let Some(base) = self.reserve_slices(slices) {
                let plan = Layout::plan(slices, self.sides, page);
                return Some(plan.at(base.as_ptr() as usize));
            }
            if slices == least {
                return None;
            }
            slices = (slices / 2).max(least);
        }
    }

    fn reserve_slices(&self, slices: usize) -> Option<NonNull<u8>> {
        self.calls.note_reserve();
        self.os
            .reserve(slices.checked_mul(SLICE_BYTES)?, HUGE_BYTES)
    }

    /// Commits the first tables of an arena; the first slices, their neighbours, in the same call if the
    /// kernel lets us.
    fn open_tables(&self, arena: &Arena) -> Result<(), OutOfMemory> {
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
        let mut locked = self.locked();
        if together {
            locked.note_committed(arena, head, first);
        }
        locked.inner.counts.metadata_bytes += tags.bytes + group.bytes;
        Ok(())
    }
}
