//! Models of biased locking, explored by loom: turns of an owner beside a thread with the lock.
//! The protocol is the real one (`cache/bias.rs`). The kernel's `membarrier` is a fence on both
//! sides, as in `magazine_models.rs`.
//!
//! Bounds: an owner that tries one or two turns and opens the bias whenever it has the lock, and
//! another thread that takes the lock once or twice and may close the bias; or two threads that
//! each free the block once, while the owner may first replace the barrier by fences. All
//! interleavings.
//!
//! The tests `without_…` leave out a step, or let the other thread open the bias. They expect that
//! both threads change the same word at once, or that both free one block. Where the kernel refuses
//! the barrier, the other thread changes nothing while the owner has turns without fences.

use crate::base::sync::{AtomicU64, AtomicUsize, LACKS_BARRIERS, Ordering, fence};
use crate::cache::bias::{Bias, Closing, Fences, Patience};
use crate::os::lock::{Lock, Rank};
use Fences::{Asymmetric, Symmetric};
use loom::sync::Arc;

/// The step that a thread leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The heavy barrier, though it seems to pass.
    Barrier,
    /// The heavy barrier, because the kernel refuses it.
    Refused,
    /// The owner's look at the lock.
    Look,
}

/// What the other thread does with the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Keeps,
    Closes,
    /// Closes it on the first visit and opens it on later ones. Only the owner may open it.
    Opens,
}

/// The fences of the owner's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    /// At first. `None`: the bias is closed.
    first: Option<Fences>,
    /// After the owner has taken the lock.
    later: Fences,
}

/// An owner whose bias is open.
const fn with(fences: Fences) -> Turns {
    Turns {
        first: Some(fences),
        later: fences,
    }
}

/// An owner whose bias is closed at first.
const fn closed(fences: Fences) -> Turns {
    Turns {
        first: None,
        later: fences,
    }
}

/// An owner that replaces the barrier by fences.
const REPLACING: Turns = Turns {
    first: Some(Asymmetric),
    later: Symmetric,
};

/// An owner that replaces fences by the barrier.
const RETURNING: Turns = Turns {
    first: Some(Symmetric),
    later: Asymmetric,
};

/// The canary of a block in use, and of a free block.
const LIVE: u64 = 1;
const FREED: u64 = 2;

struct World {
    lock: Lock,
    bias: Bias,
    later: Fences,
    canary: AtomicU64,
    /// Read and written in two steps, by one thread at a time if the protocol holds.
    changes: AtomicUsize,
}

impl World {
    fn new(turns: Turns) -> Arc<World> {
        let bias = Bias::of_one_thread();
        if let Some(fences) = turns.first {
            bias.open(fences);
        }
        Arc::new(World {
            lock: Lock::new(Rank::Apart),
            bias,
            later: turns.later,
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
                self.bias.open(self.later);
                self.change();
            }
        }
    }

    /// Whether the owner is excluded.
    fn exclude(&self, flaw: Flaw) -> bool {
        let barrier = || heavy_barrier(flaw);
        let is_excluded = self.bias.exclude(barrier, yielding);
        assert!(is_excluded || flaw == Flaw::Refused);
        is_excluded
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

    /// The owner takes the lock, and opens the bias anew.
    fn open_again(&self) {
        let _guard = self.lock.lock();
        self.bias.open(self.later);
    }

    /// A change by another thread, if it excludes the owner. How many changes this was.
    fn visit(&self, visit: usize, other: Other, flaw: Flaw) -> usize {
        let _guard = self.lock.lock();
        if !self.exclude(flaw) {
            return 0;
        }
        self.change();
        match other {
            Other::Keeps => {}
            Other::Opens if visit > 0 => self.bias.open(self.later),
            Other::Closes | Other::Opens => self.bias.close(),
        }
        1
    }
}

fn passes_barrier(flaw: Flaw) -> bool {
    !matches!(flaw, Flaw::Barrier | Flaw::Refused)
}

fn heavy_barrier(flaw: Flaw) -> bool {
    if passes_barrier(flaw) {
        fence(Ordering::SeqCst);
    }
    flaw != Flaw::Refused
}

fn yielding() -> Patience {
    loom::thread::yield_now();
    Patience::Left
}

/// How often each side changes the word.
struct Changes {
    turns: usize,
    visits: usize,
}

const ONE_EACH: Changes = times(1, 1);

const fn times(turns: usize, visits: usize) -> Changes {
    Changes { turns, visits }
}

fn side_by_side(turns: Turns, other: Other, times: Changes, flaw: Flaw) {
    LACKS_BARRIERS.set(!passes_barrier(flaw));
    loom::model(move || {
        let world = World::new(turns);
        let visited = world.clone();
        let visitor = loom::thread::spawn(move || {
            let visits = (0..times.visits).map(|visit| visited.visit(visit, other, flaw));
            visits.sum::<usize>()
        });
        (0..times.turns).for_each(|_| world.own(flaw));
        let expected = times.turns + visitor.join().unwrap();
        let changes = world.changes.load(Ordering::Relaxed);
        assert_eq!(changes, expected, "two threads were at it at once");
    });
}

/// The thread that was alone frees a block, and so does one that enters.
fn freed_by_both(turns: Turns, flaw: Flaw) {
    LACKS_BARRIERS.set(!passes_barrier(flaw));
    loom::model(move || {
        let world = World::new(turns);
        let entered = world.clone();
        let second = loom::thread::spawn(move || entered.enter_and_free(flaw));
        if turns.first != Some(turns.later) {
            world.open_again();
        }
        let frees = [world.free_own(), second.join().unwrap()];
        assert_ne!(frees[0], frees[1], "freed by both or neither");
    });
}

#[test]
fn turns_and_visits_do_not_overlap() {
    side_by_side(with(Asymmetric), Other::Keeps, times(2, 2), Flaw::None);
}

#[test]
fn turns_with_fences_and_visits_do_not_overlap() {
    side_by_side(with(Symmetric), Other::Keeps, times(2, 1), Flaw::None);
    side_by_side(with(Symmetric), Other::Keeps, times(1, 2), Flaw::None);
}

#[test]
fn turns_end_when_the_bias_is_closed() {
    side_by_side(with(Asymmetric), Other::Closes, times(2, 2), Flaw::None);
    side_by_side(with(Symmetric), Other::Closes, ONE_EACH, Flaw::None);
}

#[test]
fn turns_begin_when_the_owner_opens_the_bias() {
    side_by_side(closed(Asymmetric), Other::Closes, times(2, 2), Flaw::None);
    side_by_side(closed(Symmetric), Other::Closes, times(2, 1), Flaw::None);
}

#[test]
fn fences_replace_the_barrier() {
    side_by_side(REPLACING, Other::Keeps, times(2, 1), Flaw::None);
    side_by_side(REPLACING, Other::Closes, times(2, 1), Flaw::None);
}

#[test]
fn a_refused_barrier_keeps_others_away() {
    side_by_side(with(Asymmetric), Other::Keeps, times(2, 1), Flaw::Refused);
    side_by_side(REPLACING, Other::Keeps, times(2, 1), Flaw::Refused);
    side_by_side(REPLACING, Other::Closes, times(1, 2), Flaw::Refused);
    side_by_side(closed(Symmetric), Other::Closes, times(1, 2), Flaw::Refused);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_the_barrier_they_overlap() {
    side_by_side(with(Asymmetric), Other::Keeps, ONE_EACH, Flaw::Barrier);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_a_look_at_the_lock_they_overlap() {
    side_by_side(with(Asymmetric), Other::Keeps, ONE_EACH, Flaw::Look);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_a_look_at_the_lock_fences_do_not_help() {
    side_by_side(with(Symmetric), Other::Keeps, ONE_EACH, Flaw::Look);
}

#[test]
#[should_panic(expected = "at it at once")]
fn without_the_owner_opening_it_they_overlap() {
    side_by_side(with(Asymmetric), Other::Opens, times(1, 2), Flaw::None);
}

#[test]
fn of_two_frees_one_fails() {
    freed_by_both(with(Asymmetric), Flaw::None);
    freed_by_both(with(Symmetric), Flaw::Refused);
    freed_by_both(closed(Symmetric), Flaw::Refused);
    freed_by_both(closed(Asymmetric), Flaw::None);
    freed_by_both(REPLACING, Flaw::None);
    freed_by_both(RETURNING, Flaw::None);
}

#[test]
#[should_panic(expected = "freed by both or neither")]
fn without_the_barrier_both_free() {
    freed_by_both(with(Asymmetric), Flaw::Barrier);
}
