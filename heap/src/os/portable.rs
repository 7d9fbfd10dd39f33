//! Other machines: work runs on the caller's stack, because there is no stack switch, and system
//! calls go through the C library.

use super::errno;
use core::ffi::{CStr, c_void};

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

/// Calls the kernel by the C library. The negative number of an error, else the answer.
///
/// # Safety
/// - As the call of this number with these arguments; it neither makes a process nor a thread.
pub unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { call_long(number, [a, b, c, d, 0, 0]) }
}

/// [`call`] with all the arguments that a call can have.
///
/// # Safety
/// - As [`call`].
pub unsafe fn call_long(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    errno::keep_errno(
        || match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
            -1 => -(errno::get() as isize),
            answer => answer as isize,
        },
    )
}

/// A name of the calling thread: the address of its `errno`.
pub(super) fn thread_pointer() -> usize {
    errno::location().addr()
}

/// The kernel's name for its function that tells the time, if it has one.
pub(super) const CLOCK: &CStr = c"__vdso_clock_gettime";

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

/// Defines a handler of signals by name. It calls a function that fills [`Call::handler`], and then
/// that handler in its own place.
///
/// [`Call::handler`]: super::signal_frame::Call::handler
#[cfg(not(loom))]
macro_rules! in_its_place {
    ($(#[$doc:meta])* $name:ident, $judge:ident) => {
        $(#[$doc])*
        unsafe extern "C" fn $name(
            signal: core::ffi::c_int,
            info: *mut libc::siginfo_t,
            context: *mut core::ffi::c_void,
        ) {
            let (stack, handler) = (0, 0);
            let mut call = $crate::os::signal_frame::Call {
                stack,
                info,
                context,
                handler,
            };
            type Handler = unsafe extern "C" fn(
                core::ffi::c_int,
                *mut libc::siginfo_t,
                *mut core::ffi::c_void,
            );
            // SAFETY: what the kernel handed over; null, or a handler, which may ignore arguments.
            unsafe {
                $judge(signal, &mut call);
                let handler: Option<Handler> = core::mem::transmute(call.handler);
                if let Some(handler) = handler {
                    handler(signal, info, context);
                }
            }
        }
    };
}
#[cfg(not(loom))]
pub(super) use in_its_place;
