//! What is reserved and committed when.
//!
//! Commits go by units of 2 MiB, larger ones as the heap grows unless every commit is charged; what the
//! kernel refuses is asked for again in the exact size. A failure leaves bits and tables as they are.
//!
//! No system call is made under the heap's lock. One thread at a time commits; it holds
//! [`PageHeap::committing`] meanwhile, and what it works on is no other thread's: a piece of a free span that was set
//! aside, and everything at and beyond an arena's frontier.

use super::Use;
use super::arena::{Arena, Commit, Layout, Step};
use super::heap::{Locked, PageHeap};
use super::limits::Verdict;
use super::span::Record;
use super::want::{Age, Density, From, Goal, Want};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, OutOfMemory};
use core::ops::Range;
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
/// How often a lock is tried whose holder the caller may have interrupted.
const LOCK_TRIES: usize = 1000;
/// Largest unit of commits, in slices (32 MiB).
const MOST_UNIT: usize = 16 * HUGE_SLICES;
/// Fewest slices to commit with an arena's first tables.
const FIRST_SLICES: usize = HUGE_SLICES / 2;

/// Committed room for a request: a free span, and the slice in it where the request begins.
pub(super) type Room<'h> = (&'h Record, usize);

/// What a request lacks.
enum Lack<'h> {
    /// Committed slices.
    Slices(Stretch<'h>),
    /// An arena with room.
    Arena,
}

/// Slices that are to be committed.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'h> {
    pub(super) arena: &'h Arena,
    pub(super) id: usize,
    /// What of it lies below the frontier: a piece of a free span, set aside.
    pub(super) part: Option<&'h Record>,
    pub(super) from: usize,
    pub(super) to: usize,
    /// Up to where as much may be committed as is worth a system call; `None`: as far as there are tables.
    limit: Option<usize>,
    /// How many units of huge pages they are to be; 0: ordinary slices.
    pub(super) units: usize,
}

/// Why nothing was made.
enum Refusal {
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

/// What may still be tried for a request.
#[derive(Clone, Copy)]
struct Tries {
    /// Most units of huge pages at once.
    units: usize,
    arena: bool,
    relinquish: bool,
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
            let want = Want {
                slices: 1,
                align: 1,
                from: From::Anywhere,
                density: Density::Unknown,
            };
            // If it is refused, the first allocation tries again.
            let _ = self.open_arena(&want);
        }
    }

    /// Hears that the limit on the process's address space may have become lower: what is reserved and
    /// not used counts against it, and keeps threads from starting. Does not wait for the heap's locks
    /// for long: the caller may have interrupted their holder.
    pub fn note_address_limit(&self) {
        if let Some(limit) = self.os.address_limit() {
            self.fit_address_limit(limit);
        }
    }

    /// Gives back what is reserved and not used, but for what `limit` bytes of address space leave.
    pub(super) fn fit_address_limit(&self, limit: usize) {
        let alone = (0..LOCK_TRIES).find_map(|_| self.committing.try_lock());
        if let Some(_alone) = alone {
            for arena in self.arenas() {
                let ranges = self.shorten(arena, limit);
                ranges
                    .into_iter()
                    .flatten()
                    .for_each(|range| self.release_range(range));
            }
        }
    }

    /// Ends an arena where nothing uses it any more, but for what `limit` bytes of address space leave
    /// an arena. Returns the addresses that it does not need any more. Concurrent frees see nothing of
    /// it: tags and tables of slices that were ever used stay. The caller holds `committing`.
    fn shorten(&self, arena: &Arena, limit: usize) -> Option<[Range<usize>; 3]> {
        let locked = (0..LOCK_TRIES).find_map(|_| self.try_locked())?;
        let (layout, old) = (arena.layout(), arena.end());
        let used = arena.find(arena.frontier(), arena.ready(), Commit::No);
        let end = (layout.head + kept_slices(limit)).max(used);
        if end >= old {
            return None;
        }
        let (tags, groups) = arena.tables(end);
        let (old_tags, old_groups) = arena.tables(old);
        let committed = arena.note(end, arena.ready().max(end), Commit::No);
        locked.inner.counts.committed_slices -= committed;
        arena.set_end(end);
        let slices = layout.address(end)..layout.address(old);
        Some(match old == layout.slices {
            true => [slices, tags..groups, 0..0],
            // What lies between went back before, and may be another's by now.
            false => [slices, tags..old_tags, old_groups..groups],
        })
    }

    fn release_range(&self, range: Range<usize>) {
        let Some(start) = NonNull::new(range.start as *mut u8).filter(|_| !range.is_empty()) else {
            return;
        };
        // SAFETY: of one arena; no span was ever there, nor tables that are committed, and none will be:
        // the arena ends before.
        unsafe { self.os.release_part(start, range.len()) };
        let slices = range.len() / SLICE_BYTES;
        let counts = &mut self.locked().inner.counts;
        counts.reserved_slices = counts.reserved_slices.saturating_sub(slices);
    }

    /// The heap, locked, and room for a request in it; `None` when a limit or the kernel refuses.
    pub(super) fn room_for(&self, goal: &Goal<'_>, use_: Use) -> Option<(Locked<'_, O>, Room<'_>)> {
        let locked = self.admitted(goal.slices(), use_)?;
        if let Some(room) = locked.find_ready(goal) {
            return Some((locked, room));
        }
        drop(locked);
        self.make_room(goal, use_)
    }

    /// The same for a request that finds no committed room.
    #[cold]
    fn make_room(&self, goal: &Goal<'_>, use_: Use) -> Option<(Locked<'_, O>, Room<'_>)> {
        let _alone = self.committing.lock();
        let mut tries = Tries {
            units: usize::MAX,
            arena: true,
            relinquish: true,
        };
        loop {
            let mut locked = self.admitted(goal.slices(), use_)?;
            if let Some(room) = locked.find_ready(goal) {
                return Some((locked, room));
            }
            let lack = locked.find_lack(goal, tries.units)?;
            drop(locked);
            let made = match (&lack, goal) {
                (Lack::Slices(stretch), _) => {
                    let (locked, room) = self.commit_stretch(stretch);
                    // Room that was made is taken at once: nobody comes between, and whether it is found
                    // again depends on what else is free.
                    let granted = locked.judge(goal.slices(), use_) == Verdict::Granted;
                    match room {
                        Ok(room) if granted => return Some((locked, room)),
                        made => made.map(|_| ()).map_err(Refusal::from),
                    }
                }
                (Lack::Arena, Goal::Fit(want)) if tries.arena => self.open_arena(want),
                (Lack::Arena, _) => return None,
            };
            tries.after(&lack, made, || self.relinquish() > 0)?;
        }
    }

    /// Commits a stretch, then puts it where requests find it. Returns the heap, locked, and the room that was made.
    fn commit_stretch<'h>(
        &'h self,
        stretch: &Stretch<'h>,
    ) -> (Locked<'h, O>, Result<Room<'h>, OutOfMemory>) {
        let (arena, from, to) = (stretch.arena, stretch.from, stretch.to);
        let committed = self.commit_with_tables(stretch.id, from, to);
        let committed = committed.and_then(|()| {
            let limit = stretch
                .limit
                .unwrap_or_else(|| arena.ready().min(arena.end()));
            self.commit(arena, from, to, limit)
        });
        if committed.is_ok() {
            self.advise_units(stretch);
        }
        let mut locked = self.locked();
        let aside = stretch.part.map(|part| locked.put_back(part, Age::New));
        let room = committed.and_then(|()| {
            let free = locked.open_stretch(stretch).or(aside).ok_or(OutOfMemory)?;
            Ok((free, from))
        });
        (locked, room)
    }

    /// Commits the slices `from..to`, and when that takes a system call at the end, as many after them as a
    /// unit has, below `limit`. What was not committed is clean.
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

    fn commit_exactly(&self, arena: &Arena, from: usize, to: usize) -> Result<(), OutOfMemory> {
        self.commit_bytes(arena.layout().address(from), (to - from) * SLICE_BYTES)?;
        self.locked().note_committed(arena, from, to);
        Ok(())
    }

    fn commit_bytes(&self, address: usize, bytes: usize) -> Result<(), OutOfMemory> {
        self.calls.note_commit();
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

    /// Commits those of the slices `from..to` that have no tables yet, and their tables. The slices first:
    /// tables are never given back, so a request that is refused must not have paid for them.
    fn commit_with_tables(&self, id: usize, from: usize, to: usize) -> Result<(), OutOfMemory> {
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
        self.locked().note_committed(arena, from, to);
        Ok(())
    }

    /// Uncommits what was committed just now and has no tables.
    fn take_back(&self, address: usize, bytes: usize) {
        self.calls.note_uncommit();
        if let Some(start) = NonNull::new(address as *mut u8) {
            // SAFETY: slices beyond the tables belong to nobody. If the kernel refuses, they stay readable,
            // and are committed once more when they are needed.
            let _ = unsafe { self.os.uncommit(start, bytes) };
        }
    }

    /// Opens a new arena in which the request fits. An error when there is no address space, or when the kernel refused
    /// to commit its tables.
    fn open_arena(&self, want: &Want) -> Result<(), Refusal> {
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

    /// Gives up what is reserved and was never used, for it counts where the process may lock only so many
    /// bytes. Later requests open arenas of what size the kernel then grants.
    pub fn give_up_rest(&self) {
        self.fit_address_limit(0);
    }

    /// Reserves an arena: of the size we like best, else smaller and smaller, down to what the request needs.
    fn reserve(&self, want: &Want) -> Option<Layout> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let usable = want.slices.checked_add(want.align - 1)?;
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

    /// Slices of the arena we would like best.
    fn liked_slices(&self) -> usize {
        let kept = self.os.address_limit().map_or(MOST_SLICES, kept_slices);
        let data = self
            .os
            .data_limit()
            .map_or(MOST_SLICES, |limit| limit / SLICE_BYTES);
        if data < AMPLE_SLICES || kept < AMPLE_SLICES / LIMIT_PART {
            self.be_thrifty();
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

    /// An arena where no mapping can be added, for the process has as many as it may.
    fn reserve_at_break(&self, least: usize) -> Option<Layout> {
        let page = self.os.page_bytes().min(SLICE_BYTES);
        let doubled = self.reserved_slices().min(DEAR_SLICES);
        [doubled.max(BREAK_SLICES).max(least), least]
            .into_iter()
            .find_map(|slices| {
                self.calls.note_reserve();
                let bytes = slices.checked_mul(SLICE_BYTES)?;
                let base = self.os.reserve_at_break(bytes, HUGE_BYTES)?;
                Some(Layout::plan(slices, self.sides, page).at(base.as_ptr() as usize))
            })
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
            locked.note_committed(arena, head, first);
        }
        locked.inner.counts.metadata_bytes += tags.bytes + group.bytes;
        Ok(())
    }
}

impl<'h> Stretch<'h> {
    /// Units of huge pages at the frontier or beyond it.
    pub(super) fn of_units(arena: &'h Arena, id: usize, at: usize, units: usize) -> Self {
        let to = at + units * HUGE_SLICES;
        Self {
            arena,
            id,
            part: None,
            from: at,
            to,
            limit: Some(to),
            units,
        }
    }
}

impl Tries {
    /// Notes what came of this attempt; `None` when nothing is left to try.
    fn after(
        &mut self,
        lack: &Lack<'_>,
        made: Result<(), Refusal>,
        relinquish: impl FnOnce() -> bool,
    ) -> Option<()> {
        match (lack, made) {
            (Lack::Slices(_), Ok(())) => {}
            (Lack::Arena, Ok(())) => self.arena = false,
            (Lack::Slices(stretch), Err(_)) if stretch.units > 0 => {
                self.units = usize::from(stretch.units > 1);
            }
            (_, Err(Refusal::Commit)) if self.relinquish && relinquish() => {
                self.relinquish = false;
            }
            (_, Err(_)) => return None,
        }
        Some(())
    }
}

impl<'h, O: Os> Locked<'h, O> {
    fn note_committed(&mut self, arena: &Arena, from: usize, to: usize) {
        self.inner.counts.committed_slices += arena.note(from, to, Commit::Yes);
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

    /// What a request lacks that finds no committed room; `None` when it cannot be met. What is to be committed of a
    /// free span is set aside.
    fn find_lack(&mut self, goal: &Goal<'_>, units: usize) -> Option<Lack<'h>> {
        if let Some((free, at)) = self.find_free(goal) {
            return Some(Lack::Slices(self.stretch_in(free, at, goal.slices())));
        }
        match *goal {
            Goal::At { id, at, slices } => {
                let stretch = self.stretch_behind(id, at, slices)?;
                Some(Lack::Slices(stretch))
            }
            Goal::Fit(want) if want.from == From::Dirty || want.is_too_long() => None,
            Goal::Fit(want) => {
                let arenas = 0..self.heap.arenas().len();
                let unit = self.stretch_of_units(want, units);
                let stretch = unit.or_else(|| {
                    arenas
                        .into_iter()
                        .find_map(|id| self.stretch_at_frontier(id, want))
                });
                Some(stretch.map_or(Lack::Arena, Lack::Slices))
            }
        }
    }

    /// Slices of a free span.
    fn stretch_in(&mut self, free: &'h Record, at: usize, slices: usize) -> Stretch<'h> {
        let (id, end) = (free.arena(), free.end());
        let arena = self.arena(id);
        let to = at + slices;
        let wide = match arena.find(to - 1, to, Commit::No) < to {
            true => self.widen(arena, to, end),
            false => to,
        };
        Stretch {
            arena,
            id,
            part: Some(self.set_aside(free, at, wide - at)),
            from: at,
            to,
            limit: Some(wide),
            units: 0,
        }
    }

    /// Slices at the frontier of an arena, the end of a free span before it among them. `None` if it ends too soon.
    fn stretch_at_frontier(&mut self, id: usize, want: &Want) -> Option<Stretch<'h>> {
        let arena = self.arena(id);
        let frontier = arena.frontier();
        let start = self
            .free_before(arena, frontier)
            .filter(|free| !free.is_huge())
            .map_or(frontier, |free| free.index.get());
        let at = arena.layout().align_up(start, want.align);
        self.stretch_over_frontier(id, at, want.slices)
    }

    /// Slices from `at` on, where a free span that reaches up to the frontier begins, or the frontier is.
    fn stretch_behind(&mut self, id: usize, at: usize, slices: usize) -> Option<Stretch<'h>> {
        let arena = self.arena(id);
        let free = self.free_at(arena, at);
        let reaches = free.map_or(at, Record::end) == arena.frontier();
        let ordinary = free.is_none_or(|free| !free.is_huge());
        (reaches && ordinary).then(|| self.stretch_over_frontier(id, at, slices))?
    }

    /// Slices from `at` on, in the free span before the frontier or beyond it.
    fn stretch_over_frontier(
        &mut self,
        id: usize,
        at: usize,
        slices: usize,
    ) -> Option<Stretch<'h>> {
        let (arena, to) = (self.arena(id), at + slices);
        if to > arena.end() {
            return None;
        }
        let frontier = arena.frontier();
        let part = match self.free_before(arena, frontier) {
            Some(free) if at < frontier => Some(self.set_aside(free, at, to.min(frontier) - at)),
            _ => None,
        };
        Some(Stretch {
            arena,
            id,
            part,
            from: at,
            to,
            limit: (to <= frontier).then_some(to),
            units: 0,
        })
    }

    /// Moves the frontier over what is committed beyond it. Returns the free span that it begins, if there is any.
    fn open_stretch(&mut self, stretch: &Stretch<'h>) -> Option<&'h Record> {
        match stretch.units {
            0 => self.pass_frontier(stretch.id, stretch.to),
            _ => self.open_units(stretch),
        }
    }
}
