//! Biased locking of a thread's cache: its owner's short calls take no lock.
//!
//! In hardened mode each call changes a magazine in more than one place. So the protocol of
//! [`super::drain`], in which the owner makes a single store, does not suffice. Two atomic
//! operations for each call would be a large part of its cost. So the owner takes *turns* instead.
//! With [asymmetric](Fences::Asymmetric) fences, a turn needs no atomic read-modify-write and no
//! fence:
//!
//! 1. The owner writes that it is at work, which begins its turn, and then reads the cache's lock.
//!    If the lock is taken, the owner ends the turn at once and waits for the lock as other threads
//!    do.
//! 2. Another thread takes the lock, passes the heavy barrier, and waits until the owner is not at
//!    work. It does not wait long, because a signal handler may have interrupted the owner, and may
//!    itself wait for the other thread.
//!
//! After the barrier, either the other thread sees that the owner is at work, or the owner has yet
//! to read the lock, and finds it taken. This is a biased lock like that of Java's monitors (Dice,
//! Huang, Yang, "Asymmetric Dekker synchronization", 2001), except that no other thread gets the
//! bias.
//!
//! Where the heavy barrier (`membarrier`) is forbidden or refused, the fences are
//! [symmetric](Fences::Symmetric). The owner then begins its turn by an atomic exchange, and each
//! side passes a full fence between its write and its read.
//!
//! Other threads only close the bias. Suppose that they could open it. An owner could then read the
//! lock before another thread takes it, and read the bias after that thread opens it. The owner
//! would begin a turn while that thread still holds the lock.
//!
//! A signal handler that interrupts a turn of its own thread cannot take another turn.
//!
//! A free ends with the write to the block's canary that marks the block as free ([`Closing`]). If
//! several threads free one block, only one may succeed. So the write is an atomic exchange, except
//! in a turn of the only thread that has entered the heap. The second thread that enters waits for
//! the end of that turn, but only for a bounded time.
//!
//! The loom models are in `testing/bias_models.rs`.

use crate::base::sync::{
    AtomicBool, AtomicU8, AtomicU64, Ordering, fence, full_barrier_after_rmw, light_barrier,
};

/// Whether the owner of a cache may take turns, and whether it has one.
pub struct Bias {
    /// [`CLOSED`], or the [`Fences`] of the owner's turns. Written under the lock. The owner may
    /// write any value. A thread that has [excluded](Bias::exclude) the owner may write only
    /// [`CLOSED`].
    fences: AtomicU8,
    /// Written by the owner only.
    at_work: AtomicBool,
    /// Whether the owner is the only thread that has entered the heap. Written before its first
    /// turn; the second thread that enters clears it.
    is_alone: AtomicBool,
}

/// The owner may take no turns.
const CLOSED: u8 = 0;

/// How the owner's turns and a thread that holds the lock exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fences {
    /// The thread with the lock passes the heavy barrier, and the owner passes no fence.
    Asymmetric = 1,
    /// Each side passes a fence. Needs no system call.
    Symmetric = 2,
}

const ASYMMETRIC: u8 = Fences::Asymmetric as u8;
const SYMMETRIC: u8 = Fences::Symmetric as u8;

/// Whether a thread waits any longer for the end of another one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Yes.
    Left,
    /// No.
    Lost,
}

/// A turn of the owner, until it is dropped.
pub struct Turn<'a>(&'a Bias);

impl Bias {
    /// A bias that allows no turns. Its owner is not alone.
    #[cfg(not(loom))]
    pub const fn closed() -> Bias {
        Bias {
            fences: AtomicU8::new(CLOSED),
            at_work: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
        }
    }

    /// A bias that allows no turns. Its owner is alone.
    #[cfg(loom)]
    pub(crate) fn of_one_thread() -> Bias {
        Bias {
            fences: AtomicU8::new(CLOSED),
            at_work: AtomicBool::new(false),
            is_alone: AtomicBool::new(true),
        }
    }

    /// Whether the owner has a turn. If the owner itself finds this, it is in a signal handler that
    /// interrupted the turn.
    #[inline(always)]
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// For the owner: whether it can probably begin a turn.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.fences.load(Ordering::Relaxed) != CLOSED && !self.is_at_work()
    }

    /// Begins a turn of the owner. `None` if the bias is closed, if the owner has a turn already,
    /// or if the lock is taken.
    #[inline(always)]
    pub fn begin(&self, is_locked: impl FnOnce() -> bool) -> Option<Turn<'_>> {
        match self.is_at_work() {
            true => None,
            false => self.begin_ready(is_locked),
        }
    }

    /// [`Bias::begin`] of an owner that has no turn.
    #[inline(always)]
    pub fn begin_ready(&self, is_locked: impl FnOnce() -> bool) -> Option<Turn<'_>> {
        debug_assert!(!self.is_at_work());
        match self.fences.load(Ordering::Relaxed) == ASYMMETRIC {
            true => self.begin_unfenced(is_locked),
            false => self.begin_fenced(is_locked),
        }
    }

    #[inline(always)]
    fn begin_unfenced(&self, is_locked: impl FnOnce() -> bool) -> Option<Turn<'_>> {
        self.at_work.store(true, Ordering::Relaxed);
        let turn = Turn(self);
        light_barrier();
        // The bias is read after the lock, because others close it under the lock.
        (!is_locked() && self.fences.load(Ordering::Relaxed) == ASYMMETRIC).then_some(turn)
    }

    /// Begins a turn with symmetric fences. `None` if the bias is closed, or if the lock is taken.
    #[inline(always)]
    fn begin_fenced(&self, is_locked: impl FnOnce() -> bool) -> Option<Turn<'_>> {
        if self.fences.load(Ordering::Relaxed) == CLOSED {
            return None;
        }
        self.at_work.swap(true, Ordering::SeqCst);
        let turn = Turn(self);
        full_barrier_after_rmw();
        (!is_locked() && self.fences.load(Ordering::Relaxed) == SYMMETRIC).then_some(turn)
    }

    /// For a thread that has taken the lock, and is not the owner: waits for the end of the owner's
    /// turn. Calls `barrier` only with asymmetric fences. False if the owner may still be at work,
    /// because `barrier` fails or `wait` gives up.
    pub fn exclude(&self, barrier: impl FnOnce() -> bool, wait: impl FnMut() -> Patience) -> bool {
        self.fences.load(Ordering::Relaxed) == CLOSED || self.await_turn(barrier, wait)
    }

    /// For a thread that is not the owner, and has written what every turn reads: waits for the end
    /// of a turn that may not have read it. False as for [`Bias::exclude`].
    #[inline(never)]
    fn await_turn(
        &self,
        barrier: impl FnOnce() -> bool,
        mut wait: impl FnMut() -> Patience,
    ) -> bool {
        // Before the read of `fences`: an owner that opens its bias later sees what was written.
        fence(Ordering::SeqCst);
        // Acquire: a thread that sees that the owner has no more turns without a fence also sees
        // the end of the last one.
        let is_past = self.fences.load(Ordering::Acquire) != ASYMMETRIC || barrier();
        let mut patience = match is_past {
            true => Patience::Left,
            false => Patience::Lost,
        };
        while patience == Patience::Left {
            if !self.at_work.load(Ordering::Acquire) {
                return true;
            }
            patience = wait();
        }
        false
    }

    /// From now on, the owner takes turns with these fences. Under the lock; the caller is the
    /// owner.
    pub fn open(&self, fences: Fences) {
        self.fences.store(fences as u8, Ordering::Release);
        // The other side of the fence in `await_turn`.
        fence(Ordering::SeqCst);
    }

    /// The owner takes no more turns. Under the lock; the caller is the owner, or has excluded it.
    pub fn close(&self) {
        self.fences.store(CLOSED, Ordering::Release);
    }

    /// Sets whether the owner is the only thread that has entered the heap. True only before the
    /// owner's first turn; for false, see [`Bias::end_alone`].
    pub fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
    }

    /// For the second thread that enters: marks the owner as no longer alone, and waits for the end
    /// of a turn that may not have seen this. False as for [`Bias::exclude`]. Then the owner may
    /// still end one free by a plain store.
    pub fn end_alone(
        &self,
        barrier: impl FnOnce() -> bool,
        wait: impl FnMut() -> Patience,
    ) -> bool {
        // Before the wait, which may give up.
        self.set_alone(false);
        self.await_turn(barrier, wait)
    }

    /// In a fork's child: ends the turn of an owner that stayed in the parent. Returns whether it
    /// had one.
    pub fn end_if_left(&self) -> bool {
        let was = self.is_at_work();
        if was {
            self.at_work.store(false, Ordering::Relaxed);
        }
        was
    }
}

impl Drop for Turn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.at_work.store(false, Ordering::Release);
    }
}

/// The last step of a free: the block is checked and filled, and its canary does not yet mark it as
/// free.
pub struct Closing<'a> {
    /// The canary.
    pub word: &'a AtomicU64,
    /// Its value while the block is in use.
    pub live: u64,
    /// Its value once the block is free.
    pub freed: u64,
}

impl Closing<'_> {
    /// Writes to the canary that the block is free. False if another thread that frees the block at
    /// the same time was faster.
    ///
    /// In a `turn` of a thread that is alone, this is a plain store. The thread does not read the
    /// canary again, which would cost more than the store. So it misses a free of the same block by
    /// a signal handler since `live` was read.
    #[inline(always)]
    pub fn end(self, turn: Option<&Turn<'_>>) -> bool {
        match turn {
            Some(turn) if turn.0.is_alone.load(Ordering::Relaxed) => {
                self.word.store(self.freed, Ordering::Release);
                true
            }
            _ => self.end_shared(),
        }
    }

    #[inline]
    fn end_shared(self) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let exchange = self
            .word
            .compare_exchange(self.live, self.freed, order.0, order.1);
        exchange.is_ok()
    }
}
