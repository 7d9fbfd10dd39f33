//! Functions that not every process has: those of the loader and of threads are in libraries of
//! their own before glibc 2.34, and libneap.so loads without these.

use super::arch;
use crate::base::sync::plain::{AtomicBool, Ordering};
use core::ffi::{CStr, c_void};
use core::hint::black_box;
use core::mem::transmute;
use core::ptr::null_mut;

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
