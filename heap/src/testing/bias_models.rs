//! Models of biased locking, explored by loom: turns of an owner beside a thread with the lock.
//! The protocol is the real one (`cache/bias.rs`). The kernel's `membarrier` is a fence on both
//! sides, as in `magazine_models.rs`.
//!
//! Bounds: an owner that tries two turns, and another thread that takes the lock once or twice and
//! may close the bias or open it; or one free by each of two threads. All interleavings.
//!
//! The tests `without_…` leave out a step, and expect that both threads change the same word at
//! once, or that both free one block.

use crate::base::sync::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::cache::bias::{Bias, Closing, Patience};
use crate::os::lock::{Lock, Rank};
use loom::sync::Arc;

/// The step that a thread leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The heavy barrier.
    Barrier,
    /// The owner's look at the lock.
    Look,
}

/// What the other thread does with the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Keeps,
    Closes,
    Opens,
}

/// The canary of a block in use, and of a free block.
const LIVE: u64 = 1;
const FREED: u64 = 2;

struct World {
    lock: Lock,
    bias: Bias,
    canary: AtomicU64,
    /// Read and written in two steps, by one thread at a time if the protocol holds.
    changes: AtomicUsize,
}

impl World {
    /// The bias is open, unless the other thread is to open it.
    fn new(other: Other) -> Arc<World> {
        let bias = Bias::of_one_thread();
        bias.set_open(other != Other::Opens);
        Arc::new(World {
            lock: Lock::new(Rank::Apart),
            bias,
            canary: AtomicU64::new(LIVE),
            changes: AtomicUsize::new(0),
        })
    }

    /// A change that another one in the middle of it would undo.
    fn change(&self) {
        let before = self.changes.load(Ordering::Relaxed);
        self.changes.store(before + 1, Ordering::Relaxed);
    }

    /// The owner's change, in a turn or under the lock.
    fn own(&self, flaw: Flaw) {
        let is_locked = || flaw != Flaw::Look && self.lock.is_taken();
        match self.bias.begin(is_locked) {
            Some(_turn) => self.change(),
            None => {
                let _guard = self.lock.lock();
                self.change();
            }
        }
    }

    fn exclude(&self, flaw: Flaw) {
        let barrier = || heavy_barrier(flaw);
        assert!(self.bias.exclude(barrier, yielding));
    }

    /// A free that has found the block in use. `None` if it is free.
    fn close(&self) -> Option<Closing<'_>> {
        let is_live = self.canary.load(Ordering::Acquire) == LIVE;
        is_live.then_some(Closing {
            word: &self.canary,
            live: LIVE,
            freed: FREED,
        })
    }

    /// The owner's free, in a turn if it gets one. Whether it freed the block.
    fn free_own(&self) -> bool {
        let closing = self.close();
        let turn = self.bias.begin(|| self.lock.is_taken());
        closing.is_some_and(|closing| closing.end(turn.as_ref()))
    }

    /// A second thread enters the heap, then frees the block. Whether it did.
    fn enter_and_free(&self, flaw: Flaw) -> bool {
        assert!(self.bias.end_alone(|| heavy_barrier(flaw), yielding));
        self.close().is_some_and(|closing| closing.end(None))
    }

    fn visit(&self, other: Other, flaw: Flaw) {
        let _guard = self.lock.lock();
        self.exclude(flaw);
        self.change();
        match other {
            Other::Keeps => {}
            Other::Closes => self.bias.set_open(false),
            Other::Opens => self.bias.set_open(true),
        }
    }
}

fn heavy_barrier(flaw: Flaw) -> bool {
    if flaw != Flaw::Barrier {
        fence(Ordering::SeqCst);
    }
    true
}

fn yielding() -> Patience {
    loom::thread::yield_now();
    Patience::Left
}

fn side_by_side(other: Other, visits: usize, flaw: Flaw) {
    loom::model(move || {
        let world = World::new(other);
        let visited = world.clone();
        let visitor = loom::thread::spawn(move || {
            (0..visits).for_each(|_| visited.visit(other, flaw));
        });
        world.own(flaw);
        world.own(flaw);
        visitor.join().unwrap();
        let changes = world.changes.load(Ordering::Relaxed);
        assert_eq!(changes, 2 + visits, "two threads were at it at once");
    });
}

/// The thread that was alone frees a block, and so does one that enters.
fn freed_by_both(flaw: Flaw) {
    loom::model(move || {
        let world = World::new(Other::Keeps);
        let entered = world.clone();
        let second = loom::thread::spawn(move || entered.enter_and_free(flaw));
        let frees = [world.free_own(), second.join().unwrap()];
        assert_ne!(frees[0], frees[1], "freed by both or neither");
    });
}

#[test]
fn turns_and_visits_do_not_overlap() {
    side_by_side(Other::Keeps, 1, Flaw::None);
    side_by_side(Other::Keeps, 2, Flaw::None);
}

#[test]
fn turns_end_when_the_bias_is_closed() {
    side_by_side(Other::Closes, 2, Flaw::None);
}

#[test]
fn turns_begin_when_the_bias_is_opened() {
    side_by_side(Other::Opens, 2, Flaw::None);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_the_barrier_they_overlap() {
    side_by_side(Other::Keeps, 1, Flaw::Barrier);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_a_look_at_the_lock_they_overlap() {
    side_by_side(Other::Keeps, 1, Flaw::Look);
}

#[test]
fn of_two_frees_one_fails() {
    freed_by_both(Flaw::None);
}

#[test]
#[should_panic(expected = "freed by both or neither")]
fn without_the_barrier_both_free() {
    freed_by_both(Flaw::Barrier);
}
