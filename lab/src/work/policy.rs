//! The allocator that serves the program of `calloc` and `free`.

/// An implementation of `calloc` and `free`.
pub trait Policy {
    /// A zeroed block; null if memory is short.
    fn calloc(&mut self, size: usize) -> *mut u8;

    /// # Safety
    /// - This policy's `calloc` gave `p`; it has not been freed since, and is no longer in use.
    unsafe fn free(&mut self, p: *mut u8);
}
