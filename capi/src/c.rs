//! The names of the C standard and their relatives.

use crate::errno::{fail, or_enomem};
use core::ffi::c_void;
use core::ptr::null_mut;
use neap_heap::{free, malloc, realloc};

/// `size` bytes at a multiple of 16; `malloc(0)` gives a block of its own.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc(size: usize) -> *mut c_void {
    match malloc::allocate_hit(size) {
        Some(block) => block.cast(),
        None => malloc_miss(size),
    }
}

/// [`malloc`] past the magazine: out of line, so that the hot path needs no stack frame.
#[cold]
#[inline(never)]
fn malloc_miss(size: usize) -> *mut c_void {
    or_enomem(malloc::allocate_missed(size))
}

/// `count * size` bytes of zeros; null and `ENOMEM` if the product overflows.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return calloc_miss(usize::MAX);
    };
    match malloc::allocate_zeroed_hit(bytes) {
        Some(block) => block.cast(),
        None => calloc_miss(bytes),
    }
}

/// [`calloc`] past the magazine, as [`malloc_miss`]. Sizes beyond the address space are refused
/// there.
#[cold]
#[inline(never)]
fn calloc_miss(bytes: usize) -> *mut c_void {
    or_enomem(malloc::allocate_zeroed_missed(bytes))
}

/// Resizes a block. A null `block` allocates; size 0 frees and gives null, as glibc does.
///
/// # Safety
/// - `block` is null or a live block of this library, not used by others meanwhile.
/// - After success (and after size 0) the caller no longer uses `block`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // SAFETY: not null, so the caller vouches for a live block.
        unsafe { free::free(block.cast()) };
        return null_mut();
    }
    // SAFETY: not null, so the caller vouches for a live block; size is not 0.
    or_enomem(unsafe { realloc::reallocate(block.cast(), size) })
}

/// [`realloc`] to `count * size` bytes; null and `ENOMEM`, the block untouched, if that overflows.
///
/// # Safety
/// - As [`realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise is the same.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// Gives a block back; null does nothing. Keeps `errno`.
///
/// # Safety
/// - `block` is null or a live block of this library that no thread uses any more.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// [`free`] under the name that SunOS gave it; glibc exports it for old programs.
///
/// # Safety
/// - As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// How many bytes of `block` may be written, at least as many as were requested; 0 for null.
///
/// # Safety
/// - `block` is null or a live block of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's promise is the same.
    unsafe { free::usable_size(block.cast()) }
}
