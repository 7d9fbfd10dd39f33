//! `sigaction` and `signal` of SIGSEGV, and of SIGBUS where guards raise it: while Neap reports
//! faults, its handler stays in front of the program's, which the program sets and sees as if it
//! were alone.
//!
//! Calls about other signals, and all calls while Neap has no handler, go to the C library. They
//! take no lock of the heap and allocate nothing, so they may be called wherever the originals may.

use crate::loader::wraps;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use neap_heap::os::fault;
use neap_heap::os::loader::set_errno;
use neap_heap::reclaim::thread;

wraps! {
    SIGACTION: c"sigaction",
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    SIGNAL: c"signal", unsafe extern "C" fn(c_int, *mut c_void) -> *mut c_void;
}

/// Looks up the functions that these wrap.
pub(crate) fn begin() {
    look();
    // SAFETY: null, or the C library's function of that name.
    unsafe { fault::set_real_sigaction(SIGACTION.symbol.get()) };
}

/// Whether a call is about our handler. A child of `vfork` has actions of its own, but shares our
/// memory, in which the parent's is noted.
fn is_ours(signal: c_int) -> bool {
    fault::is_watching(signal) && thread::may_be_own_process()
}

/// Sets or tells the action of a signal.
///
/// # Safety
/// - As `sigaction(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's promise is the same.
    unsafe { act(signal, new, old) }
}

/// [`sigaction`] for callers in this library: the loader may bind the name to another one.
///
/// # Safety
/// - As [`sigaction`].
unsafe fn act(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: null, or the C library's function of this name and so of this type; the caller's
    // promise.
    unsafe {
        if is_ours(signal) {
            return fault::program_action(signal, new, old);
        }
        match SIGACTION.found() {
            Some(next) => {
                // Before the call, because both may be the same structure.
                let wanted = new.as_ref().map(|new| new.sa_sigaction);
                let done = next(signal, new, old);
                // Another thread may have put our handler in front meanwhile.
                if done == 0 && is_ours(signal) {
                    fault::settle(signal, wanted, old);
                }
                done
            }
            None => {
                set_errno(libc::ENOSYS);
                -1
            }
        }
    }
}

/// Sets the handler of a signal.
///
/// # Safety
/// - As `signal(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: *mut c_void) -> *mut c_void {
    // SAFETY: as in `sigaction`; zeros are a valid structure.
    unsafe {
        if !fault::may_be_watched(signal) {
            return match SIGNAL.found() {
                Some(next) => next(signal, handler),
                None => {
                    set_errno(libc::ENOSYS);
                    libc::SIG_ERR as *mut c_void
                }
            };
        }
        if handler.addr() == libc::SIG_ERR {
            set_errno(libc::EINVAL);
            return handler;
        }
        let [mut new, mut old] = [MaybeUninit::<libc::sigaction>::zeroed().assume_init(); 2];
        new.sa_sigaction = handler.addr();
        new.sa_flags = libc::SA_RESTART;
        // As with the C library's `signal`, the handler does not interrupt itself.
        (&raw mut new.sa_mask)
            .cast::<u64>()
            .write(1 << (signal - 1));
        match act(signal, &new, &mut old) {
            0 => old.sa_sigaction as *mut c_void,
            _ => libc::SIG_ERR as *mut c_void,
        }
    }
}
