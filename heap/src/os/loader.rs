//! Functions that not every process has: those of the loader and of threads are in libraries of
//! their own before glibc 2.34, and libneap.so loads without these.

use super::{arch, elf};
use crate::base::sync::plain::{AtomicBool, AtomicPtr, Ordering};
use core::ffi::{CStr, c_void};
use core::hint::black_box;
use core::mem::transmute;
use core::ptr::{NonNull, null_mut};

/// Whether a function is there. The compiler takes it for granted, but the loader has left the
/// address of a weak name at null.
pub fn is_there(function: *const ()) -> bool {
    !black_box(function).is_null()
}

/// The start of libneap.so, if this is libneap.so (`capi/src/start.rs`).
pub fn library_start() -> Option<extern "C" fn()> {
    // SAFETY: null, or a function of this type.
    unsafe { transmute::<*const (), Option<extern "C" fn()>>(arch::library_start()) }
}

/// What the process has, found at its start: glibc, and `_dl_find_object`, which is null where the
/// C library has none.
struct Found {
    is_known: AtomicBool,
    is_glibc: AtomicBool,
    find_object: AtomicPtr<c_void>,
}

static FOUND: Found = Found {
    is_known: AtomicBool::new(false),
    is_glibc: AtomicBool::new(false),
    find_object: AtomicPtr::new(null_mut()),
};

/// Looks for what only some processes have, unless that was done. At the process's start, because
/// [`elf::find`] needs a list that does not change, and `dlsym` would leave an error.
pub fn begin() {
    if FOUND.is_known.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: RTLD_DEFAULT is a handle that dlsym knows.
    let asked = |name| NonNull::new(unsafe { symbol(libc::RTLD_DEFAULT, name) });
    // SAFETY: the process has one thread, or the loader's lock is held, as in a constructor.
    let find = |name| unsafe { elf::find(None, name) }.unwrap_or_else(|_| asked(name));
    if let Some(found) = find(c"_dl_find_object") {
        FOUND.find_object.store(found.as_ptr(), Ordering::Relaxed);
    }
    let is_glibc = find(c"gnu_get_libc_version").is_some();
    FOUND.is_glibc.store(is_glibc, Ordering::Relaxed);
}

/// Whether the C library is glibc, as a library of its own.
pub fn is_glibc() -> bool {
    begin();
    FOUND.is_glibc.load(Ordering::Relaxed)
}

/// glibc's `_dl_find_object` (2.35), or null.
pub fn find_object() -> *mut c_void {
    begin();
    FOUND.find_object.load(Ordering::Relaxed)
}

/// Whether the process is a static program with libneap.a.
static IS_STATIC: AtomicBool = AtomicBool::new(false);

/// Notes that the process is a static program: it has no loader, even where it has a `dlsym`.
pub fn note_static() {
    IS_STATIC.store(true, Ordering::Relaxed);
}

/// Whether [`note_static`] was called.
pub fn is_static() -> bool {
    IS_STATIC.load(Ordering::Relaxed)
}

/// Whether [`symbol`] can answer.
pub fn has_dlsym() -> bool {
    is_there(libc::dlsym as *const ())
}

/// `dlsym(3)`; null, too, in a process without it. It takes the loader's lock and may allocate.
///
/// # Safety
/// - As `dlsym(3)`: a handle of `dlopen`'s, or one that has a name.
pub unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    if is_static() || !has_dlsym() {
        return null_mut();
    }
    // SAFETY: a C string; the caller's promise.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}
