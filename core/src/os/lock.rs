//! Locks that allocate nothing and keep `errno`.
//!
//! [`FutexLock`] is the machine's. [`Lock`] is the same, except under a model checker,
//! where it is one the checker can schedule.

use super::errno::keep_errno;
use crate::base::sync::plain::{AtomicU32, Ordering};

/// A word that threads sleep on.
pub type Word = AtomicU32;

#[cfg(loom)]
pub use super::lock_loom::{Guard, Lock};
#[cfg(not(loom))]
pub use FutexGuard as Guard;
#[cfg(not(loom))]
pub use FutexLock as Lock;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on it.
const AWAITED: u32 = 2;

/// How often a locker looks again before it sleeps.
const SPINS: u32 = 64;

/// A mutex of one word: free, held, or held with sleepers.
#[derive(Debug)]
pub struct FutexLock {
    state: AtomicU32,
}

/// Holds a [`FutexLock`]; gives it up when dropped.
#[derive(Debug)]
pub struct FutexGuard<'a> {
    lock: &'a FutexLock,
}

impl FutexLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
        }
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> FutexGuard<'_> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<FutexGuard<'_>> {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| FutexGuard { lock: self })
    }

    #[cold]
    fn lock_contended(&self) -> FutexGuard<'_> {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            core::hint::spin_loop();
        }
        super::section::assert_outside();
        // From here the lock counts as awaited even if nobody else sleeps: one wake too many, never one too few.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            keep_errno(|| self.wait());
        }
        FutexGuard { lock: self }
    }

    fn wait(&self) {
        // SAFETY: the word outlives the call; a spurious return is handled by the caller's loop.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                AWAITED,
                core::ptr::null::<libc::timespec>(),
            );
        }
    }

    fn wake_one(&self) {
        // SAFETY: FUTEX_WAKE only uses the address as a key.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }

    /// Gives up the lock on behalf of a guard that was forgotten.
    ///
    /// # Safety
    /// - The calling thread took the lock and forgot the guard.
    #[inline]
    pub unsafe fn force_unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            keep_errno(|| self.wake_one());
        }
    }
}

/// Sleeps while `word` is `value`, for at most `ms` milliseconds. May return early.
pub fn wait(word: &Word, value: u32, ms: u64) {
    let time = libc::timespec {
        tv_sec: (ms / 1000) as libc::time_t,
        tv_nsec: (ms % 1000 * 1_000_000) as _,
    };
    // SAFETY: the word and the time outlive the call.
    keep_errno(|| unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const time,
        )
    });
}

/// Wakes who sleeps on `word`.
pub fn wake(word: &Word) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    keep_errno(|| unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    });
}

impl Default for FutexLock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for FutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard stands for the lock taken by this thread, and is gone after this.
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
            FutexLock::new(),
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

    #[test]
    fn a_held_lock_is_not_had_until_it_is_given_up() {
        let lock = FutexLock::new();
        core::mem::forget(lock.lock());
        assert!(lock.try_lock().is_none());
        // SAFETY: this thread holds it, the guard is forgotten.
        unsafe { lock.force_unlock() };
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn contention_keeps_errno() {
        let lock = Arc::new(FutexLock::new());
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
