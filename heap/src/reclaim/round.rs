//! Rounds of decay: memory that no thread used for a while goes back to the kernel, step by step.
//!
//! A round empties the magazines of threads that idle, lets empty slabs go, purges pages inside
//! slabs that hold nothing but free blocks, and purges free spans that are past their time. Each
//! step is bounded, and none holds a lock while the kernel works, but for `step` of
//! [`Tide`](super::state::Tide), for which only a fork and other rounds wait. Who calls the rounds is
//! not decided here: a thread of its own, a caller on its way, or a request to trim.

use super::state::OnTheWay;
use super::wakeup::Urgency;
use crate::base::sync::Ordering;
use crate::cache::heap::{HEAP, Heap, Origin};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::os::lock::Guard;
use crate::os::shared;
use crate::pages::{Age, Driver};
use crate::slab::Round;
use crate::slab::decommitted::Cursor;

/// Bytes about to be faulted in that are worth waking the purge thread for.
const LEAST_WAY: usize = 4 << 20;

/// Least time between the rounds that callers do on their way, in ms.
const LEAST_ROUND_MS: u64 = 4;

/// Steps of a round on the way when memory is short: some 50 µs.
const PRESSED_STEPS: usize = 16;

/// A round that gains this many bytes is followed by the next one at once when memory is short.
const WORTH_BYTES: usize = 64 << 10;

/// Over the soft limit, the heap may grow by this many bytes after the begin of a round on the way
/// before callers wait for each other.
const GROWTH_BYTES: usize = 1 << 20;

impl Heap {
    /// A caller is about to fault in `bytes` bytes that the process did not hold before. What is
    /// free and resident gives way, from the oldest on, where the process would otherwise hold more
    /// than it ever did: if a thread is there to do it meanwhile.
    pub fn make_way(&self, bytes: usize) {
        if bytes < LEAST_WAY || self.pages.driver() == Driver::Callers {
            return;
        }
        if let Some(most) = self.pages.way_for(bytes) {
            self.tide.make_way(most);
        }
    }

    /// A round over everything that idled since the last one, or over all. Returns how many bytes
    /// went back.
    pub fn decay_round(&'static self, round: Round) -> usize {
        let source = Origin::blocks(self, Age::Old);
        let now = self.now_ms();
        let before = match round {
            Round::Idle => now.saturating_sub(self.decay_ms() / 2),
            Round::All => u64::MAX,
        };
        match round {
            Round::Idle => self.drain(Round::Idle, source),
            Round::All => self.drain_all(),
        }
        self.stacks.retire_idle(&self.pages, before);
        self.depots.cool(before, &source);
        let spare = self.purge_spare(round) + self.decay_meta(round, before);
        spare
            + match round {
                Round::Idle => self.pages.purge_old(),
                Round::All => self.pages.purge_all(),
            }
    }

    /// Makes free spans of what magazines, empty slabs and idle stacks hold. Pages go back to the
    /// kernel only where a limit on what may be resident counts them: a refused request needs room,
    /// and free pages are room.
    pub(super) fn gather_free(&'static self) {
        self.drain_all();
        self.stacks.retire_idle(&self.pages, u64::MAX);
        self.depots.cool(u64::MAX, &Origin::blocks(self, Age::New));
        if self.pages.limits().hard() != usize::MAX {
            self.purge_spare(Round::All);
        }
    }

    /// What a caller does on its way, holding no lock: some steps of a round where no thread does
    /// them, or where memory is short, for then those who take it must not be faster than one who
    /// gives it back.
    pub(crate) fn decay_on_the_way(&'static self) {
        self.pages.tend();
        let pressed = self.is_pressed();
        self.tide.pressed.store(pressed, Ordering::Relaxed);
        if self.pages.driver() == Driver::Thread {
            self.wake_for_pressure(pressed);
            if !pressed {
                return;
            }
        }
        self.step_on_the_way(pressed);
    }

    /// Memory may become short while the thread is parked. Threads that allocate wake it once a
    /// second to look.
    fn wake_for_pressure(&self, pressed: bool) {
        if pressed && !self.tide.is_wanted() {
            self.tide.want();
        } else if self.pressure.is_outdated(self.now_ms()) {
            self.tide.bell.ring(Urgency::Soon);
        }
    }

    fn step_on_the_way(&'static self, pressed: bool) {
        let Some(_whole) = self.turn(pressed) else {
            return;
        };
        // SAFETY: under the lock.
        let round = unsafe { &mut *self.tide.on_the_way.get() };
        let (kind, steps) = match pressed {
            true => (Round::All, PRESSED_STEPS),
            false => (Round::Idle, 1),
        };
        if round.caches > 0 {
            let looked_at = self.drain_some(Origin::blocks(self, Age::Old)).unwrap_or(0);
            // No cache is left, or another thread drains them.
            round.caches = match looked_at {
                0 => 0,
                some => round.caches.saturating_sub(some),
            };
            return;
        }
        for _ in 0..steps {
            let source = Origin::blocks(self, Age::Old);
            match self.depots.purge_spare(kind, &mut round.cursor, &source) {
                Some(bytes) => round.gained += bytes,
                None => return self.next_round(round, kind),
            }
        }
    }

    /// A caller's turn at the round: the lock `step`. While another thread has it, the caller goes
    /// on without a turn. But that thread may have lost its processor, and callers would take
    /// memory unchecked. So a caller of a heap that outgrew the soft limit waits for it.
    fn turn(&self, pressed: bool) -> Option<Guard<'_>> {
        let step = &self.tide.step;
        step.try_lock().or_else(|| {
            // Below a handler of signals the holder may be the caller. In a child that no handler
            // of ours heard of it stayed in the parent.
            let comes_back = !step.is_mine() && shared::is_mine();
            (comes_back && pressed && self.has_outgrown()).then(|| step.lock())
        })
    }

    /// Whether the heap is over the soft limit, and has grown since the last round on the way
    /// began: where as much was live before, no round makes it smaller.
    fn has_outgrown(&self) -> bool {
        let began_with = self.tide.began_with.load(Ordering::Relaxed);
        let grown = began_with.saturating_add(GROWTH_BYTES);
        self.pages.footprint().total() > self.pages.limits().soft().max(grown)
    }

    /// Begins a new round, if it is time.
    fn next_round(&'static self, round: &mut OnTheWay, kind: Round) {
        let now = self.now_ms();
        let (gains, pause) = match kind {
            Round::All => (round.gained >= WORTH_BYTES, LEAST_ROUND_MS),
            Round::Idle => (false, (self.decay_ms() / 2).max(LEAST_ROUND_MS)),
        };
        if now < round.began + pause && !gains {
            return;
        }
        round.cursor = Cursor::start();
        round.gained = 0;
        round.began = now;
        let held = self.pages.footprint().total();
        self.tide.began_with.store(held, Ordering::Relaxed);
        round.caches = self.registry.count();
        self.look_around();
        let before = now.saturating_sub(self.decay_ms());
        self.stacks.retire_idle(&self.pages, before);
        self.depots.cool(before, &Origin::blocks(self, Age::New));
        self.meta.cool(before, &Origin::metadata(self, Age::New));
    }

    /// Purges spare pages of slabs, each step alone under `step`.
    fn purge_spare(&'static self, round: Round) -> usize {
        let source = Origin::blocks(self, Age::Old);
        let mut cursor = Cursor::start();
        core::iter::from_fn(|| {
            let _whole = self.tide.step.lock();
            self.depots.purge_spare(round, &mut cursor, &source)
        })
        .sum()
    }

    /// Lets slabs go that have held no metadata since `before` (ms) or longer, and purges pages of
    /// others that hold none.
    fn decay_meta(&'static self, round: Round, before: u64) -> usize {
        let source = Origin::metadata(self, Age::Old);
        self.meta.cool(before, &source);
        let mut cursor = Cursor::start();
        core::iter::from_fn(|| {
            let _whole = self.tide.step.lock();
            self.meta.purge_spare(round, &mut cursor, &source)
        })
        .sum()
    }
}

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those
/// inside slabs that are partly in use among them. Returns how many bytes of pages went back.
///
/// Where the program locked its memory, free spans go and the pages inside slabs stay: as under
/// glibc, which gives back the top of its heap, while its `MADV_DONTNEED` for holes below fails.
pub fn purge_all() -> usize {
    let bytes = HEAP.decay_round(Round::All);
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
