//! Address space: opens arenas, lets them grow, and commits their tables.
//!
//! An arena claims addresses, and maps what it uses of them. Thus what the heap does not use does
//! not count against a limit on the address space, which another process may lower at any time.
//! Where no addresses can be claimed, arenas are reserved, the first with 256 MiB.
//!
//! The caller holds [`PageHeap::committing`], and not the heap's lock.

use super::arena::{Arena, Commit, Layout, SliceRef, pointer};
use super::heap::{Locked, PageHeap};
use super::span::{SpanRequest, Use};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Claim, ClaimError, Os, OutOfMemory};
use core::ops::Range;
use core::ptr::NonNull;

/// Slices of the preferred arena (1 TiB), and of the smallest that is worth a system call (1 MiB).
const MOST_SLICES: usize = (1 << 40) / SLICE_BYTES;
const LEAST_SLICES: usize = (1 << 20) / SLICE_BYTES;
/// A reserved arena takes at most this part of a limited address space, unless one request needs
/// more.
const LIMIT_PART: usize = 8;
/// Under a limit below this (64 MiB), on the address space or on writable memory, arenas are small,
/// so that their tables are small, they are reserved, and nothing is committed ahead.
const AMPLE_SLICES: usize = (64 << 20) / SLICE_BYTES;
/// Under a limit on writable memory below this (4 MiB), there are no thread caches, and a request
/// may get a block of a larger class.
const SCANT_SLICES: usize = (4 << 20) / SLICE_BYTES;
/// Slices of the first reserved arena (256 MiB), and of the smallest that is claimed; a further
/// reserved one has as many as all before it.
const DEAR_SLICES: usize = (256 << 20) / SLICE_BYTES;
/// Slices of the first arena at the program break (4 MiB).
const BREAK_SLICES: usize = (4 << 20) / SLICE_BYTES;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

/// The largest size between `least` and `most` slices, halved again and again, for which there is a
/// place, and the place.
fn first_found(
    most: usize,
    least: usize,
    place: impl Fn(usize) -> Option<NonNull<u8>>,
) -> Option<(usize, NonNull<u8>)> {
    let mut slices = most.max(least);
    loop {
        if let Some(base) = place(slices) {
            return Some((slices, base));
        }
        if slices == least {
            return None;
        }
        slices = (slices / 2).max(least);
    }
}

/// Where the first slices of an arena end that are committed together.
fn first_end(head: usize) -> usize {
    (head + FIRST_SLICES).next_multiple_of(HUGE_SLICES)
}

/// What a refusal in an arena means to a request. If something is mapped where the arena would
/// grow, it ends.
#[cold]
pub(super) fn refused_in(arena: &Arena, refused: ClaimError) -> OutOfMemory {
    if refused == ClaimError::Taken {
        arena.stop_growing();
    }
    OutOfMemory
}

impl<O: Os> PageHeap<O> {
    /// Opens the first arena if there is none yet, so that what the program does before its first
    /// allocation cannot keep the heap from one.
    pub fn open(&self) {
        let _alone = self.committing.lock();
        if self.arenas().is_empty() {
            // If it is refused, the first allocation tries again.
            let _ = self.open_arena(&SpanRequest::anywhere(1, Use::Meta));
        }
    }

    /// Opens a new arena in which the request fits. An error when there is no address space, or
    /// when the kernel refused to commit its tables.
    pub(super) fn open_arena(&self, request: &SpanRequest) -> Result<(), OutOfMemory> {
        // Asked once, and not first under the lock, because the answer is in a file.
        let _ = self.os.strict_commit();
        let (id, arena) = self.unopened().ok_or(OutOfMemory)?;
        let least = self.least_slices(request).ok_or(OutOfMemory)?;
        let liked = self.liked_slices();
        let claims = !self.thrifty.load(Relaxed) && self.claim(arena, least, id);
        if !(claims && self.open_prepared(arena).is_ok()) {
            if !self.reserve(arena, liked, least) {
                return Err(OutOfMemory);
            }
            self.open_prepared(arena)?;
        }
        self.publish(id);
        Ok(())
    }

    /// Slices of the smallest arena in which the request fits. Like the next three, apart from its
    /// caller, whose frame stays small, because stacks may be.
    #[inline(never)]
    fn least_slices(&self, request: &SpanRequest) -> Option<usize> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let usable = request.slices.checked_add(request.align - 1)?;
        let least = Layout::plan_for(usable, self.sides, page)?;
        Some(least.slices.max(LEAST_SLICES))
    }

    /// Opens an arena that has its layout.
    #[inline(never)]
    fn open_prepared(&self, arena: &Arena) -> Result<(), OutOfMemory> {
        // Only the holder of `committing` changes these.
        let counted = {
            let counts = &self.locked().inner.counts;
            (counts.metadata_bytes, counts.reserved_bytes)
        };
        let head = arena.layout().head;
        let opened = match arena.layout().claimed {
            true => self.grow_exactly(arena, head, first_end(head)),
            false => self.open_reservation(arena),
        };
        if opened.is_err() {
            for range in arena.mapped() {
                self.unmap(range);
            }
            let counts = &mut self.locked().inner.counts;
            (counts.metadata_bytes, counts.reserved_bytes) = counted;
        }
        Ok(opened?)
    }

    /// Commits the first tables of a reserved arena, and its first slices if the kernel lets us.
    fn open_reservation(&self, arena: &Arena) -> Result<(), ClaimError> {
        let (head, range) = (arena.layout().head, arena.layout().range());
        self.ready_tables(arena, head + 1)?;
        self.locked().inner.counts.reserved_bytes += range.len();
        self.advise_mapping(range);
        if !self.thrifty.load(Relaxed) {
            let first = first_end(head).min(arena.ready.get());
            let _ = self.commit_exactly(arena, head, first);
        }
        Ok(())
    }

    fn unmap(&self, range: Range<usize>) {
        if !range.is_empty() {
            // SAFETY: all callers name what an arena has mapped and no thread uses.
            unsafe { self.os.unmap(pointer(range.start), range.len()) };
        }
    }

    /// Gives an arena addresses for the preferred size, or half of it and so on, down to `least`
    /// slices, of which nothing is mapped. False if there are none.
    #[inline(never)]
    fn claim(&self, arena: &Arena, least: usize, nth: usize) -> bool {
        let least = least.max(DEAR_SLICES);
        let owner = core::ptr::from_ref(self.tables).addr();
        let claim = |slices: usize| {
            let bytes = slices.checked_mul(SLICE_BYTES)?;
            self.os.claim(bytes, HUGE_BYTES, owner, nth)
        };
        let found = first_found(MOST_SLICES, least, claim);
        self.prepare(arena, found, true)
    }

    /// Reserves an arena of the liked size, or else ever smaller ones, down to `least` slices.
    #[inline(never)]
    fn reserve(&self, arena: &Arena, liked: usize, least: usize) -> bool {
        let found = first_found(liked, least, |slices| self.reserve_slices(slices));
        let found = found.or_else(|| self.reserve_at_break(least));
        self.prepare(arena, found, false)
    }

    fn prepare(&self, arena: &Arena, found: Option<(usize, NonNull<u8>)>, claimed: bool) -> bool {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        found.is_some_and(|(slices, base)| {
            let plan = Layout::plan(slices, self.sides, page);
            // SAFETY: `committing` is held and the arena not published.
            unsafe { arena.prepare(plan.at(base.as_ptr().addr(), claimed)) };
            true
        })
    }

    /// Slices of an arena that is reserved. Also looks at the limits in force.
    fn liked_slices(&self) -> usize {
        let in_slices = |limit: Option<usize>| limit.unwrap_or(usize::MAX) / SLICE_BYTES;
        let kept = in_slices(self.os.address_limit()) / LIMIT_PART;
        let data = in_slices(self.os.data_limit());
        if data >= AMPLE_SLICES && kept >= AMPLE_SLICES / LIMIT_PART {
            return kept.min(self.reserved_slices().max(DEAR_SLICES));
        }
        self.thrifty.store(true, Relaxed);
        if data < SCANT_SLICES {
            self.scant.store(true, Relaxed);
        }
        kept.min(data.max(AMPLE_SLICES / LIMIT_PART))
    }

    fn reserved_slices(&self) -> usize {
        self.locked().inner.counts.reserved_bytes / SLICE_BYTES
    }

    /// An arena where no mapping can be added, because the process has as many as it may.
    fn reserve_at_break(&self, least: usize) -> Option<(usize, NonNull<u8>)> {
        let doubled = self.reserved_slices().min(DEAR_SLICES);
        [doubled.max(BREAK_SLICES).max(least), least]
            .into_iter()
            .find_map(|slices| {
                let bytes = slices.checked_mul(SLICE_BYTES)?;
                Some((slices, self.os.reserve_at_break(bytes, HUGE_BYTES)?))
            })
    }

    fn reserve_slices(&self, slices: usize) -> Option<NonNull<u8>> {
        self.os
            .reserve(slices.checked_mul(SLICE_BYTES)?, HUGE_BYTES)
    }

    /// Maps and commits the slices of an arena from where it has [grown](Arena::grown) to up to
    /// `to`, and their tables. If they begin beyond that, the slices between are only mapped. Goes
    /// on to the end of a unit, but not beyond `limit`; `None`: as far as there are tables.
    pub(super) fn grow(
        &self,
        arena: &Arena,
        from: usize,
        to: usize,
        limit: Option<usize>,
    ) -> Result<(), OutOfMemory> {
        let limit = limit.unwrap_or(arena.ready.get()).min(arena.reach.get());
        let wide = self.locked().unit_end(to).min(limit).max(to);
        let mut grown = self.grow_exactly(arena, from, wide);
        if grown.is_err() && wide > to {
            grown = self.grow_exactly(arena, from, to);
        }
        grown.map_err(|refused| refused_in(arena, refused))
    }

    /// The slices first: tables are never given back, so a request that is refused must not have
    /// paid for them.
    #[inline(never)]
    fn grow_exactly(&self, arena: &Arena, from: usize, to: usize) -> Result<(), ClaimError> {
        let (layout, end) = (arena.layout(), arena.grown());
        let mut from = from.max(end);
        let gap = layout.address(end)..layout.address(from);
        // A short gap is committed as well, because that takes no mapping of its own. A long one is
        // where none can be added.
        let skips = from - end >= HUGE_SLICES || !layout.claimed;
        match skips.then(|| self.map(arena, gap, Claim::Reserved)) {
            Some(Ok(())) => arena.end.set(from.max(arena.end.get())),
            Some(Err(ClaimError::Taken)) => return Err(ClaimError::Taken),
            Some(Err(ClaimError::OutOfMemory)) | None => from = end,
        }
        let slices = layout.address(from)..layout.address(to);
        let claim = match self.locked().may_extend(arena, from) {
            true => Claim::Extended,
            false => Claim::Committed,
        };
        self.map(arena, slices.clone(), claim)?;
        if let Err(refused) = self.ready_tables(arena, to) {
            self.unmap_again(arena, slices);
            return Err(refused);
        }
        let mut locked = self.locked();
        locked.set_committed(arena, from, to);
        arena.end.set(to.max(arena.end.get()));
        // Who counts the arena's pages from outside must see its new end before they are touched.
        locked.write_mirror();
        drop(locked);
        self.publish_tags();
        Ok(())
    }

    /// Maps what lies beside the mapped parts of a claimed arena, and gives the kernel the policy's
    /// advice for it. In a reserved arena it is only committed.
    fn map(&self, arena: &Arena, range: Range<usize>, claim: Claim) -> Result<(), ClaimError> {
        if !arena.layout().claimed {
            return match claim {
                Claim::Reserved => Ok(()),
                Claim::Committed | Claim::Extended => {
                    Ok(self.commit_bytes(range.start, range.len())?)
                }
            };
        }
        // SAFETY: the callers name what lies beside the mapped parts; what is to be extended is the
        // arena's own.
        unsafe {
            self.os
                .map_claimed(pointer(range.start), range.len(), claim)?
        };
        self.locked().inner.counts.reserved_bytes += range.len();
        self.advise_mapping(range);
        Ok(())
    }

    /// Undoes [`PageHeap::map`] of a range that has no tables.
    fn unmap_again(&self, arena: &Arena, range: Range<usize>) {
        if arena.layout().claimed {
            self.locked().inner.counts.reserved_bytes -= range.len();
            return self.unmap(range);
        }
        // SAFETY: slices beyond the tables are in no span. If the kernel refuses, they stay
        // readable, and are committed once more when they are needed.
        let _ = unsafe { self.map_afresh(pointer(range.start), range.len(), Commit::No) };
    }

    pub(super) fn commit_bytes(&self, address: usize, bytes: usize) -> Result<(), OutOfMemory> {
        // SAFETY: all callers name ranges of one arena, which is one reservation.
        unsafe { self.os.commit(pointer(address), bytes) }
    }

    /// Commits what slices below `to` need in the tables.
    #[inline(never)]
    pub(super) fn ready_tables(&self, arena: &Arena, to: usize) -> Result<(), ClaimError> {
        if let Some((range, slices)) = arena.tags_step(to) {
            let bytes = range.len();
            let claim = match arena.tagged.get() {
                0 => Claim::Committed,
                _ => Claim::Extended,
            };
            self.map(arena, range, claim)?;
            self.locked().inner.counts.metadata_bytes += bytes;
            arena.tagged.set(slices);
            self.publish_tags();
        }
        if let Some((range, slices)) = arena.groups_step(to) {
            let before = arena.groups_from.get();
            self.map_groups(arena, range.start, slices)?;
            let now = arena.groups_from.get();
            let committed = self.commit_bytes(range.start, range.len());
            if committed.is_err() && now < before {
                self.unmap_again(arena, now..before);
                arena.groups_from.set(before);
            }
            committed?;
            self.locked().inner.counts.metadata_bytes += range.len();
            arena.ready.set(slices);
        }
        Ok(())
    }

    /// Maps addresses for the groups of `slices` slices, the last of which is at `last`, and ahead
    /// of their use if the kernel lets us. If something seems to be in the way, maps pieces from
    /// the end downwards, because Linux 6.7 to 6.11 accepts an address hint for 2 MiB or more only
    /// with 2 MiB of room after it.
    fn map_groups(&self, arena: &Arena, last: usize, slices: usize) -> Result<(), ClaimError> {
        let mut start = arena.layout().groups_ahead(slices);
        let mut most = usize::MAX;
        while start < arena.groups_from.get() {
            let end = arena.groups_from.get();
            let from = start.max(end.saturating_sub(most));
            match self.map(arena, from..end, Claim::Reserved) {
                Ok(()) => arena.groups_from.set(from),
                Err(ClaimError::Taken) if most > HUGE_BYTES => most = HUGE_BYTES / 2,
                // Refused for want of a mapping, or of address space: the arena ends here, because
                // a further one may lie where neither is needed, at the break.
                Err(_) if start >= last => return Err(ClaimError::Taken),
                Err(_) => start = last,
            }
        }
        Ok(())
    }
}

impl<O: Os> Locked<'_, O> {
    /// Whether the mapping before a slice is the arena's own, and the program mapped nothing over
    /// it.
    fn may_extend(&self, arena: &Arena, index: usize) -> bool {
        let last = index - 1;
        let is_overmapped = |last: usize| {
            let index = last - arena.record(last).back.get();
            SliceRef { arena, index }.is_overmapped()
        };
        last >= arena.layout().head && !(last < arena.frontier.get() && is_overmapped(last))
    }

    pub(super) fn set_committed(&mut self, arena: &Arena, from: usize, to: usize) {
        self.inner.counts.committed_slices += arena.set_commit(from, to, Commit::Yes);
    }
}
