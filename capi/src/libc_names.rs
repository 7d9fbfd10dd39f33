//! glibc's internal names for the same functions. Old programs and some interposers call these
//! instead of `malloc`. Without them here, the calls would reach a second heap.

use crate::{aligned, c};
use core::ffi::{c_int, c_void};

/// See [`c::malloc`].
#[unsafe(no_mangle)]
extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    c::malloc(size)
}

/// See [`c::calloc`].
#[unsafe(no_mangle)]
extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    c::calloc(count, size)
}

/// See [`c::realloc`].
///
/// # Safety
/// - As [`c::realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise is the same.
    unsafe { c::realloc(block, size) }
}

/// See [`c::free`].
///
/// # Safety
/// - As [`c::free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_free(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { c::free(block) }
}

/// See [`aligned::memalign`].
#[unsafe(no_mangle)]
extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    aligned::memalign(align, size)
}

/// See [`aligned::valloc`].
#[unsafe(no_mangle)]
extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    aligned::valloc(size)
}

/// See [`aligned::pvalloc`].
#[unsafe(no_mangle)]
extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    aligned::pvalloc(size)
}

/// See [`aligned::posix_memalign`].
///
/// # Safety
/// - As [`aligned::posix_memalign`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the caller's promise is the same.
    unsafe { aligned::posix_memalign(out, align, size) }
}
