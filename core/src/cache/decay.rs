//! Rounds of decay: what nobody used for a while goes home, step by step.
//!
//! A round empties the magazines of threads that idle, lets empty slabs go, purges pages inside slabs that hold nothing
//! but free blocks, and purges free spans that are past their time. Each step is bounded, and none holds a lock
//! while the kernel works, but for [`Tide::step`], for which only a fork and other rounds wait. Who calls the rounds
//! is not decided here: a thread of its own, a caller on its way, or a request to trim.

use super::heap::Heap;
use super::slot;
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell};
use crate::os::lock::Lock;
use crate::page::{Age, Chores};
use crate::slab::Slab;
use crate::slab::class::Class;
use crate::slab::depot::{Cursor, Pages, Round, Source, Touched};
use crate::slab::withheld::Units;
use core::ptr::{self, NonNull};

/// From so many freed bytes on it is worth to start looking after them: a thread costs some 30 µs.
const FLOOR_BYTES: usize = 2 << 20;

/// Least time between the rounds that callers do on their way, in ms.
const LEAST_ROUND_MS: u64 = 50;

/// What the rounds of decay need to know of the heap's life.
pub struct Tide {
    /// Held during a step that a fork must not cut in two. The first of all locks.
    pub step: Lock,
    /// Bytes that went back past a magazine so far; wraps.
    freed: AtomicUsize,
    /// What `freed` was when somebody last looked after it.
    attended: AtomicUsize,
    /// More than the floor was freed since.
    wanted: AtomicBool,
    /// Where the round stands that callers do on their way. Guarded by: step.
    on_the_way: UnsafeCell<OnTheWay>,
    /// 1 when whoever calls the rounds is to end; waited on.
    pub end: AtomicU32,
}

/// A round in small steps.
struct OnTheWay {
    cursor: Cursor,
    /// When the next one may begin, in ms.
    next: u64,
}

// SAFETY: the cell is reached only under `step`.
unsafe impl Sync for Tide {}

impl Tide {
    /// Nothing freed yet.
    pub const fn new() -> Tide {
        Tide {
            step: Lock::new(),
            on_the_way: UnsafeCell::new(OnTheWay {
                cursor: Cursor::end(),
                next: 0,
            }),
            freed: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
            end: AtomicU32::new(0),
        }
    }

    /// Notes that `bytes` went back past a magazine.
    #[inline]
    pub fn note_freed(&self, bytes: usize) {
        let freed = self
            .freed
            .fetch_add(bytes, Ordering::Relaxed)
            .wrapping_add(bytes);
        if freed.wrapping_sub(self.attended.load(Ordering::Relaxed)) > FLOOR_BYTES {
            self.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether enough was freed that somebody should look after it.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Bytes that went back past a magazine so far; wraps.
    pub fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Somebody looks after all that was freed so far, or gives up on it.
    pub fn attend(&self) {
        self.attended.store(self.freed(), Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Asks whoever calls the rounds to end: no thread is left that allocates, so nothing is to be looked after.
    pub fn end_soon(&self) {
        self.end.store(1, Ordering::Release);
        crate::os::lock::wake(&self.end);
    }
}

impl Default for Tide {
    fn default() -> Tide {
        Tide::new()
    }
}

/// The heap as the source of slabs for blocks that nobody used for long: their slabs may be purged at once.
struct Old(&'static Heap);

impl Source for Old {
    fn fresh(&self, class: Class, pages: Pages) -> Option<NonNull<Slab>> {
        self.0.fresh(class, pages)
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.0.retire_aged(slab, touched, Age::Old);
    }

    fn pages(&self) -> usize {
        Source::pages(self.0)
    }

    fn purge(&self, slab: NonNull<Slab>, units: Units) -> bool {
        self.0.purge(slab, units)
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

impl Heap {
    /// A round over everything that idled since the last one, or over all. Returns how many bytes went back.
    pub fn decay_round(&'static self, round: Round) -> usize {
        let source = Old(self);
        let now = self.now_ms();
        let before = match round {
            Round::Idle => now.saturating_sub(self.decay_ms() / 2),
            Round::All => u64::MAX,
        };
        match round {
            Round::Idle => self.drain_idle(&source),
            Round::All => self.drain_all(),
        }
        self.stacks.release_idle(&self.pages, before);
        self.depots.cool(before, &source);
        let spare = self.purge_spare(round, &source);
        spare
            + match round {
                Round::Idle => self.purge_free(),
                Round::All => self.pages.purge_all(),
            }
    }

    /// Gives back free spans that reach the decay time before the next round, a quarter of it later.
    pub fn purge_free(&self) -> usize {
        let young = self.decay_ms() - self.decay_ms() / 4;
        match self.now_ms().checked_sub(young) {
            Some(time) => self.pages.purge_until(time),
            None => 0,
        }
    }

    /// What a caller does on its way, if nobody else does it: a step of a round. It holds no lock.
    pub(super) fn decay_on_the_way(&'static self) {
        self.pages.tend();
        if self.pages.chores() == Chores::Elsewhere {
            return;
        }
        if let Some(_whole) = self.tide.step.try_lock() {
            // SAFETY: under the lock.
            self.step_on_the_way(unsafe { &mut *self.tide.on_the_way.get() });
        }
    }

    fn step_on_the_way(&'static self, round: &mut OnTheWay) {
        let source = Old(self);
        let (kind, pause) = match self.is_pressed() {
            true => (Round::All, LEAST_ROUND_MS),
            false => (Round::Idle, (self.decay_ms() / 2).max(LEAST_ROUND_MS)),
        };
        let step = self.depots.purge_spare(kind, &mut round.cursor, &source);
        let now = self.now_ms();
        if step.is_some() || now < round.next {
            return;
        }
        round.cursor = Cursor::start();
        round.next = now + pause;
        self.look_around();
        self.drain_idle(&source);
        let before = now.saturating_sub(self.decay_ms());
        self.stacks.release_idle(&self.pages, before);
        self.depots.cool(before, self);
    }

    /// Empties the magazines of threads that have not used them since the last round.
    fn drain_idle(&'static self, source: &Old) {
        let own = slot::get();
        self.registry.for_each(|cache| {
            let mut open = cache.open();
            let traces = open.traces();
            if traces == open.inner.seen && !ptr::eq(cache, own) {
                self.drain(&mut open, source);
            }
            open.inner.seen = open.traces();
        });
    }

    fn purge_spare(&'static self, round: Round, source: &Old) -> usize {
        let mut cursor = Cursor::start();
        core::iter::from_fn(|| {
            let _whole = self.tide.step.lock();
            self.depots.purge_spare(round, &mut cursor, source)
        })
        .sum()
    }
}
