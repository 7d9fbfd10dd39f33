//! Questions to the dynamic loader.
//!
//! Asked on slow paths only: `dlsym` takes the loader's lock and may allocate.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

/// The definition of `name` that comes after this library in the search order.
pub(crate) fn next(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; RTLD_NEXT is a handle that dlsym knows.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) })
}

/// The first definition of `name` in the global search order.
pub(crate) fn first(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; RTLD_DEFAULT is a handle that dlsym knows.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// The definition of `name` in `library`, if that library is loaded, be it in no global scope.
pub(crate) fn inside(library: &CStr, name: &CStr) -> Option<NonNull<c_void>> {
    let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: two C strings and a handle that was just opened. RTLD_NOLOAD loads
    // nothing; the count that it adds to the library is left, so the answer stays valid.
    unsafe {
        let handle = NonNull::new(libc::dlopen(library.as_ptr(), mode))?;
        NonNull::new(libc::dlsym(handle.as_ptr(), name.as_ptr()))
    }
}

/// The start of the loaded object that `address` lies in; null if in none.
pub(crate) fn image(address: NonNull<c_void>) -> *mut c_void {
    // SAFETY: all zeros is a valid Dl_info, and dladdr takes every address.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        libc::dladdr(address.as_ptr(), &mut info);
        info.dli_fbase
    }
}
