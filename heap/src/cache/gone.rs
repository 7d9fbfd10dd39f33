//! Caches whose threads are gone and did not end them.
//!
//! A thread's cache ends with a destructor of the C library, of which each round runs once. The
//! thread may call the heap again after the last of them: in another destructor, or where the C
//! library frees what its thread used. Or the thread ends by a system call, and no destructor runs.
//! So the list is swept when it has doubled, and by each drain: a cache whose owner no longer
//! exists ends there. A TID that another thread of the process has by now only postpones that.
//!
//! The blocks that such a thread held back go to their slabs without quarantine.

use super::heap::Heap;
use super::registry::{BATCH, Batch};
use super::thread_cache::Cache;
use crate::base::sync::Ordering;
use crate::os::thread::{LEFT, has_ended, with_signals_masked};
use crate::os::{process, sandbox};

impl Heap {
    /// Ends all caches whose threads are gone, unless another thread drains. Tells the purge thread
    /// to end if none is left. Out of line, because the batch takes room on the stack.
    #[cold]
    #[inline(never)]
    pub fn sweep(&'static self) {
        let Some(_alone) = self.registry.draining.try_lock() else {
            return;
        };
        for _ in 0..=self.registry.count() / BATCH {
            let batch = self.registry.pin(BATCH);
            self.bury(&batch);
            self.registry
                .unpin(&batch, |cache| self.release_cache(cache));
        }
        self.registry.note_swept();
        if self.registry.is_empty() {
            self.tide.end_soon();
        }
    }

    /// Ends those of a batch whose threads are gone. Their memory goes back when the batch is
    /// unpinned.
    pub(super) fn bury(&'static self, batch: &Batch) {
        // In a process that shares the memory, or copied it unseen, the threads are another's.
        if !sandbox::allows_more() || !process::is_own() {
            return;
        }
        for (_, cache) in batch.caches() {
            match cache.owner.load(Ordering::Relaxed) {
                LEFT => _ = self.registry.leave(cache),
                // A handler that forks here would find the cache without an owner and half empty.
                id if has_ended(id) => _ = with_signals_masked(|| self.bury_one(cache)),
                _ => {}
            }
        }
    }

    /// False if it cannot be: its thread was changing it, or a fork in a handler left it behind.
    fn bury_one(&'static self, cache: &'static Cache) -> bool {
        let is_whole =
            !cache.is_moved() && !cache.is_at_work() && cache.lock().try_lock().is_some();
        if !is_whole || !self.registry.is_listed(cache) {
            return false;
        }
        let mut open = cache.open();
        let granted = open.inner.granted;
        self.restore(&mut open, granted);
        let waiting = self.end_waiting(&mut open);
        self.empty(open);
        self.registry.leave(cache);
        // SAFETY: freed by the program, and held back since.
        unsafe { self.give_all(&waiting) };
        true
    }
}
