//! The handlers of `fork`: this library's are registered before all others, and so are the last to
//! run before a fork. A handler that ran after them could wait for a lock whose holder waits for
//! the heap.
//!
//! Before glibc 2.34 a program's libraries may have been initialised before this one, because
//! libpthread takes its place. So the library also starts when another one registers handlers.
//!
//! While glibc copies a process of several threads, it holds the lock of its list of handlers. A
//! handler of a signal that came then, and forked, would wait for ever. So signals are masked
//! during a fork, unless there are handlers of others: these find the mask that the thread has.

use crate::imports::is_glibc;
use crate::loader;
use crate::loader::Next;
use core::ffi::{c_int, c_void};
#[cfg(panic = "abort")]
use core::ptr::null;
use neap_heap::base::sync::plain::{AtomicBool, Ordering};
use neap_heap::fork::is_own_handler;
use neap_heap::init;
use neap_heap::os::thread::with_signals_masked;

// SAFETY: as glibc declares the function.
static REGISTER: Next<Register> = unsafe { Next::new(c"__register_atfork") };
/// Other C libraries' function.
// SAFETY: as they declare the function, except for the last argument, whose register it ignores.
static AT_FORK: Next<Register> = unsafe { Next::new(c"pthread_atfork") };

/// Whether others have registered handlers.
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// Calls `fork`, the C library's.
pub(crate) fn around<T>(fork: impl FnOnce() -> T) -> T {
    match is_glibc() && !HAS_OTHERS.load(Ordering::Relaxed) {
        true => with_signals_masked(fork),
        false => fork(),
    }
}

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;

/// What glibc's `pthread_atfork` calls, which is linked statically into each library.
///
/// # Safety
/// - As `pthread_atfork(3)`; `library` is the caller's, or null if that is never unloaded.
#[unsafe(no_mangle)]
unsafe extern "C" fn __register_atfork(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *const c_void,
) -> c_int {
    if loader::serves() {
        init::begin_on_the_way();
    }
    // Without `pthread_atfork` below, the heap's own come this way, too.
    if !before.is_some_and(is_own_handler) {
        HAS_OTHERS.store(true, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise.
    unsafe { register(before, in_parent, in_child, library) }
}

/// Looks the wrapped function up, where the C library has it.
pub(crate) fn begin() {
    if is_glibc() {
        REGISTER.symbol.look();
    }
}

/// Has the C library register handlers.
///
/// # Safety
/// - As [`__register_atfork`].
unsafe fn register(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *const c_void,
) -> c_int {
    let next = if is_glibc() { &REGISTER } else { &AT_FORK };
    match next.found() {
        // SAFETY: a function of this type; the caller's promise.
        Some(next) => unsafe { next(before, in_parent, in_child, library) },
        None => libc::ENOSYS,
    }
}

// glibc has this name only in the part that is linked statically into each library, and hidden
// there.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".globl pthread_atfork",
    ".hidden pthread_atfork",
    ".type pthread_atfork, %function",
    "pthread_atfork:",
    #[cfg(target_arch = "x86_64")]
    "jmp {at_fork}",
    #[cfg(target_arch = "aarch64")]
    "b {at_fork}",
    ".size pthread_atfork, . - pthread_atfork",
    at_fork = sym at_fork,
);

/// `pthread_atfork(3)`.
///
/// # Safety
/// - The handlers may be called at every fork.
#[cfg(panic = "abort")]
unsafe extern "C" fn at_fork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int {
    // SAFETY: the caller's promise; this library is never unloaded.
    unsafe { register(before, in_parent, in_child, null()) }
}
