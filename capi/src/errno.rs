//! The only place that sets `errno`.

use core::ffi::{c_int, c_long, c_void};
use core::ptr::null_mut;
use neap_heap::os::call_long;

/// Sets the calling thread's `errno`.
#[cold]
#[inline(never)]
pub(crate) fn set(code: c_int) {
    // SAFETY: glibc gives every thread an errno of its own, valid for its life.
    unsafe { *libc::__errno_location() = code }
}

/// Calls the kernel, as the C library's function would, where there is none.
///
/// # Safety
/// - As [`call_long`].
#[cold]
pub(crate) unsafe fn ask(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    let answer = unsafe { call_long(number, arguments) };
    match answer {
        -4095..=-1 => fail_raw(answer as c_long) as isize,
        answer => answer,
    }
}

/// Ends a call that asked the kernel itself: its negative number becomes `errno`.
pub(crate) extern "C" fn fail_raw(answer: c_long) -> c_long {
    set(-answer as c_int);
    -1
}

/// Sets `errno` to `code` and gives the null pointer that reports it.
#[cold]
#[inline(never)]
pub(crate) fn fail(code: c_int) -> *mut c_void {
    set(code);
    null_mut()
}

/// Hands a block to the caller, or reports that there was none.
#[inline(always)]
pub(crate) fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        return fail(libc::ENOMEM);
    }
    block.cast()
}
