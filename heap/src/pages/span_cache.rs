//! Freed spans of large blocks that wait for a request of the same length, so that neither a free
//! nor an allocation takes the heap's lock.
//!
//! A cached span stays a span in use, without a tag. So nothing merges it, and a free of it is
//! refused. It counts as free in all figures. A shard has a list for each length, newest span
//! first, whose links are in the spans' records. Each thread has one shard, which the caller
//! chooses. It frees into that shard, and takes from other shards what that one lacks. All cached
//! spans are of the first arena, as nearly all blocks are.
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
use crate::os::nodes;
use crate::os::thread::{give_way, own_name};
use core::hint::{black_box, spin_loop};
use core::ptr::{self, null_mut};

/// The longest span that is cached, in slices: 4 MiB.
const MOST_SLICES: usize = 64;
const _: () = assert!(
    CACHE_SHARDS == u16::BITS as usize,
    "one bit each, see `pop_other`"
);
/// Once this many slices (32 MiB) were freed into a shard, a free does what ends a slow path.
const DUE_SLICES: usize = (32 << 20) / SLICE_BYTES;
/// A thread that takes a span from another's shard brings spans of this many slices to its own, as
/// far as there are any, so that two threads meet there less often.
const BROUGHT_SLICES: usize = 8;
/// One span in [`Shard::held`]. All shards have fewer slices.
const SPAN: usize = 1 << 16;
/// A shard has at most the room of this many shards.
const MOST_ROOMS: usize = 4;
/// For how many rounds after a request freed spans are kept.
const WANTED_ROUNDS: usize = 2;
/// How often a round tries to get its turn, or a thread that found none at once: for longer than a
/// turn takes.
const SPINS: usize = 30;
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
    /// A bit for each shard that may have spans.
    filled: AtomicUsize,
    /// In how many rounds from now on freed spans are kept. Each request for a span sets it.
    wanted: AtomicUsize,
}

/// The newest span of each length, of a shard; null: none.
type Lists = [AtomicPtr<SpanRecord>; MOST_SLICES];

/// What some threads freed.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// The thread whose turn it is; 0: none's.
    holder: AtomicUsize,
    /// Slices of the spans of all lists, and from [`SPAN`] on how many spans there are. Written in
    /// turn, as all words below.
    held: AtomicUsize,
    /// The bytes that were requested of them.
    bytes: AtomicUsize,
    /// The most slices since the last round.
    most: AtomicUsize,
    /// The number of the round.
    round: AtomicUsize,
    /// Slices freed since a free was due.
    freed: AtomicUsize,
}

/// A thread's turn at a shard; given up when dropped.
pub(super) struct Turn<'s>(&'s Shard);

impl<'s> Turn<'s> {
    #[inline(always)]
    fn pop(&self, list: &AtomicPtr<SpanRecord>, slices: usize) -> Option<&'s SpanRecord> {
        let record = record(list)?;
        list.store(record.below().load(Relaxed), Relaxed);
        self.0.count(record, slices, usize::wrapping_sub);
        Some(record)
    }

    #[inline(always)]
    fn add(&self, list: &AtomicPtr<SpanRecord>, record: &SpanRecord, slices: usize) {
        // SAFETY: a span in use, the caller's. Of a large one only lists read these words.
        unsafe { record.set_cached(list.load(Relaxed), self.0.round.load(Relaxed)) };
        // Release: a fork's child that finds the span in the list also finds the link.
        list.store(ptr::from_ref(record).cast_mut(), Release);
        self.0.count(record, slices, usize::wrapping_add);
    }

    /// Adds a freed span.
    #[inline(always)]
    fn push(&self, list: &AtomicPtr<SpanRecord>, record: &SpanRecord, slices: usize) -> Kept {
        self.add(list, record, slices);
        let freed = self.0.freed.load(Relaxed) + slices;
        self.0.freed.store(freed, Relaxed);
        if freed < DUE_SLICES {
            return Kept::Yes;
        }
        self.0.freed.store(freed - DUE_SLICES, Relaxed);
        Kept::Due(DUE_SLICES * SLICE_BYTES)
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
            filled: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn shard(&self, number: usize) -> (&Shard, &Lists) {
        let number = number % CACHE_SHARDS;
        (&self.shards[number], &self.lists[number])
    }

    /// Takes the newest span of `number + 1` slices of the thread's own shard.
    #[inline]
    pub(super) fn pop(&self, own: usize, number: usize) -> Option<&SpanRecord> {
        let (shard, lists) = self.shard(own);
        let list = lists.get(number)?;
        if self.wanted.load(Relaxed) != WANTED_ROUNDS {
            self.wanted.store(WANTED_ROUNDS, Relaxed);
        }
        shard.turn()?.pop(list, number + 1)
    }

    /// Where [`SpanCache::pop`] gets none: takes a span of the thread's node from its shard, or the
    /// next that has one, and brings more for the next requests.
    #[inline(never)]
    pub(super) fn pop_other(&self, own: usize, number: usize) -> Option<&SpanRecord> {
        let (own, node) = (own % CACHE_SHARDS, nodes::current());
        let mut left = (self.filled.load(Relaxed) as u16).rotate_right(own as u32);
        while left != 0 {
            let (shard, lists) = self.shard(own + left.trailing_zeros() as usize);
            left &= left - 1;
            let list = lists.get(number)?;
            let is_near = || record(list).is_some_and(|record| record.node() == node);
            if is_near()
                && let Some(turn) = shard.turn_in_time(Scope::Idle)
                && is_near()
            {
                let first = turn.pop(list, number + 1);
                let next = || is_near().then(|| turn.pop(list, number + 1))?;
                if number < BROUGHT_SLICES / 2 && is_near() {
                    self.bring(own, number, next);
                }
                return first;
            }
        }
        None
    }

    /// Adds more spans of `number + 1` slices to the thread's own shard, if it gets a turn there.
    #[inline(never)]
    fn bring<'s>(&self, own: usize, number: usize, next: impl Fn() -> Option<&'s SpanRecord>) {
        let (shard, lists) = self.shard(own);
        let Some(turn) = shard.turn() else { return };
        self.filled.fetch_or(1 << own, Relaxed);
        for _ in 1..BROUGHT_SLICES / (number + 1) {
            let Some(record) = next() else { return };
            turn.add(&lists[number], record, number + 1);
        }
    }

    /// Adds the caller's span to a shard that had as many slices since its last round, unless there
    /// is no `room`.
    #[inline(always)]
    pub(super) fn push(&self, own: usize, record: &SpanRecord, room: usize) -> Kept {
        let (shard, lists) = self.shard(own);
        let slices = record.slices.get();
        let Some(list) = lists.get(slices - 1) else {
            return Kept::No;
        };
        // Before the turn, so that a full shard costs little. Other threads may add spans.
        let all = shard.slices() + slices;
        if self.wanted.load(Relaxed) == 0 || room == 0 || all > shard.most.load(Relaxed) {
            return Kept::No;
        }
        match shard.turn() {
            Some(turn) => turn.push(list, record, slices),
            None => Kept::No,
        }
    }

    /// [`SpanCache::push`] of a span that was not kept. All shards have `room` slices each. Those
    /// with spans share the room of the others.
    pub(super) fn push_late(&self, own: usize, record: &SpanRecord, room: usize) -> Kept {
        let (shard, lists) = self.shard(own);
        let slices = record.slices.get();
        let all = shard.slices() + slices;
        let is_kept = all <= self.share(room) && self.wanted.load(Relaxed) != 0;
        let list = lists.get(slices - 1).filter(|_| is_kept);
        let turn = list.and_then(|_| shard.turn_in_time(Scope::Idle));
        let Some((list, turn)) = list.zip(turn) else {
            return Kept::No;
        };
        let growth = all.saturating_sub(shard.most.load(Relaxed));
        if growth == 0 {
            return turn.push(list, record, slices);
        }
        self.filled.fetch_or(1 << (own % CACHE_SHARDS), Relaxed);
        shard.most.store(all, Relaxed);
        match turn.push(list, record, slices) {
            Kept::Due(freed) => Kept::Due(freed),
            _ => Kept::Due(growth * SLICE_BYTES),
        }
    }

    /// Most slices of a shard where each has `room`: those with spans share the room of the others.
    pub(super) fn share(&self, room: usize) -> usize {
        let shards = self.filled.load(Relaxed).count_ones().max(1) as usize;
        room * (CACHE_SHARDS / shards).min(MOST_ROOMS)
    }

    /// A round comes by a shard, where each has `room`: cuts off the spans that no request needed
    /// since the last but one, or all. Returns the first; each links to the next. While it is
    /// another thread's turn, they stay.
    #[inline(never)]
    pub(super) fn cut(&self, number: usize, which: Scope, room: usize) -> *mut SpanRecord {
        let mut first = null_mut();
        let (shard, lists) = self.shard(number);
        if number == 0 {
            let wanted = self.wanted.load(Relaxed);
            self.wanted.store(wanted.saturating_sub(1), Relaxed);
        }
        let is_filled = self.filled.load(Relaxed) & 1 << number != 0;
        if !is_filled && shard.most.load(Relaxed) == 0 && shard.slices() == 0 {
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
                shard.count(record, record.slices.get(), usize::wrapping_sub);
                rest = AtomicPtr::new(record.below().swap(first, Relaxed));
                first = ptr::from_ref(record).cast_mut();
            }
        }
        shard.round.store(round.wrapping_add(1), Relaxed);
        let left = shard.slices();
        // Beyond its share, a shard keeps what it has and takes nothing.
        shard.most.store(left.min(self.share(room)), Relaxed);
        // Also where a thread that looked before the last round added a span after it.
        match left {
            0 => self.filled.fetch_and(!(1 << number), Relaxed),
            _ => self.filled.fetch_or(1 << number, Relaxed),
        };
        first
    }

    /// All spans.
    #[inline(never)]
    pub(super) fn totals(&self) -> UseTotals {
        let (mut held, mut bytes) = (0, 0);
        // A loop, which takes less room than 16 times its body.
        for shard in black_box(&self.shards[..]) {
            held += shard.held.load(Relaxed);
            bytes += shard.bytes.load(Relaxed);
        }
        UseTotals {
            spans: held / SPAN,
            slices: held % SPAN,
            bytes,
        }
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
            held: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let exchange = (self.holder).compare_exchange(0, own_name(), Acquire, Relaxed);
        exchange.is_ok().then(|| Turn(self))
    }

    /// In turn: counts a span that came or, by [`usize::wrapping_sub`], went.
    #[inline(always)]
    fn count(&self, record: &SpanRecord, slices: usize, change: fn(usize, usize) -> usize) {
        let by = [SPAN + slices, record.bytes()];
        for (count, by) in [&self.held, &self.bytes].into_iter().zip(by) {
            count.store(change(count.load(Relaxed), by), Relaxed);
        }
    }

    fn slices(&self) -> usize {
        self.held.load(Relaxed) % SPAN
    }

    /// For tests: counts a span that is not there.
    #[cfg(test)]
    pub(super) fn miscount(&self) {
        self.held.store(self.held.load(Relaxed) + SPAN, Relaxed);
    }

    /// Waits a little for a turn, but not for one that the caller has, as a handler of signals.
    #[inline(never)]
    fn turn_in_time(&self, which: Scope) -> Option<Turn<'_>> {
        let waits = match which {
            Scope::Idle => 0,
            Scope::All if self.holder.load(Relaxed) == own_name() => 0,
            Scope::All => WAITS,
        };
        (0..SPINS + waits).find_map(|tried| {
            match tried {
                0 => {}
                1..SPINS => spin_loop(),
                _ => give_way(),
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
        self.held.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        for mut link in lists {
            while let Some(record) = record(link) {
                self.count(record, record.slices.get(), usize::wrapping_add);
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
