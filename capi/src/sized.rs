//! C23's pair of functions: the caller repeats the size that it requested, and a wrong size is a
//! misuse.

use core::ffi::c_void;
use neap_heap::free;

/// Frees a block of `malloc`, `calloc` or `realloc` that was asked for with `size` bytes; null does
/// nothing.
///
/// # Safety
/// - `block` is null or a live block that no thread uses any more, and `size` is what was asked
///   for.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_sized(block.cast(), size) }
}

/// Frees a block of `aligned_alloc(align, size)`; null does nothing.
///
/// # Safety
/// - `block` is null or a live block that no thread uses any more, and `align` and `size` are what
///   was asked for.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_aligned_sized(block.cast(), align, size) }
}
