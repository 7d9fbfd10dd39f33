//! What the library takes from the C library where glibc's versions and musl differ.
//!
//! The shipped library is linked without a C library (`ci/dist.sh`). The loader looks up each
//! undefined name in the process, whatever its version. What differs in the archive is in
//! `archive.rs`.

use crate::optional::optional;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use neap_heap::os::{loader, process};

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// glibc's flag of calls by itself (`__RTLD_DLOPEN`).
const INTERNAL: c_int = c_int::MIN;

// Before glibc 2.34 these are in libraries that a program with one thread and no plugins need not
// have (neap_heap::os::loader). The archive's own are in `archive.rs`.
#[cfg(not(all(panic = "abort", feature = "archive")))]
core::arch::global_asm!(
    ".weak dlsym",
    ".weak pthread_attr_setstacksize",
    ".weak pthread_create",
    ".weak pthread_key_create",
    ".weak pthread_setspecific",
);

// Without a version glibc's `memcpy` is the oldest, for programs that overlap. It is slower.
#[cfg(all(panic = "abort", not(feature = "archive"), target_arch = "x86_64"))]
core::arch::global_asm!(".set memcpy, memmove");

/// Whether the C library is glibc.
pub(crate) fn is_glibc() -> bool {
    !optional!("gnu_get_libc_version").is_null()
}

/// Whether the C library's own constructor has run. musl has none: its loader does the work first.
pub(crate) fn is_up() -> bool {
    // A program may clear its environment later.
    !process::environment().is_null() || !process::program_name().is_empty()
}

/// `dlsym(3)`. A process that has none, because libdl.so is a library of its own, asks by the
/// functions that glibc uses for itself. Null before glibc's own constructor, whose place they
/// would take, without its arguments.
///
/// # Safety
/// - As `dlsym(3)`: a handle of `dlopen`'s, `RTLD_DEFAULT`, or `RTLD_NEXT` for a name that only
///   glibc's `libc.so` and this library have.
pub(crate) unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    #[cfg(all(panic = "abort", feature = "archive"))]
    if crate::archive::is_static() {
        return crate::archive::linked(name);
    }
    if loader::has_dlsym() {
        // SAFETY: the caller's promise.
        return unsafe { loader::symbol(handle, name) };
    }
    let library = match handle {
        libc::RTLD_NEXT => open(c"libc.so.6"),
        // The program, and all that was loaded with it.
        libc::RTLD_DEFAULT => open(c""),
        other => other,
    };
    find(library, name)
}

/// glibc's `dlopen`, for a library that needs it and was itself loaded late.
pub(crate) fn late_dlopen() -> *mut c_void {
    find(open(c"libdl.so.2"), c"dlopen")
}

/// Null if the library cannot be loaded, or glibc has no such function of its own (2.34).
fn open(library: &CStr) -> *mut c_void {
    let open = optional!("__libc_dlopen_mode");
    // SAFETY: null, or glibc's function of this name, which has this type.
    let open = unsafe { transmute::<*const c_void, Option<Open>>(open) };
    let mode = libc::RTLD_LAZY | INTERNAL;
    open.filter(|_| is_up())
        // SAFETY: a C string; a library that is loaded stays.
        .map_or(null_mut(), |open| unsafe { open(library.as_ptr(), mode) })
}

fn find(library: *mut c_void, name: &CStr) -> *mut c_void {
    let find = optional!("__libc_dlsym");
    // SAFETY: as in `open`.
    let find = unsafe { transmute::<*const c_void, Option<Find>>(find) };
    find.filter(|_| !library.is_null())
        // SAFETY: a library that `open` gave, and a C string.
        .map_or(null_mut(), |find| unsafe { find(library, name.as_ptr()) })
}
