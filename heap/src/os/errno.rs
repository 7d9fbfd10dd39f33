//! The caller's `errno`, preserved across the calls of this layer.

/// Runs `work` and puts `errno` back to what it was before.
pub fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    let saved = get();
    let result = work();
    set(saved);
    result
}

/// The calling thread's `errno`.
pub fn get() -> i32 {
    // SAFETY: the C library returns the calling thread's own, always valid, errno.
    unsafe { *location() }
}

/// Sets the calling thread's `errno`.
pub fn set(value: i32) {
    // SAFETY: as in `get`.
    unsafe { *location() = value }
}

/// The address of the calling thread's `errno`.
pub(super) fn location() -> *mut i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::__errno_location() }
}

/// The `errno` of a refused allocation.
pub const ENOMEM: i32 = libc::ENOMEM;
/// The `errno` of a bad argument.
pub const EINVAL: i32 = libc::EINVAL;
