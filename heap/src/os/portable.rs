//! Other machines: work runs on the caller's stack, because there is no stack switch, and system
//! calls go through the C library.

use core::ffi::c_void;

/// Calls `work(argument)`.
///
/// # Safety
/// - `work` may be called with `argument`.
pub(super) unsafe fn call_on(
    _top: *mut u8,
    work: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { work(argument) }
}

/// Calls the kernel by the C library. -1 for an error, else the answer.
///
/// # Safety
/// - As the call of this number with these arguments; it neither makes a process nor a thread.
pub(super) unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    // SAFETY: the caller's promise.
    super::errno::keep_errno(|| unsafe { libc::syscall(number, a, b, c, d) as isize })
}

/// Null: libneap.so is not built for this machine.
pub(super) fn library_start() -> *const () {
    core::ptr::null()
}

/// Fills `bytes` bytes with zeros. The C library's `memset` is tuned for this architecture.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub unsafe fn clear_streaming(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { start.write_bytes(0, bytes) };
}
