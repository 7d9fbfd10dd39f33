//! Caches whose threads are gone and did not end them.
//!
//! A destructor that the C library runs ends a thread's cache. The thread may call the heap again
//! after the last round of destructors: in another destructor, or when the C library frees what the
//! thread used. Or the thread ends by a system call, and no destructor runs. So a sweep ends the
//! caches whose owners no longer exist, whenever the list has doubled, and each drain does the
//! same. If another thread of the process has the TID by then, the cache ends later.
//!
//! Blocks that such a thread held in quarantine go to their slabs at once.

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

    /// Ends the caches of a batch whose threads are gone. Their memory goes back when the batch is
    /// unpinned.
    pub(super) fn bury(&'static self, batch: &Batch) {
        // In a process that shares the memory, or copied it without the C library, the owners are
        // another process's threads.
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

    /// False if the cache cannot end, because its thread was changing it or a fork in a handler
    /// left it behind.
    fn bury_one(&'static self, cache: &'static Cache) -> bool {
        let is_whole = !cache.is_moved() && cache.is_quiet();
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
