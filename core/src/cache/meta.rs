//! Memory for Neap's own data: caches and magazine arrays, in powers of two, from metadata spans.

use crate::base::sync::UnsafeCell;
use crate::base::units::SLICE_BYTES;
use crate::os::lock::{Lock, Rank};
use core::ptr::NonNull;

const LEAST_SHIFT: u32 = 6;
const MOST_SHIFT: u32 = 16;
const SHELVES: usize = (MOST_SHIFT - LEAST_SHIFT + 1) as usize;

/// A pool of blocks of 64 bytes to 64 KiB that never shrinks; what is given back is used again, last first.
pub struct Meta {
    /// Guards `inner`.
    pub lock: Lock,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    /// Free blocks of each size, linked through their first word.
    free: [Option<NonNull<u8>>; SHELVES],
    /// The rest of the newest slice.
    next: usize,
    end: usize,
}

// SAFETY: `inner` is reached only under `lock`.
unsafe impl Sync for Meta {}

impl Meta {
    /// An empty pool.
    pub const fn new() -> Meta {
        let inner = Inner {
            free: [None; SHELVES],
            next: 0,
            end: 0,
        };
        Meta {
            lock: Lock::new(Rank::Meta),
            inner: UnsafeCell::new(inner),
        }
    }

    /// `bytes` (at most 64 KiB) at a multiple of 64; contents undefined. `slice` gives a fresh slice when the pool is dry.
    pub fn allocate(
        &self,
        bytes: usize,
        slice: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        let shelf = shelf_of(bytes);
        let _guard = self.lock.lock();
        // SAFETY: the lock is held until the end of this function.
        let inner = unsafe { &mut *self.inner.get() };
        if let Some(block) = inner.free[shelf] {
            // SAFETY: a block on a shelf holds the link to the next one in its first word.
            inner.free[shelf] = unsafe { block.cast::<Option<NonNull<u8>>>().read() };
            return Some(block);
        }
        inner.cut(shelf, slice)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// - `block` came from [`Meta::allocate`] with the same `bytes`, and nobody uses it any more.
    pub unsafe fn release(&self, block: NonNull<u8>, bytes: usize) {
        let shelf = shelf_of(bytes);
        let _guard = self.lock.lock();
        // SAFETY: the lock is held until the end of this function.
        let inner = unsafe { &mut *self.inner.get() };
        // SAFETY: the block is ours and at least 64 bytes long.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(inner.free[shelf]) };
        inner.free[shelf] = Some(block);
    }
}

impl Default for Meta {
    fn default() -> Meta {
        Meta::new()
    }
}

impl Inner {
    fn cut(
        &mut self,
        shelf: usize,
        slice: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        let bytes = 1 << (shelf as u32 + LEAST_SHIFT);
        if self.end - self.next < bytes {
            self.next = slice()?.as_ptr() as usize;
            self.end = self.next + SLICE_BYTES;
        }
        let block = NonNull::new(self.next as *mut u8);
        self.next += bytes;
        block
    }
}

/// Which shelf holds blocks of at least `bytes`.
fn shelf_of(bytes: usize) -> usize {
    debug_assert!(bytes <= 1 << MOST_SHIFT);
    let shift = bytes.next_power_of_two().trailing_zeros().max(LEAST_SHIFT);
    (shift - LEAST_SHIFT) as usize
}
