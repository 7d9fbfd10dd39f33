//! No switch of stacks is known for this machine: work runs on its caller's.

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
