//! The kernel's calls that make, change and remove mappings.

use super::arch::{call, call_long};
use core::ffi::c_void;

/// Anonymous memory, or `MAP_FAILED`.
///
/// # Safety
/// - As `mmap(2)`.
pub(super) unsafe fn map(at: *mut c_void, bytes: usize, access: i32, flags: i32) -> *mut c_void {
    let arguments = [
        at.expose_provenance(),
        bytes,
        access as usize,
        flags as usize,
    ];
    // SAFETY: the caller's promise.
    unsafe { map_file(arguments, usize::MAX) }
}

/// Memory as four arguments of `mmap` say, of a file's first bytes; or `MAP_FAILED`.
///
/// # Safety
/// - As `mmap(2)`.
pub(super) unsafe fn map_file([at, bytes, access, flags]: [usize; 4], file: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { map_number([at, bytes, access, flags], file) } {
        -4095..=-1 => libc::MAP_FAILED,
        mapped => core::ptr::with_exposed_provenance_mut(mapped as usize),
    }
}

/// The same: an address, or the negative number of an error.
///
/// # Safety
/// - As `mmap(2)`.
pub(super) unsafe fn map_number([at, bytes, access, flags]: [usize; 4], file: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { call_long(libc::SYS_mmap, [at, bytes, access, flags, file, 0]) }
}

/// `madvise(2)`: 0, or the negative number of an error.
///
/// # Safety
/// - As `madvise(2)`.
pub(super) unsafe fn advise(at: *mut u8, bytes: usize, advice: i32) -> isize {
    let at = at.expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_madvise, [at, bytes, advice as usize, 0]) }
}

/// `mprotect(2)`. False if the kernel refuses.
///
/// # Safety
/// - As `mprotect(2)`.
pub(super) unsafe fn protect(at: *mut u8, bytes: usize, access: i32) -> bool {
    let at = at.expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mprotect, [at, bytes, access as usize, 0]) == 0 }
}

/// # Safety
/// - The range is mapped by this layer and out of use, or empty.
pub(super) unsafe fn unmap(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        unsafe { call(libc::SYS_munmap, [at.expose_provenance(), bytes, 0, 0]) };
    }
}

/// `mremap(2)`: 0, or the number of an error.
///
/// # Safety
/// - As `mremap(2)`.
pub(super) unsafe fn remap(
    old: *mut u8,
    old_bytes: usize,
    bytes: usize,
    flags: i32,
    new: *mut u8,
) -> i32 {
    let [old, new] = [old, new].map(|at| at.expose_provenance());
    let arguments = [old, old_bytes, bytes, flags as usize, new, 0];
    // SAFETY: the caller's promise.
    match unsafe { call_long(libc::SYS_mremap, arguments) } {
        error @ -4095..=-1 => -error as i32,
        _ => 0,
    }
}
