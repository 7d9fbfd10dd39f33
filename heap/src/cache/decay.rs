//! Rounds of decay: memory that no thread used for a while goes back to the kernel, step by step.
//!
//! A round empties the magazines of threads that idle, lets empty slabs go, purges pages inside
//! slabs that hold nothing but free blocks, and purges free spans that are past their time. Each
//! step is bounded, and none holds a lock while the kernel works, but for [`Tide::step`], for which
//! only a fork and other rounds wait. Who calls the rounds is not decided here: a thread of its
//! own, a caller on its way, or a request to trim.

use super::bell::{Bell, Pair, Urgency};
use super::heap::Heap;
use crate::base::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell};
use crate::os::lock::{Lock, Rank};
use crate::pages::{Age, Driver};
use crate::slab::Slab;
use crate::slab::class::Class;
use crate::slab::depot::{Cursor, Pages, Round, Source, Touched};
use crate::slab::withheld::Units;
use core::ptr::NonNull;

/// Freed bytes that are worth starting the purge thread: a thread costs some 15 µs.
const FLOOR_BYTES: usize = 2 << 20;

/// Freed bytes that are worth waking the purge thread for.
const LEAST_WAY: usize = 4 << 20;

/// Least time between the rounds that callers do on their way, in ms.
const LEAST_ROUND_MS: u64 = 4;

/// Steps of a round on the way when memory is short: some 50 µs.
const PRESSED_STEPS: usize = 16;

/// A round that gains this many bytes is followed by the next one at once when memory is short.
const WORTH_BYTES: usize = 64 << 10;

/// What the rounds of decay need to know of the heap's life.
pub struct Tide {
    /// Held during a step that a fork must not cut in two. See the order of locks in `lib.rs`.
    pub step: Lock,
    /// Bytes that went back past a magazine so far; wraps.
    freed: AtomicUsize,
    /// What `freed` was when a thread last dealt with it.
    attended: AtomicUsize,
    /// More than the floor was freed since.
    wanted: AtomicBool,
    /// Where the round stands that callers do on their way. Guarded by: step.
    on_the_way: UnsafeCell<OnTheWay>,
    /// What [`Heap::is_pressed`] last said to a caller on its way.
    pressed: AtomicBool,
    /// Where the purge thread sleeps.
    pub bell: Bell<Pair>,
    /// The thread is to end.
    ends: AtomicBool,
    /// How many bytes of free pages may stay; [`ALL_STAY`]: no matter.
    stay: AtomicUsize,
}

const ALL_STAY: usize = usize::MAX;

/// What the purge thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// To end.
    End,
    /// To give free pages back at once, until at most this many bytes of them are resident.
    MakeWay {
        /// Bytes.
        stay: usize,
    },
}

/// A round in small steps.
struct OnTheWay {
    /// Threads' caches that are still to be looked at.
    caches: usize,
    cursor: Cursor,
    /// When it began, in ms.
    began: u64,
    /// Bytes that it gave back so far.
    gained: usize,
}

// SAFETY: the cell is reached only under `step`.
unsafe impl Sync for Tide {}

impl Tide {
    /// Nothing freed yet.
    pub const fn new() -> Tide {
        Tide {
            step: Lock::new(Rank::Step),
            on_the_way: UnsafeCell::new(OnTheWay {
                caches: 0,
                cursor: Cursor::end(),
                began: 0,
                gained: 0,
            }),
            freed: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            bell: Bell::new(),
            ends: AtomicBool::new(false),
            stay: AtomicUsize::new(ALL_STAY),
        }
    }

    /// Notes that `bytes` went back past a magazine.
    #[inline]
    pub fn note_freed(&self, bytes: usize) {
        let freed = self
            .freed
            .fetch_add(bytes, Ordering::Relaxed)
            .wrapping_add(bytes);
        let over = freed.wrapping_sub(self.attended.load(Ordering::Relaxed)) > FLOOR_BYTES;
        // Who said so first has rung.
        if over && !self.is_wanted() {
            self.want();
        }
    }

    /// A thread should deal with what is freed, however little that is: the purge thread, if it is
    /// parked.
    #[cold]
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.bell.ring(Urgency::Soon);
    }

    /// Whether enough was freed that a thread should deal with it.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether memory was short when a caller last came by.
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Bytes that went back past a magazine so far; wraps.
    pub fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// A thread deals with all that was freed so far, or gives up on it.
    pub fn attend(&self) {
        self.attended.store(self.freed(), Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// A thread is about to begin: what its predecessor was told is void.
    pub fn begin(&self) {
        self.stay.store(ALL_STAY, Ordering::Relaxed);
        self.ends.store(false, Ordering::SeqCst);
    }

    /// Tells the thread to end.
    pub fn end_soon(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.bell.ring(Urgency::Now);
    }

    /// Tells the thread to give free pages back now, until at most `stay` bytes of them are
    /// resident.
    fn make_way(&self, stay: usize) {
        self.stay.store(stay, Ordering::Relaxed);
        self.bell.ring(Urgency::Now);
    }

    /// Whether [`Tide::told`] has something to say.
    pub fn is_told(&self) -> bool {
        self.ends.load(Ordering::SeqCst) || self.stay.load(Ordering::Relaxed) != ALL_STAY
    }

    /// What the thread was told since it last asked.
    pub fn told(&self) -> Told {
        if self.ends.load(Ordering::SeqCst) {
            return Told::End;
        }
        match self.stay.swap(ALL_STAY, Ordering::Relaxed) {
            ALL_STAY => Told::Nothing,
            stay => Told::MakeWay { stay },
        }
    }
}

impl Default for Tide {
    fn default() -> Tide {
        Tide::new()
    }
}

/// The heap as the source of slabs for blocks that no thread used for long: their slabs may be
/// purged at once.
struct Old(&'static Heap);

impl Source for Old {
    fn fresh(&self, class: Class, pages: Pages) -> Option<NonNull<Slab>> {
        self.0.fresh(class, pages)
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.0.retire_aged(slab, touched, Age::Old);
    }

    fn note_withheld(&self, bytes: isize) {
        self.0.note_withheld(bytes);
    }

    fn keeps_pages(&self, round: Round) -> bool {
        self.0.keeps_pages(round)
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
    /// A caller is about to fault in `bytes` bytes that the process did not hold before. What is
    /// free and resident gives way, from the oldest on, so that the process does not grow by more
    /// than it has to: if a thread is there to do it meanwhile.
    pub fn make_way(&self, bytes: usize) {
        if bytes < LEAST_WAY || self.pages.driver() == Driver::Callers {
            return;
        }
        let dirty = self.pages.footprint().dirty;
        if dirty >= LEAST_WAY {
            let kept = self.pages.limits().kept();
            self.tide.make_way(dirty.saturating_sub(bytes).max(kept));
        }
    }

    /// A round over everything that idled since the last one, or over all. Returns how many bytes
    /// went back.
    pub fn decay_round(&'static self, round: Round) -> usize {
        let source = Old(self);
        let now = self.now_ms();
        let before = match round {
            Round::Idle => now.saturating_sub(self.decay_ms() / 2),
            Round::All => u64::MAX,
        };
        match round {
            Round::Idle => self.drain(Round::Idle, &source),
            Round::All => self.drain_all(),
        }
        self.stacks.release_idle(&self.pages, before);
        self.depots.cool(before, &source);
        let spare = self.purge_spare(round, &source) + self.decay_meta(round, before);
        spare
            + match round {
                Round::Idle => self.purge_free(),
                Round::All => self.pages.purge_all(),
            }
    }

    /// Makes free spans of what magazines, empty slabs and idle stacks hold. Pages go back to the
    /// kernel only where a limit on what may be resident counts them: a refused request needs room,
    /// and free pages are room.
    pub(super) fn gather_free(&'static self) {
        self.drain_all();
        self.stacks.release_idle(&self.pages, u64::MAX);
        self.depots.cool(u64::MAX, self);
        if self.pages.limits().hard() != usize::MAX {
            self.purge_spare(Round::All, &Old(self));
        }
    }

    /// Gives back free spans that reach the decay time before the next round, a quarter of it
    /// later.
    pub fn purge_free(&self) -> usize {
        let young = self.decay_ms() - self.decay_ms() / 4;
        match self.now_ms().checked_sub(young) {
            Some(time) => self.pages.purge_until(time),
            None => 0,
        }
    }

    /// What a caller does on its way, holding no lock: some steps of a round where no thread does
    /// them, or where memory is short, for then those who take it must not be faster than one who
    /// gives it back.
    pub(super) fn decay_on_the_way(&'static self) {
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
        if let Some(_whole) = self.tide.step.try_lock() {
            // SAFETY: under the lock.
            let round = unsafe { &mut *self.tide.on_the_way.get() };
            let (kind, steps) = match pressed {
                true => (Round::All, PRESSED_STEPS),
                false => (Round::Idle, 1),
            };
            if round.caches > 0 {
                let looked_at = self.drain_some(&Old(self)).unwrap_or(0);
                // No cache is left, or another thread drains them.
                round.caches = match looked_at {
                    0 => 0,
                    some => round.caches.saturating_sub(some),
                };
                return;
            }
            for _ in 0..steps {
                match self.depots.purge_spare(kind, &mut round.cursor, &Old(self)) {
                    Some(bytes) => round.gained += bytes,
                    None => return self.next_round(round, kind),
                }
            }
        }
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
        round.caches = self.registry.count();
        self.look_around();
        let before = now.saturating_sub(self.decay_ms());
        self.stacks.release_idle(&self.pages, before);
        self.depots.cool(before, self);
        self.cool_meta(before);
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
