//! Rounds: what decays goes back to the kernel, in bounded steps, as [`crate::base::policy`]
//! says.
//!
//! A round frees cached spans, empties magazines, gives stacks up, lets empty slabs go, purges
//! pages inside slabs that hold nothing but free blocks, and purges free spans. While the kernel
//! works, a step holds `step` of [`Tide`](super::state::Tide), for which only a fork and other
//! rounds wait, or `purging`, for which only other purges do. Free spans come last, without `step`:
//! a fork would wait for all of them.

use super::state::{Round, Stage};
use super::wakeup::Urgency;
use crate::base::policy::{
    CACHE_SHARDS, Driver, GROWTH_BYTES, LEAST_COLD, Reason, Scope, is_vain, pause_ms,
};
use crate::base::sync::{AtomicU64, Ordering};
use crate::cache::drain::Effort;
use crate::cache::heap::{HEAP, Heap};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::origin::Origin;
use crate::hook::instruments;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::os::lock::{Guard, Lock};
use crate::os::shared;
use crate::slab::class::Class;
use crate::slab::decommitted::Cursor;

/// Steps of a round on the way when memory is short: some 50 µs.
const PRESSED_STEPS: usize = 16;

impl Heap {
    /// Takes back all that `reason` is about. Returns how many bytes of pages went to the kernel.
    pub fn decay(&'static self, reason: Reason) -> usize {
        let mut round = self.begin_round(reason);
        loop {
            let _whole = self.tide.step.lock();
            if self.step(&mut round, Effort::Whole).is_none() {
                break;
            }
        }
        self.pages.tend_left();
        let tails = reason.tails().map_or(0, |sweep| self.purge_tails(sweep));
        round.gained + tails + self.purge_spans(reason)
    }

    /// Gives back tails of blocks in use. Returns how many bytes.
    fn purge_tails(&self, sweep: Scope) -> usize {
        match self.pages.has_tails(sweep) {
            true => self.pages.purge_tails(sweep, Tag::LARGE.byte()),
            false => 0,
        }
    }

    /// Gives back the free spans that `reason` is about. Returns how many bytes.
    pub(super) fn purge_spans(&self, reason: Reason) -> usize {
        match reason.spans() {
            Some(Scope::Idle) => self.pages.purge_aged(),
            Some(Scope::All) => self.pages.purge_all(),
            None => 0,
        }
    }

    fn begin_round(&'static self, reason: Reason) -> Round {
        if reason.magazines() == Scope::All {
            self.flush_own();
        }
        self.pages.limits().note_cache();
        Round {
            reason,
            stage: Stage::Cached(0),
            began: self.now_ms(),
            gained: 0,
        }
    }

    /// The next step; `None` at the end. Returns how many small steps it is worth. The caller holds
    /// `step`. Inlined: callers may have small stacks.
    #[inline(always)]
    fn step(&'static self, round: &mut Round, effort: Effort) -> Option<usize> {
        let (reason, age) = (round.reason, round.reason.age());
        let since = reason.idle_since(round.began, self.decay_ms());
        let mut worth = 1;
        let cached = match self.pages.limits().cache_slices() {
            0 => Scope::All,
            _ => reason.magazines(),
        };
        round.stage = match round.stage {
            Stage::Cached(CACHE_SHARDS) => {
                worth = PRESSED_STEPS;
                self.pages.refresh_mirror();
                match self.is_exchange_due(cached) {
                    true => Stage::Exchange(Class::all().next()),
                    false => Stage::Exchange(None),
                }
            }
            Stage::Exchange(None) => {
                worth = 0;
                Stage::Magazines(self.registry.count())
            }
            Stage::Exchange(Some(class)) => {
                worth = PRESSED_STEPS * usize::from(self.empty_exchange(class, age));
                Stage::Exchange(Class::all().nth(class.index()))
            }
            Stage::Cached(shard) => {
                worth = usize::from(self.pages.release_cached(shard, cached, age));
                Stage::Cached(shard + 1)
            }
            Stage::Magazines(left) => {
                worth = PRESSED_STEPS;
                match self.drain(reason.magazines(), effort, Origin::blocks(self, age)) {
                    // No cache is left, or another thread drains them.
                    looked_at if looked_at == 0 || looked_at >= left => Stage::Stacks,
                    looked_at => Stage::Magazines(left - looked_at),
                }
            }
            Stage::Stacks => {
                self.stacks.retire_idle(&self.pages, since);
                Stage::Slabs(Cursor::start())
            }
            Stage::Slabs(mut cursor) => {
                let pages = reason.slab_pages(self.pages.limits().hard() != usize::MAX);
                let source = Origin::blocks(self, age);
                match self.depots.decay(since, pages, &mut cursor, &source) {
                    Some(bytes) => {
                        round.gained += bytes;
                        Stage::Slabs(cursor)
                    }
                    None => Stage::Over,
                }
            }
            Stage::Over => return None,
        };
        Some(worth)
    }

    /// What a caller does on its way, holding no lock: some steps of a round where no thread does
    /// them, or where memory is short, for then those who take it must not be faster than one who
    /// gives it back.
    pub(crate) fn decay_on_the_way(&'static self) {
        self.pages.tend();
        self.look_around();
        let pressed = self.is_pressed();
        self.pages.limits().set_pressed(pressed);
        if self.pages.limits().driver() == Driver::Thread {
            if !pressed {
                return;
            }
            if !self.tide.freed.is_wanted() {
                self.tide.want();
            }
        }
        let Some(_whole) = self.turn(pressed) else {
            return;
        };
        // SAFETY: under the lock.
        let round = unsafe { &mut *self.tide.on_the_way.get() };
        let mut steps = if pressed { PRESSED_STEPS } else { 1 };
        while steps > 0 {
            match self.step(round, Effort::OnTheWay) {
                Some(worth) => steps = steps.saturating_sub(worth),
                None => return self.next_round(round, pressed),
            }
        }
    }

    /// [`Heap::decay_on_the_way`], at most once in a tick of the coarse clock.
    #[cold]
    pub(crate) fn decay_at_ticks(&'static self) {
        static TICK: AtomicU64 = AtomicU64::new(0);
        let now = self.now_ms();
        if TICK.swap(now, Ordering::Relaxed) != now {
            self.decay_on_the_way();
        }
    }

    /// Begins a new round of callers, if it is time.
    fn next_round(&'static self, round: &mut Round, pressed: bool) {
        let vain = pressed.then_some(u32::from(is_vain(Driver::Callers, round.gained)));
        if self.now_ms() >= round.began + pause_ms(Driver::Callers, self.decay_ms(), vain) {
            let held = self.pages.footprint().total();
            self.tide.began_with.store(held, Ordering::Relaxed);
            *round = self.begin_round(match pressed {
                true => Reason::Shortage,
                false => Reason::Age,
            });
        }
    }

    /// A caller's turn at the round: the lock `step`. While another thread has it, the caller goes
    /// on without a turn. But that thread may have lost its processor, and callers would take
    /// memory unchecked. So a caller of a heap that outgrew the soft limit waits for it.
    fn turn(&self, pressed: bool) -> Option<Guard<'_>> {
        let step = &self.tide.step;
        step.try_lock().or_else(|| {
            let waits = pressed && self.has_outgrown() && self.may_wait();
            waits.then(|| step.lock())
        })
    }

    /// Whether another thread that holds a lock will give it up while the caller waits. Below a
    /// handler of signals the holder may be the caller, or wait for a lock that the caller holds.
    /// In a child that no handler of ours heard of it stayed in the parent.
    pub(super) fn may_wait(&self) -> bool {
        let mut may = shared::is_mine();
        self.each_lock(&mut |lock| may &= !lock.is_mine());
        may
    }

    /// Whether this is a handler of signals that interrupted a change of the heap or of its
    /// instruments. Other threads may wait for what the change holds.
    #[cold]
    #[inline(never)]
    pub(super) fn interrupts_a_change(&self) -> bool {
        let mut is_mine = false;
        let mut look = |lock: &Lock| is_mine |= lock.is_mine();
        instruments().locks().iter().for_each(|lock| look(lock));
        self.each_lock(&mut look);
        // SAFETY: the slot holds a sentinel or the thread's cache, which lives until it changes.
        let cache = unsafe { &*machine::slot() };
        is_mine || !cache.is_sentinel() && cache.lock().is_mine()
    }

    /// Whether the heap is over the soft limit, and has grown since the last round on the way
    /// began: where as much was live before, no round makes it smaller.
    fn has_outgrown(&self) -> bool {
        let began_with = self.tide.began_with.load(Ordering::Relaxed);
        let grown = began_with.saturating_add(GROWTH_BYTES);
        self.pages.footprint().total() > self.pages.limits().soft().max(grown)
    }

    /// A caller is about to fault in `bytes` bytes that the process did not hold before. What is
    /// free and resident gives way, from the oldest on, where the process would otherwise hold more
    /// than it ever did: if a thread is there to do it meanwhile.
    pub fn make_way(&self, bytes: usize) {
        if bytes < LEAST_COLD || self.pages.limits().driver() == Driver::Callers {
            return;
        }
        if self.pages.make_way(bytes) {
            self.tide.bell.ring(Urgency::Now);
        }
    }
}

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those
/// inside slabs that are partly in use among them. Returns how many bytes of pages went back.
///
/// Where the program locked its memory, free spans go and the pages inside slabs stay: as under
/// glibc, which gives back the top of its heap, while its `MADV_DONTNEED` for holes below fails.
pub fn purge_all() -> usize {
    let bytes = HEAP.purge_tails(Scope::All) + HEAP.decay(Reason::Demand);
    match Linux.is_locked() {
        true => bytes + HEAP.pages.purge_locked(),
        false => bytes,
    }
}

/// Keeps `bytes` of free pages resident whatever their age, and gives none of them back by
/// itself; `usize::MAX`: all.
pub fn keep_free(bytes: usize) {
    HEAP.pages.limits().set_kept(bytes);
}
