//! What is committed when.
//!
//! Commits go by units of 2 MiB, larger ones as the heap grows unless every commit is charged; what
//! the kernel refuses is asked for again in the exact size. A failure leaves bits and tables as
//! they are.
//!
//! No system call is made under the heap's lock. One thread at a time commits; it holds
//! [`PageHeap::committing`] meanwhile, and what it works on is no other thread's: a piece of a free
//! span that was set aside, and everything at and beyond an arena's frontier.

use super::arena::{Arena, Commit};
use super::free_spans::Room;
use super::heap::{Locked, PageHeap};
use super::huge::mark;
use super::limits::Verdict;
use super::reserve::Refusal;
use super::span::{Age, Density, From, Goal, Record, Use, Want};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::{Huge, Os, OutOfMemory};

/// Largest unit of commits, in slices (32 MiB).
const MOST_UNIT: usize = 16 * HUGE_SLICES;

/// The heap, locked, and committed room in it.
pub(super) type Found<'h, O> = (Locked<'h, O>, Room<'h>);

/// Why a request has no room yet.
enum Missed {
    /// Something was made or given back: it may be tried again.
    Again,
    /// A limit or the kernel refuses it.
    Refused,
}

/// What a request finds.
enum Look<'h, O: Os> {
    /// Room.
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
    /// Up to where as much may be committed as is worth a system call; `None`: as far as there are
    /// tables.
    limit: Option<usize>,
    /// How many units of huge pages they are to be; 0: ordinary slices.
    pub(super) units: usize,
}

/// What may still be tried for a request.
#[derive(Clone, Copy)]
struct Tries {
    /// Most units of huge pages at once.
    units: usize,
    arena: bool,
    relinquish: bool,
    /// Look only when no piece is set aside.
    settled: bool,
    /// What was set aside at the last look may have more.
    hidden: bool,
}

impl<O: Os> PageHeap<O> {
    /// The heap, locked, and room for a request in it; `None` when a limit or the kernel refuses.
    pub(super) fn room_for(&self, goal: &Goal<'_>, use_: Use) -> Option<Found<'_, O>> {
        let locked = self.locked();
        if locked.judge(goal.slices(), use_) == Verdict::Granted
            && let Some(room) = locked.find_ready(goal)
        {
            return Some((locked, room));
        }
        drop(locked);
        self.make_room(goal, use_)
    }

    /// [`PageHeap::room_for`] for a request that finds no committed room, or that a limit does not
    /// grant at once.
    ///
    /// A purge may have the only room that would serve, or the pages that keep the request from a
    /// limit. So before it refuses a request, the heap is looked at once more at a moment when no
    /// piece of it is set aside.
    #[cold]
    fn make_room(&self, goal: &Goal<'_>, use_: Use) -> Option<Found<'_, O>> {
        let _alone = self.committing.lock();
        let mut tries = Tries {
            units: usize::MAX,
            arena: true,
            relinquish: true,
            settled: false,
            hidden: false,
        };
        loop {
            let missed = match self.look(goal, use_, &mut tries) {
                Look::Found(found) => return Some(found),
                Look::Dirty(most) => {
                    self.purge_above(most);
                    Missed::Again
                }
                Look::Lack(lack) => match self.make(&lack, goal, use_, &mut tries) {
                    Ok(found) => return Some(found),
                    Err(missed) => missed,
                },
                Look::Refused => Missed::Refused,
            };
            match missed {
                Missed::Again => {}
                // Once: in a fork's child the pieces that other threads had set aside never come
                // back.
                Missed::Refused if tries.hidden && !tries.settled => tries.settled = true,
                Missed::Refused => return None,
            }
        }
    }

    /// Makes what a request lacks.
    #[inline(never)]
    fn make<'h>(
        &'h self,
        lack: &Lack<'h>,
        goal: &Goal<'_>,
        use_: Use,
        tries: &mut Tries,
    ) -> Result<Found<'h, O>, Missed> {
        let made = match (lack, goal) {
            (Lack::Slices(stretch), _) => {
                let (locked, room) = self.commit_stretch(stretch);
                // Room that was made is taken at once: no other thread comes between, and whether
                // it is found again depends on what else is free.
                let granted = locked.judge(goal.slices(), use_) == Verdict::Granted;
                match room {
                    Ok(room) if granted => return Ok((locked, room)),
                    made => made.map(|_| ()).map_err(Refusal::from),
                }
            }
            (Lack::Arena, Goal::Fit(want)) if tries.arena => self.open_arena(want),
            (Lack::Arena, _) => return Err(Missed::Refused),
        };
        Err(tries.after(lack, made, || self.relinquish() > 0))
    }

    /// What a request finds. The frame ends before that of [`PageHeap::make`] begins, for stacks
    /// may be small. The caller holds `committing`.
    #[inline(never)]
    fn look(&self, goal: &Goal<'_>, use_: Use, tries: &mut Tries) -> Look<'_, O> {
        let mut locked = match tries.settled {
            true => self.settled(),
            false => self.locked(),
        };
        tries.hidden = locked.inner.aside > 0 && !goal.is_optional();
        match locked.judge(goal.slices(), use_) {
            Verdict::Granted => match locked.find_ready(goal) {
                Some(room) => Look::Found((locked, room)),
                None => locked
                    .find_lack(goal, tries.units)
                    .map_or(Look::Refused, Look::Lack),
            },
            Verdict::AfterPurge(most) if locked.may_purge() => Look::Dirty(most),
            // The kernel refused to purge what is dirty, or the program locked it.
            Verdict::AfterPurge(_) | Verdict::Refused => Look::Refused,
        }
    }

    /// The heap, locked, with no piece of it set aside. The caller holds `committing`.
    fn settled(&self) -> Locked<'_, O> {
        let alone = self.purging.lock();
        let mut locked = self.locked();
        locked.given_up_after(alone);
        locked
    }

    /// Commits a stretch, then puts it where requests find it. Returns the heap, locked, and the
    /// room that was made.
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

    /// Asks the kernel for huge pages in a stretch of units.
    fn advise_units(&self, stretch: &Stretch<'_>) {
        if stretch.units > 0 {
            let start = stretch.arena.layout().address(stretch.from);
            self.advise(start..start + stretch.units * HUGE_BYTES, Huge::Want);
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

    fn commit_exactly(&self, arena: &Arena, from: usize, to: usize) -> Result<(), OutOfMemory> {
        self.commit_bytes(arena.layout().address(from), (to - from) * SLICE_BYTES)?;
        self.locked().note_committed(arena, from, to);
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
    /// Notes what came of an attempt, and says whether anything is left to try.
    fn after(
        &mut self,
        lack: &Lack<'_>,
        made: Result<(), Refusal>,
        relinquish: impl FnOnce() -> bool,
    ) -> Missed {
        match (lack, made) {
            (Lack::Slices(_), Ok(())) => {}
            (Lack::Arena, Ok(())) => self.arena = false,
            (Lack::Slices(stretch), Err(_)) if stretch.units > 0 => {
                self.units = usize::from(stretch.units > 1);
            }
            (_, Err(Refusal::Commit)) if self.relinquish && relinquish() => {
                self.relinquish = false;
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

    /// What a request lacks that finds no committed room; `None` when it cannot be met. What is to
    /// be committed of a free span is set aside.
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
                let mut arenas = 0..self.heap.arenas().len();
                let unit = self.stretch_of_units(want, units);
                let stretch =
                    unit.or_else(|| arenas.find_map(|id| self.stretch_at_frontier(id, want)));
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

    /// Slices at the frontier of an arena, the end of a free span before it among them. `None` if
    /// it ends too soon.
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

    /// Slices from `at` on, where a free span that reaches up to the frontier begins, or the
    /// frontier is.
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
        if to > self.heap.growth_end(id) {
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

    /// Moves the frontier over what is committed beyond it. Returns the free span that it begins,
    /// if there is any.
    fn open_stretch(&mut self, stretch: &Stretch<'h>) -> Option<&'h Record> {
        match stretch.units {
            0 => self.pass_frontier(stretch.id, stretch.to),
            _ => self.open_units(stretch),
        }
    }

    /// At most `most` units at the frontier of an arena for a request that suits them, if the
    /// policy has it so.
    fn stretch_of_units(&self, want: &Want, most: usize) -> Option<Stretch<'h>> {
        let slabs = self.inner.counts.by_use[Use::Slab as usize - 1].slices * SLICE_BYTES;
        let batch = self.heap.huge_policy().batch(slabs);
        let fits = want.density == Density::Dense && want.slices == 1 && want.align == 1;
        if batch == 0 || !fits || self.heap.os.strict_commit() {
            return None;
        }
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
    fn open_units(&mut self, stretch: &Stretch<'h>) -> Option<&'h Record> {
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
}
