//! Locks that allocate nothing and keep `errno`.
//!
//! [`FutexLock`] is the machine's. [`Lock`] is the same, except under a model checker, where it is
//! one the checker can schedule. [`super::lock_order`] is the table of all locks, [`super::gate`]
//! the gate that a fork closes, and [`super::fork`] what else a fork does with locks.

use super::gate::GATE;
pub use super::lock_order::Rank;
use super::lock_order::{CHECKS, assert_in_order, note_given_up, note_taken};
use super::machine::{AtomicUsize, Ordering, SPINS, Wake, me, sleep_while, wake};

#[cfg(loom)]
pub use super::lock_loom::{Guard, Lock};
#[cfg(not(loom))]
pub use FutexGuard as Guard;
#[cfg(not(loom))]
pub use FutexLock as Lock;

const FREE: usize = 0;
/// Added to the holder: threads may sleep on the lock.
const AWAITED: usize = 1;

/// A mutex of one word: [`FREE`], or its holder, with [`AWAITED`].
#[derive(Debug)]
pub struct FutexLock {
    state: AtomicUsize,
    rank: Rank,
}

/// Holds a [`FutexLock`]; gives it up when dropped.
#[derive(Debug)]
pub struct FutexGuard<'a> {
    lock: &'a FutexLock,
}

impl FutexLock {
    /// A free lock.
    pub const fn new(rank: Rank) -> Self {
        Self {
            state: AtomicUsize::new(FREE),
            rank,
        }
    }

    /// Its place in the order of locks.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> FutexGuard<'_> {
        // A fork comes from a handler that may have interrupted any holder.
        if CHECKS && !GATE.is_forker() {
            assert_in_order(self.rank);
        }
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Takes the lock if it is free, and open.
    #[inline]
    pub fn try_lock(&self) -> Option<FutexGuard<'_>> {
        self.take(me())
    }

    /// The thread that holds the lock.
    pub(super) fn holder(&self) -> Option<usize> {
        match self.state.load(Ordering::SeqCst) & !AWAITED {
            FREE => None,
            holder => Some(holder),
        }
    }

    /// Whether the calling thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.holder().is_some_and(|holder| holder == me())
    }

    /// First the word, then the gate: see [`super::gate`].
    #[inline]
    fn take(&self, value: usize) -> Option<FutexGuard<'_>> {
        self.state
            .compare_exchange(FREE, value, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        let guard = FutexGuard { lock: self };
        note_taken(self.rank);
        if self.rank != Rank::Apart && GATE.stops(self.rank) {
            drop(guard);
            return None;
        }
        Some(guard)
    }

    #[cold]
    fn lock_contended(&self) -> FutexGuard<'_> {
        let _waiting = GATE.waits.note(self);
        let mut value = me();
        loop {
            GATE.wait(self.rank);
            for _ in 0..SPINS {
                if self.state.load(Ordering::Relaxed) == FREE
                    && let Some(guard) = self.take(value)
                {
                    return guard;
                }
                core::hint::spin_loop();
            }
            // Sleepers are woken one at a time. The lock then counts as awaited, which costs at
            // most one needless wake-up.
            value |= AWAITED;
            match self.announce() {
                FREE => {
                    if let Some(guard) = self.take(value) {
                        return guard;
                    }
                }
                held => sleep_while(&self.state, held, None),
            }
        }
    }

    /// Marks a held lock as awaited. Returns its new word; [`FREE`] if no thread holds it.
    fn announce(&self) -> usize {
        let mark = |state| (state != FREE).then_some(state | AWAITED);
        self.state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark)
            .map_or(FREE, |held| held | AWAITED)
    }

    /// Sleeps as long as the lock is held, for at most `ms` milliseconds if there are any. May
    /// return early; false if no thread held it.
    pub(super) fn sleep_while_held(&self, ms: Option<u64>) -> bool {
        match self.announce() {
            FREE => false,
            held => {
                sleep_while(&self.state, held, ms);
                true
            }
        }
    }

    /// In a child of fork: frees the lock if its holder stayed in the parent. Returns whether it
    /// did.
    pub fn free_if_left(&self) -> bool {
        let is_left = self.holder().is_some_and(|holder| holder != me());
        if is_left {
            self.state.store(FREE, Ordering::Release);
        }
        is_left
    }

    pub(super) fn wake_one(&self) {
        wake(&self.state, Wake::One);
    }

    /// Gives up the lock on behalf of a guard that was forgotten.
    ///
    /// # Safety
    /// - The calling thread took the lock and forgot the guard.
    #[inline]
    pub unsafe fn force_unlock(&self) {
        debug_assert!(self.is_mine());
        note_given_up(self.rank);
        if self.state.swap(FREE, Ordering::SeqCst) & AWAITED != 0 {
            self.wake_one();
        }
    }
}

impl Drop for FutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard represents the lock taken by this thread, and is gone after this.
        unsafe { self.lock.force_unlock() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    #[test]
    fn only_one_holder_at_a_time() {
        struct Shared(FutexLock, crate::base::sync::UnsafeCell<u64>);
        // SAFETY: the cell is only touched under the lock.
        unsafe impl Sync for Shared {}
        let shared = Arc::new(Shared(
            FutexLock::new(Rank::Apart),
            crate::base::sync::UnsafeCell::new(0),
        ));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        let _guard = shared.0.lock();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        // SAFETY: all threads are gone.
        assert_eq!(unsafe { *shared.1.get() }, 40_000);
    }

    /// A thread that was woken alone wakes the next one.
    #[test]
    fn no_sleeper_is_forgotten() {
        for _ in 0..20 {
            let lock = Arc::new(FutexLock::new(Rank::Apart));
            let guard = lock.lock();
            let wait = |_| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || drop(lock.lock()))
            };
            let sleepers: Vec<_> = (0..8).map(wait).collect();
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(guard);
            sleepers
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn a_held_lock_is_not_had_until_it_is_given_up() {
        let lock = FutexLock::new(Rank::Apart);
        core::mem::forget(lock.lock());
        assert!(lock.try_lock().is_none());
        // SAFETY: this thread holds it, the guard is forgotten.
        unsafe { lock.force_unlock() };
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn contention_keeps_errno() {
        let lock = Arc::new(FutexLock::new(Rank::Apart));
        let guard = lock.lock();
        let waiter = {
            let lock = Arc::clone(&lock);
            std::thread::spawn(move || {
                crate::os::errno::set(77);
                drop(lock.lock());
                crate::os::errno::get()
            })
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(guard);
        assert_eq!(waiter.join().unwrap(), 77);
    }
}
