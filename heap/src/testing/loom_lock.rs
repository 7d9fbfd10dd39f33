//! [`super::lock::Lock`] for the model checker: spins on a word the checker schedules.

use super::lock_order::Rank;
use crate::base::sync::{AtomicBool, Ordering};

/// A mutex the checker can schedule.
#[derive(Debug)]
pub struct Lock {
    held: AtomicBool,
}

/// Holds a [`Lock`]; gives it up when dropped.
#[derive(Debug)]
pub struct Guard<'a> {
    lock: &'a Lock,
}

impl Lock {
    /// A free lock.
    pub fn new(_rank: Rank) -> Self {
        Self {
            held: AtomicBool::new(false),
        }
    }

    /// Waits for the lock and takes it.
    pub fn lock(&self) -> Guard<'_> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => loom::thread::yield_now(),
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Guard { lock: self })
    }

    /// Gives up the lock on behalf of a guard that was forgotten.
    ///
    /// # Safety
    /// - The calling thread took the lock and forgot the guard.
    pub unsafe fn force_unlock(&self) {
        self.held.store(false, Ordering::Release);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
