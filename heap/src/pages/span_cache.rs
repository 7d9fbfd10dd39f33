//! Freed spans of large blocks that wait for a request of the same length, so that neither a free
//! nor an allocation takes the heap's lock.
//!
//! A cached span stays a span in use, without a tag. So nothing merges it, and a free of it is
//! refused. It counts as free in all figures. A shard has a list for each length, newest span
//! first, whose links are in the spans' records. Each thread uses one shard, which the caller
//! chooses. All cached spans are of the first arena, as nearly all blocks are.
//!
//! A thread that changes a shard first takes its turn, and gives it up a few instructions later. No
//! thread waits long for a turn: one that does not get it after a few tries frees and allocates
//! without the cache. So a handler of signals may interrupt all of this. Each change of a list is
//! one store to its head, so a fork leaves whole lists behind.
//!
//! A span that no request needed during two whole rounds, from one visit of a shard to the next
//! but one, goes back. The lists are stacks, so these are the last ones of each. Every span has the
//! number of the round in which it came.

use super::figures::UseTotals;
use super::span::SpanRecord;
use crate::base::policy::{CACHE_SHARDS, Scope};
use crate::base::sync::plain::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::plain::{AtomicPtr, AtomicUsize};
use crate::base::units::SLICE_BYTES;
use crate::os::nodes::{self, MOST_NODES};
use crate::os::thread::{give_way, own_name};
use core::hint::spin_loop;
use core::ptr::{self, null_mut};

/// The longest span that is cached, in slices: 4 MiB.
const MOST_SLICES: usize = 64;
/// Once this many slices (32 MiB) were freed into a shard, a free does what ends a slow path.
const DUE_SLICES: usize = (32 << 20) / SLICE_BYTES;
/// A shard may have the room of this many shards.
const MOST_ROOMS: usize = 4;
/// For how many rounds after a request a shard keeps what is freed.
const WANTED_ROUNDS: usize = 2;
/// How often a round tries to get its turn, or a thread whose span was not kept.
const SPINS: usize = 100;
/// How often it then waits for a moment if it is to take all: the holder may have lost its
/// processor.
const WAITS: usize = 100;

/// All cached spans of a heap. Every process reads the shards now and then, so they stand together,
/// and next to other words that it reads.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SpanCache {
    lists: [Lists; CACHE_SHARDS],
    shards: [Shard; CACHE_SHARDS],
    /// By node: the shard of the thread that last found no span there.
    askers: [AtomicUsize; MOST_NODES],
}

/// The newest span of each length, of a shard; null: none.
type Lists = [AtomicPtr<SpanRecord>; MOST_SLICES];

/// What some threads freed.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// The thread whose turn it is; 0: none's.
    holder: AtomicUsize,
    /// Spans of all lists, their slices, and the bytes that were requested of them. Written in
    /// turn, as all words below.
    spans: AtomicUsize,
    slices: AtomicUsize,
    bytes: AtomicUsize,
    /// The most slices since the last round.
    most: AtomicUsize,
    /// The number of the round.
    round: AtomicUsize,
    /// In how many rounds from now on the shard keeps what is freed. Written by whoever asks.
    wanted: AtomicUsize,
    /// Slices freed since a free was due.
    freed: AtomicUsize,
}

/// A thread's turn at a shard; given up when dropped.
pub(super) struct Turn<'s>(&'s Shard);

impl<'s> Turn<'s> {
    #[inline(always)]
    fn pop(self, list: &AtomicPtr<SpanRecord>) -> Option<&'s SpanRecord> {
        let record = record(list)?;
        list.store(record.below().load(Relaxed), Relaxed);
        self.0.count(record, usize::wrapping_sub);
        Some(record)
    }

    /// Adds a span to a list. The shard then has `all` slices.
    #[inline(always)]
    fn push(self, list: &AtomicPtr<SpanRecord>, record: &SpanRecord, all: usize) -> Kept {
        let shard = self.0;
        // SAFETY: a span in use, the caller's. Of a large one only lists read these words.
        unsafe { record.set_cached(list.load(Relaxed), shard.round.load(Relaxed)) };
        // Release: a fork's child that finds the span in the list also finds the link.
        list.store(ptr::from_ref(record).cast_mut(), Release);
        shard.count(record, usize::wrapping_add);
        shard.note_free(record.slices.get(), all)
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.holder.store(0, Release);
    }
}

/// What became of a freed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is cached.
    Yes,
    /// It is cached, and the caller is to do what ends a slow path. This many bytes were freed
    /// since the last time, or are cached beyond the most since the last round.
    Due(usize),
    /// It is still the caller's.
    No,
}

impl SpanCache {
    pub(super) const fn new() -> Self {
        Self {
            lists: [const { [const { AtomicPtr::new(null_mut()) }; MOST_SLICES] }; CACHE_SHARDS],
            shards: [const { Shard::new() }; CACHE_SHARDS],
            askers: [const { AtomicUsize::new(0) }; MOST_NODES],
        }
    }

    #[inline]
    pub(super) fn shard(&self, number: usize) -> (&Shard, &Lists) {
        let number = number % CACHE_SHARDS;
        (&self.shards[number], &self.lists[number])
    }

    /// Takes the newest span of `number + 1` slices of a shard.
    #[inline]
    pub(super) fn pop(&self, own: usize, number: usize) -> Option<&SpanRecord> {
        let (shard, lists) = self.shard(own);
        let list = lists.get(number)?;
        if shard.wanted.load(Relaxed) != WANTED_ROUNDS {
            shard.wanted.store(WANTED_ROUNDS, Relaxed);
        }
        if list.load(Relaxed).is_null() {
            self.note_asker(own);
            return None;
        }
        shard.turn()?.pop(list)
    }

    #[cold]
    #[inline(never)]
    fn note_asker(&self, own: usize) {
        self.askers[nodes::current()].store(own, Relaxed);
    }

    /// Adds the caller's span to a shard, if all its spans then have at most `room` slices.
    #[inline]
    pub(super) fn push(&self, shard: usize, record: &SpanRecord, room: usize) -> Kept {
        let (shard, lists) = self.shard(shard);
        let Some(list) = lists.get(record.slices.get() - 1) else {
            return Kept::No;
        };
        // Before the turn, so that a full shard costs little. Other threads may add spans.
        let all = shard.slices.load(Relaxed) + record.slices.get();
        if !shard.is_wanted() || all > room {
            return Kept::No;
        }
        let turn = shard.turn();
        turn.map_or(Kept::No, |turn| turn.push(list, record, all))
    }

    /// [`SpanCache::push`] of a span that was not kept. Here a shard may use room that the others
    /// leave. If none of the shard's threads asked for a span lately, the span goes to the shard
    /// that last had none for a request of a thread on the span's node.
    pub(super) fn push_late(&self, own: usize, record: &SpanRecord, room: usize) -> Kept {
        let number = match self.shard(own).0.is_wanted() {
            true => own,
            false => self.askers[record.node()].load(Relaxed),
        };
        let (shard, lists) = self.shard(number);
        let all = shard.slices.load(Relaxed) + record.slices.get();
        let has_room = all <= room || self.is_left(shard, all, room);
        let turn = (shard.is_wanted() && has_room).then(|| shard.turn_in_time(Scope::Idle));
        match (turn.flatten(), lists.get(record.slices.get() - 1)) {
            (Some(turn), Some(list)) => turn.push(list, record, all),
            _ => Kept::No,
        }
    }

    /// Whether a shard may have `all` slices, given what the others have, and the `room` that each
    /// in use may take.
    fn is_left(&self, shard: &Shard, all: usize, room: usize) -> bool {
        let may_take = |other: &Shard| {
            let slices = other.slices.load(Relaxed);
            if other.is_wanted() {
                slices.max(room)
            } else {
                slices
            }
        };
        let others = (self.shards.iter()).filter(|other| !ptr::eq(*other, shard));
        let taken: usize = others.map(may_take).sum();
        all <= room * MOST_ROOMS && taken + all <= room * CACHE_SHARDS
    }

    /// A round comes by a shard: cuts off the spans that no request needed since the last but one,
    /// or all. Returns the first; each links to the next. While it is another thread's turn, they
    /// stay.
    #[inline(never)]
    pub(super) fn cut(&self, shard: usize, which: Scope) -> *mut SpanRecord {
        let mut first = null_mut();
        let (shard, lists) = self.shard(shard);
        let wanted = shard.wanted.load(Relaxed);
        shard.wanted.store(wanted.saturating_sub(1), Relaxed);
        if !shard.has_spans() {
            return first;
        }
        let Some(_turn) = shard.turn_in_time(which) else {
            return first;
        };
        let round = shard.round.load(Relaxed);
        let stays =
            |record: &SpanRecord| which == Scope::Idle && round.wrapping_sub(record.round()) <= 1;
        for mut link in lists {
            while let Some(record) = record(link).filter(|record| stays(record)) {
                link = record.below();
            }
            let mut rest = AtomicPtr::new(link.swap(null_mut(), AcqRel));
            while let Some(record) = record(&rest) {
                shard.count(record, usize::wrapping_sub);
                rest = AtomicPtr::new(record.below().swap(first, Relaxed));
                first = ptr::from_ref(record).cast_mut();
            }
        }
        shard.round.store(round.wrapping_add(1), Relaxed);
        shard.most.store(shard.slices.load(Relaxed), Relaxed);
        first
    }

    /// All spans.
    #[inline(never)]
    pub(super) fn totals(&self) -> UseTotals {
        let mut totals = UseTotals::default();
        for shard in &self.shards {
            totals.spans += shard.spans.load(Relaxed);
            totals.slices += shard.slices.load(Relaxed);
            totals.bytes += shard.bytes.load(Relaxed);
        }
        totals
    }

    /// In a fork's child: turns of threads that stayed in the parent end.
    pub(super) fn after_fork_in_child(&self) {
        let shards = self.shards.iter().zip(&self.lists);
        shards.for_each(|(shard, lists)| shard.end_left_turn(lists));
    }
}

impl Shard {
    const fn new() -> Self {
        Self {
            holder: AtomicUsize::new(0),
            spans: AtomicUsize::new(0),
            slices: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let exchange = (self.holder).compare_exchange(0, own_name(), Acquire, Relaxed);
        exchange.is_ok().then(|| Turn(self))
    }

    /// In turn: counts a span that came or, by [`usize::wrapping_sub`], went.
    #[inline]
    fn count(&self, record: &SpanRecord, change: fn(usize, usize) -> usize) {
        let counts = [&self.spans, &self.slices, &self.bytes];
        let by = [1, record.slices.get(), record.bytes()];
        for (count, by) in counts.into_iter().zip(by) {
            count.store(change(count.load(Relaxed), by), Relaxed);
        }
    }

    /// In turn: notes a free of some slices, after which there are `all`.
    #[inline]
    fn note_free(&self, slices: usize, all: usize) -> Kept {
        let (freed, most) = (self.freed.load(Relaxed) + slices, self.most.load(Relaxed));
        self.freed.store(freed, Relaxed);
        if all > most {
            self.most.store(all, Relaxed);
            return Kept::Due((all - most) * SLICE_BYTES);
        }
        if freed >= DUE_SLICES {
            self.freed.store(0, Relaxed);
            return Kept::Due(freed * SLICE_BYTES);
        }
        Kept::Yes
    }

    /// For tests: counts a span that is not there.
    #[cfg(test)]
    pub(super) fn miscount(&self) {
        self.spans.store(self.spans.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed) != 0
    }

    fn has_spans(&self) -> bool {
        self.slices.load(Relaxed) != 0
    }

    /// Waits a little for a turn, but not for one that the caller has, as a handler of signals.
    fn turn_in_time(&self, which: Scope) -> Option<Turn<'_>> {
        let waits = match which {
            Scope::Idle => 0,
            Scope::All if self.holder.load(Relaxed) == own_name() => 0,
            Scope::All => WAITS,
        };
        (0..SPINS + waits).find_map(|tried| {
            match tried < SPINS {
                true => spin_loop(),
                false => give_way(),
            }
            self.turn()
        })
    }

    /// In a fork's child: ends the turn of a thread that stayed in the parent.
    fn end_left_turn(&self, lists: &Lists) {
        let holder = self.holder.load(Relaxed);
        if holder == 0 || holder == own_name() {
            return;
        }
        // It may have counted a span that did not come or go.
        let counts = [&self.spans, &self.slices, &self.bytes];
        counts.iter().for_each(|count| count.store(0, Relaxed));
        for mut link in lists {
            while let Some(record) = record(link) {
                self.count(record, usize::wrapping_add);
                link = record.below();
            }
        }
        self.holder.store(0, Release);
    }
}

/// The record that a link of a list leads to.
#[inline]
fn record<'h>(link: &AtomicPtr<SpanRecord>) -> Option<&'h SpanRecord> {
    // SAFETY: null, or the record of a span in a list; records live as long as the heap.
    unsafe { link.load(Relaxed).as_ref() }
}
