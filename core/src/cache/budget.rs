//! How many bytes the magazines may hold: a bound a thread and one for the process.

use crate::base::sync::{AtomicUsize, Ordering};

/// Default bound a thread, in bytes.
pub const THREAD_BYTES: usize = 1 << 20;
/// Default bound for the process, in bytes.
pub const PROCESS_BYTES: usize = 64 << 20;
/// Most bytes one magazine may hold.
pub const MAGAZINE_BYTES: usize = 128 << 10;
/// Most entries of one magazine.
pub const MAGAZINE_ENTRIES: usize = 2048;
/// Bytes of a magazine's first capacity (at least one block, at most [`FIRST_ENTRIES`]).
pub const FIRST_BYTES: usize = 4 << 10;
/// Most entries of a magazine's first capacity.
pub const FIRST_ENTRIES: usize = 16;

/// What has been granted of the process's bound.
pub struct Budget {
    thread: AtomicUsize,
    process: AtomicUsize,
    granted: AtomicUsize,
}

impl Budget {
    /// The default bounds, nothing granted.
    pub const fn new() -> Budget {
        Budget {
            thread: AtomicUsize::new(THREAD_BYTES),
            process: AtomicUsize::new(PROCESS_BYTES),
            granted: AtomicUsize::new(0),
        }
    }

    /// Sets the bound a thread, in bytes. Counts for later growth only.
    pub fn set_thread(&self, bytes: usize) {
        self.thread.store(bytes, Ordering::Relaxed);
    }

    /// Sets the bound for the process, in bytes. Counts for later growth only.
    pub fn set_process(&self, bytes: usize) {
        self.process.store(bytes, Ordering::Relaxed);
    }

    /// Bytes granted to all magazines together.
    pub fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// Grants `bytes` to a thread that has `held`; false if a bound would be passed.
    pub fn grant(&self, held: usize, bytes: usize) -> bool {
        if held + bytes > self.thread.load(Ordering::Relaxed) {
            return false;
        }
        let total = self.granted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > self.process.load(Ordering::Relaxed) {
            self.restore(bytes);
            return false;
        }
        true
    }

    /// Takes a grant back.
    pub fn restore(&self, bytes: usize) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// In a fork's child only one thread is left, which holds `bytes`.
    pub fn reset(&self, bytes: usize) {
        self.granted.store(bytes, Ordering::Relaxed);
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_hold() {
        let budget = Budget::new();
        budget.set_thread(100);
        budget.set_process(150);
        assert!(budget.grant(0, 100));
        assert!(!budget.grant(100, 1));
        assert!(budget.grant(0, 50));
        assert!(!budget.grant(0, 1));
        budget.restore(100);
        assert!(budget.grant(50, 50));
        assert_eq!(budget.granted(), 100);
    }
}
