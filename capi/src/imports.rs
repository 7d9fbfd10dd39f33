//! What the shipped library takes from the C library where glibc and musl differ.
//!
//! The library is linked without a C library (`build.rs`). The loader looks up each undefined name
//! in the process, whatever its version.

use crate::optional::optional;
use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null;
use neap_heap::os::loader::{has_dlsym, set_dlsym, symbol};
use neap_heap::os::process;

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// glibc's flag of calls by itself (`__RTLD_DLOPEN`).
const INTERNAL: c_int = c_int::MIN;

type Handler = Option<unsafe extern "C" fn()>;
type AtFork = unsafe extern "C" fn(Handler, Handler, Handler) -> c_int;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;

// glibc has this name only in the part that is linked statically into each library, and hidden
// there.
global_asm!(
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

// Before glibc 2.34 these are in libraries that a program with one thread and no plugins need not
// have (neap_heap::os::loader).
global_asm!(
    ".weak dlsym",
    ".weak pthread_attr_setstacksize",
    ".weak pthread_create",
    ".weak pthread_key_create",
    ".weak pthread_setspecific",
);

// Without a version glibc's `memcpy` is the oldest, for programs that overlap. It is slower.
#[cfg(target_arch = "x86_64")]
global_asm!(".set memcpy, memmove");

/// `pthread_atfork(3)`.
///
/// # Safety
/// - The handlers may be called at every fork.
unsafe extern "C" fn at_fork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int {
    let glibc = optional!("__register_atfork");
    if !glibc.is_null() {
        // SAFETY: glibc's function of this name. The last argument says which library's unloading
        // takes the handlers back; this one is never unloaded. The caller's promise.
        return unsafe {
            transmute::<*const c_void, Register>(glibc)(before, in_parent, in_child, null())
        };
    }
    // SAFETY: RTLD_NEXT is a handle that dlsym knows.
    let other = unsafe { symbol(libc::RTLD_NEXT, c"pthread_atfork") };
    if other.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the C library's function of this name, and so of this type; the caller's promise.
    unsafe { transmute::<*mut c_void, AtFork>(other)(before, in_parent, in_child) }
}

/// Finds `dlsym` in a process that has none because libdl.so is a library of its own. It is loaded as
/// glibc loads it for itself; not before glibc's own constructor, which would then miss its
/// arguments.
pub(crate) fn find_dlsym() {
    if has_dlsym() || process::environment().is_null() {
        return;
    }
    let (open, find) = (optional!("__libc_dlopen_mode"), optional!("__libc_dlsym"));
    // SAFETY: null, or glibc's functions of these names, which have these types.
    let functions = unsafe {
        (
            transmute::<*const c_void, Option<Open>>(open),
            transmute::<*const c_void, Option<Find>>(find),
        )
    };
    if let (Some(open), Some(find)) = functions {
        // SAFETY: C strings; the library stays, and its `dlsym` is what is asked for.
        unsafe {
            let library = open(c"libdl.so.2".as_ptr(), libc::RTLD_LAZY | INTERNAL);
            if !library.is_null() {
                set_dlsym(find(library, c"dlsym".as_ptr()));
            }
        }
    }
}
