//! What the library takes from the C library: names that not every process has, where glibc's
//! versions and musl differ, and `errno`.
//!
//! The shipped library is linked without a C library (`ci/dist.sh`). The loader looks up each
//! undefined name in the process, whatever its version.
//!
//! In a dynamic program, `dlsym` answers the archive `libneap.a` all questions, as it does
//! `libneap.so`. A static program has no loader to ask. There the linker has answered: it left null
//! what nothing else in the program needed.

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use neap_heap::os::loader::set_errno;
use neap_heap::os::{loader, process};

/// The address of a name that not every process has; null where there is none.
macro_rules! optional {
    ($name:literal) => {
        neap_heap::address_of!($name, concat!(".weak ", $name))
    };
}

/// Other names of functions, with their arguments.
macro_rules! aliases {
    ($($alias:ident = $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        #[doc = concat!("[`", stringify!($name), "`].")]
        ///
        /// # Safety
        /// - As that.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alias($($argument: $kind),*) $(-> $result)? {
            #[allow(unused_unsafe, reason = "some take no pointer")]
            // SAFETY: the caller's promise is the same.
            unsafe { $name($($argument),*) }
        }
    )*};
}

pub(crate) use {aliases, optional};

/// Whether this is the archive `libneap.a`, part of the program, and not libneap.so.
pub(crate) const IN_ARCHIVE: bool = cfg!(all(panic = "abort", feature = "archive"));

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// glibc's flag of calls by itself (`__RTLD_DLOPEN`).
const INTERNAL: c_int = c_int::MIN;

// Before glibc 2.34 these are in libraries that a program with one thread and no plugins need not
// have (neap_heap::os::loader).
#[cfg(not(all(panic = "abort", feature = "archive")))]
global_asm!(
    ".weak dlsym",
    ".weak pthread_attr_setstacksize",
    ".weak pthread_create",
    ".weak pthread_key_create",
    ".weak pthread_setspecific",
);

// In the archive a strong reference would link the loader into every static program.
#[cfg(all(panic = "abort", feature = "archive"))]
global_asm!(".weak dlsym");

// Without a version glibc's `memcpy` is the oldest, for programs that overlap. It is slower.
#[cfg(all(panic = "abort", not(feature = "archive"), target_arch = "x86_64"))]
global_asm!(".set memcpy, memmove");

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
    if is_static() {
        return linked(name);
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

/// Whether the process is a static program: nothing that the archive is part of needs a library. It
/// may have a `dlsym` (glibc's conversions of characters link it), which finds nothing.
pub(crate) fn is_static() -> bool {
    let table = optional!("_DYNAMIC").cast();
    // SAFETY: null, or the linker's table.
    let mut entries = unsafe { loader::entries(table) };
    IN_ARCHIVE && !entries.any(|[kind, _]| kind == DT_NEEDED)
}

/// The kind of an entry that names a library.
const DT_NEEDED: usize = 1;

/// Answers as `dlsym` does, in a static program. It knows the names without which Neap would do
/// less: what `operator new` calls when memory runs out, and a function of the C library's, for its
/// place. Null for the others: a function that wraps one of the C library's then calls the kernel.
fn linked(name: &CStr) -> *mut c_void {
    let address = match name.to_bytes() {
        b"_ZSt15get_new_handlerv" => optional!("_ZSt15get_new_handlerv"),
        b"_ZSt17__throw_bad_allocv" => optional!("_ZSt17__throw_bad_allocv"),
        b"getpid" => libc::getpid as *const c_void,
        _ => return null_mut(),
    };
    address.cast_mut()
}

/// The C library's result for the kernel's answer: an error becomes `errno`.
#[cold]
pub(crate) fn result_of(answer: isize) -> isize {
    match answer {
        -4095..=-1 => fail_raw(answer as c_long) as isize,
        answer => answer,
    }
}

/// Ends a call that asked the kernel itself: its negative number becomes `errno`.
pub(crate) extern "C" fn fail_raw(answer: c_long) -> c_long {
    set_errno(-answer as c_int);
    -1
}

/// Sets `errno` to `code` and gives the null pointer that reports it.
#[cold]
#[inline(never)]
pub(crate) fn fail(code: c_int) -> *mut c_void {
    set_errno(code);
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
