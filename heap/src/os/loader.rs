//! Functions that not every process has: those of the loader and of threads are in libraries of
//! their own before glibc 2.34, and libneap.so loads without these.

use crate::base::sync::plain::{AtomicPtr, Ordering};
use core::ffi::{CStr, c_char, c_void};
use core::hint::black_box;
use core::mem::transmute;
use core::ptr::null_mut;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The loader's `dlsym`, if it was found later than the loader looked for it.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether a function is there. The compiler takes it for granted, but the loader has left the
/// address of a weak name at null.
pub fn is_there(function: *const ()) -> bool {
    !black_box(function).is_null()
}

/// Sets the function that [`symbol`] calls.
///
/// # Safety
/// - Null or `dlsym`.
pub unsafe fn set_dlsym(found: *mut c_void) {
    DLSYM.store(found, Ordering::Relaxed);
}

/// Whether [`symbol`] can answer.
pub fn has_dlsym() -> bool {
    dlsym().is_some()
}

fn dlsym() -> Option<Dlsym> {
    // SAFETY: null, or what `set_dlsym` got.
    let later = unsafe { transmute::<*mut c_void, Option<Dlsym>>(DLSYM.load(Ordering::Relaxed)) };
    later.or_else(|| is_there(libc::dlsym as *const ()).then_some(libc::dlsym as Dlsym))
}

/// `dlsym(3)`; null, too, in a process without it. It takes the loader's lock and may allocate.
///
/// # Safety
/// - As `dlsym(3)`: a handle of `dlopen`'s, or one that has a name.
pub unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a C string; the caller's promise.
    dlsym().map_or(null_mut(), |dlsym| unsafe { dlsym(handle, name.as_ptr()) })
}
