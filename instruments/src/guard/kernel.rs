//! The process's pool, and its pages: guards by advice where the kernel has them, otherwise by
//! mappings.

use super::pool::{Doors, Pool};
use core::ptr::NonNull;
use neap_heap::base::sync::{AtomicBool, Ordering};
use neap_heap::mapped_over;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::os::process;

/// The process's pool.
pub(super) static POOL: Pool<Kernel> = Pool::new(Kernel {
    by_mapping: AtomicBool::new(false),
});

/// The kernel's pages: guards by advice where it has them, otherwise by mappings.
pub(super) struct Kernel {
    by_mapping: AtomicBool,
}

impl Doors for Kernel {
    fn page_bytes(&self) -> usize {
        Linux.page_bytes()
    }

    unsafe fn open(&self, page: NonNull<u8>) -> bool {
        let bytes = self.page_bytes();
        // SAFETY: the caller's promise: a page of a span of the heap's.
        unsafe {
            match self.by_mapping.load(Ordering::Relaxed) {
                true => Linux.commit(page, bytes).is_ok(),
                false => Linux.remove_guard(page, bytes).is_ok(),
            }
        }
    }

    unsafe fn shut(&self, first: NonNull<u8>, bytes: usize) -> bool {
        // A sandbox may kill the process for the system call.
        if process::queries_are_forbidden() {
            return false;
        }
        let by_mapping = self.by_mapping.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        if !by_mapping && unsafe { Linux.install_guard(first, bytes) }.is_ok() {
            return true;
        }
        if POOL.live() > 0 && !by_mapping {
            // The other pages are guarded by advice.
            return false;
        }
        self.by_mapping.store(true, Ordering::Relaxed);
        // SAFETY: as above. The pages go first: behind a guard they would stay resident.
        unsafe {
            Linux.purge(first, bytes);
            Linux.protect(first, bytes).is_ok()
        }
    }

    unsafe fn restore(&self, page: NonNull<u8>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { mapped_over::restore_guarded(page) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peek::far;

    #[test]
    fn pages_open_and_shut_by_advice_and_by_mappings() {
        let page = Linux.page_bytes();
        for by_mapping in [false, true].map(AtomicBool::new) {
            let kernel = Kernel { by_mapping };
            let base = Linux.reserve(4 * page, page).unwrap();
            // SAFETY: all of our own reservation.
            unsafe { Linux.commit(base, 4 * page) }.unwrap();
            // SAFETY: inside it.
            let second = unsafe { base.add(page) };
            let at = second.addr().get();
            let readable = || [at - 8, at, at + page - 8, at + page].map(|at| far(at).is_some());
            for _ in 0..3 {
                // SAFETY: no block is there.
                assert!(unsafe { kernel.shut(base, 4 * page) });
                assert_eq!(readable(), [false; 4]);
                // SAFETY: as above.
                assert!(unsafe { kernel.open(second) });
                assert_eq!(readable(), [false, true, true, false]);
                // SAFETY: accessible, and ours.
                unsafe { second.as_ptr().write(1) };
            }
            // SAFETY: the whole reservation, which the test no longer uses.
            unsafe { Linux.unmap(base, 4 * page) };
        }
    }
}
