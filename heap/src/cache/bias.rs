//! Biased locking of a thread's cache: its owner's short calls take no lock.
//!
//! In hardened mode each call changes a magazine in more than one place, so the protocol of
//! [`super::drain`], which makes a single store, does not suffice. Two atomic operations for each
//! call would be a large part of its price. So the owner takes *turns* instead, without an atomic
//! read-modify-write and without a fence:
//!
//! 1. The owner writes that it is at work, then reads the cache's lock. If the lock is taken, it
//!    ends the turn at once and waits for the lock as everyone else does.
//! 2. Another thread takes the lock, passes the heavy barrier, and waits until the owner is not at
//!    work. It does not wait long: a handler of signals may have interrupted the owner, and may
//!    itself wait for the other thread.
//!
//! After the barrier, either the other thread sees that the owner is at work, or the owner has yet
//! to read the lock, and finds it taken. A biased lock as that of Java's monitors (Dice, Huang,
//! Yang, "Asymmetric Dekker synchronization", 2001), except that the bias stays.
//!
//! A handler of signals that interrupts a turn of its own thread cannot take another one. The loom
//! models are in `testing/bias_models.rs`.

use crate::base::sync::{AtomicBool, Ordering, light_barrier};

/// Whether the owner of a cache may take turns, and whether it has one.
pub struct Bias {
    /// Written under the lock, by one who has [excluded](Bias::exclude) the owner.
    pub(crate) is_open: AtomicBool,
    /// Written by the owner only.
    pub(crate) at_work: AtomicBool,
}

/// Whether to wait on for the end of a turn.
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
    /// No turns.
    #[cfg(not(loom))]
    pub const fn closed() -> Bias {
        Bias {
            is_open: AtomicBool::new(false),
            at_work: AtomicBool::new(false),
        }
    }

    /// Whether the owner has a turn. For the owner: if it has, a handler of signals interrupted it.
    #[inline(always)]
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Whether the owner, which has no turn, may take one most likely.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        // Acquire: who sees that another thread opened the bias also sees that it took the lock.
        self.is_open.load(Ordering::Acquire) && !self.is_at_work()
    }

    /// The owner's turn; `None` if there are none, if the owner has one already, or if the lock is
    /// taken.
    #[inline(always)]
    pub fn begin(&self, is_locked: impl FnOnce() -> bool) -> Option<Turn<'_>> {
        if !self.is_ready() {
            return None;
        }
        self.at_work.store(true, Ordering::Relaxed);
        let turn = Turn(self);
        light_barrier();
        // The bias only after the lock: it is closed under the lock.
        (!is_locked() && self.is_open.load(Ordering::Relaxed)).then_some(turn)
    }

    /// For a thread that has taken the lock, and is not the owner: waits for the end of the owner's
    /// turn. False if the owner may still be at work: `barrier` does not pass, or `wait` gives up.
    pub fn exclude(
        &self,
        barrier: impl FnOnce() -> bool,
        mut wait: impl FnMut() -> Patience,
    ) -> bool {
        if !self.is_open.load(Ordering::Relaxed) {
            return true;
        }
        let mut patience = match barrier() {
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

    /// Lets the owner take turns from now on, or none. Under the lock; the caller is the owner, or
    /// has excluded it.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
    }

    /// In a fork's child: whether the owner, which stayed in the parent, was at work. It is not any
    /// more.
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
