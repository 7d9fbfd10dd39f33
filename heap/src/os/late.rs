//! Tables that are mapped at their first use.
//!
//! A table in the library's own data counts as writable memory in every process, touched or not,
//! and `RLIMIT_DATA` bounds writable memory. So tables that few processes use are mapped late.

use super::Os;
use super::linux::Linux;
use crate::base::sync::plain::{AtomicPtr, Ordering};
use bytemuck::Zeroable;
use core::ptr::{NonNull, null_mut};

/// A zeroed `T` that is mapped once, and never unmapped.
#[derive(Debug)]
pub struct Late<T>(AtomicPtr<T>);

impl<T: Zeroable> Late<T> {
    /// Not mapped yet.
    pub const fn new() -> Self {
        Late(AtomicPtr::new(null_mut()))
    }

    /// The table, if it is mapped.
    #[inline]
    pub fn find(&self) -> Option<NonNull<T>> {
        NonNull::new(self.0.load(Ordering::Acquire))
    }

    /// The table, mapped if need be. `None` if the kernel refuses. Takes no lock.
    pub fn open(&self) -> Option<NonNull<T>> {
        self.find().or_else(|| self.map())
    }

    #[cold]
    fn map(&self) -> Option<NonNull<T>> {
        const { assert!(align_of::<T>() <= 4096) };
        let page = Linux.page_bytes();
        let bytes = size_of::<T>().next_multiple_of(page);
        let base = Linux.reserve(bytes, page)?;
        // SAFETY: a reservation of our own, all of it.
        let committed = unsafe { Linux.commit(base, bytes) }.is_ok();
        let ours = base.as_ptr().cast::<T>();
        let published = committed
            && self
                .0
                .compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if !published {
            // SAFETY: the whole reservation, which no other thread has seen.
            unsafe { Linux.unmap(base, bytes) };
        }
        self.find()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::AtomicU64;
    use std::vec::Vec;

    #[repr(transparent)]
    struct Table([AtomicU64; 10_000]);
    // SAFETY: integers only, and 0 is a value of each.
    unsafe impl Zeroable for Table {}

    #[test]
    fn a_table_is_mapped_once_and_zero() {
        static TABLE: Late<Table> = Late::new();
        assert!(TABLE.find().is_none());
        let open = || TABLE.open().unwrap().as_ptr() as usize;
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(open)).collect();
        let found: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(found.iter().all(|&at| at == found[0]));
        // SAFETY: mapped, and never unmapped.
        let table = unsafe { TABLE.find().unwrap().as_ref() };
        assert!(table.0.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
