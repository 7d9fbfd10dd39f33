//! The C++ runtime of this process, looked up when memory has run out.
//!
//! Each failure looks it up again, because `dlopen` may load it late. The global scope alone is not
//! enough: a C program that loads a C++ plugin has the runtime in the plugin's scope only.

use crate::{aligned, loader};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use neap_heap::watched::harden::Form;
use neap_heap::watched::stated;

/// How the file names of libraries that may define the C++ runtime's functions begin. Python
/// packages for musl contain a runtime of their own with a checksum in its name.
const RUNTIMES: [&[u8]; 4] = [b"libstdc++", b"libc++.", b"libc++-", b"libc++abi"];

/// Their usual sonames. They find a runtime that was loaded under another file name, or by a path
/// that is too long to be copied.
const SONAMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// `std::new_handler`. It may throw, so only assembly calls it.
type NewHandler = extern "C-unwind" fn();

/// The function `name` of the C++ runtime.
fn find(name: &CStr) -> Option<NonNull<c_void>> {
    loader::first(name).or_else(|| anywhere(name))
}

/// The function `name` in any of [`RUNTIMES`] or [`SONAMES`] that is loaded.
fn anywhere(name: &CStr) -> Option<NonNull<c_void>> {
    let mut files = RUNTIMES.iter();
    let mut sonames = SONAMES.iter();
    files
        .find_map(|start| loader::inside(start, name))
        .or_else(|| sonames.find_map(|soname| loader::within(soname, name)))
}

/// The next definition of operator `name` after this library's.
pub(super) fn behind(name: &CStr) -> Option<NonNull<c_void>> {
    loader::next(name).or_else(|| anywhere(name))
}

/// The current new-handler, for a block at `align`; `None` if no handler can help.
pub(super) extern "C" fn handler(align: usize) -> Option<NewHandler> {
    if !align.is_power_of_two() {
        return None;
    }
    let get = find(c"_ZSt15get_new_handlerv")?;
    // SAFETY: this is `std::new_handler std::get_new_handler() noexcept`.
    let get: extern "C" fn() -> Option<NewHandler> = unsafe { core::mem::transmute(get) };
    get()
}

/// Tries again after the handler; null if memory is still short.
pub(super) extern "C" fn retry(size: usize, align: usize) -> *mut u8 {
    let block = aligned::allocate(size, align);
    // Neither form is known here.
    stated::mark(block, Form::Any);
    block
}

/// The function that throws `std::bad_alloc`, for a request of `size` bytes.
pub(super) extern "C" fn thrower(size: usize) -> NonNull<c_void> {
    match find(c"_ZSt17__throw_bad_allocv") {
        Some(thrower) => thrower,
        None => neap_heap::os::process::fatal(format_args!(
            "operator new of {size} bytes: out of memory, and no C++ runtime to throw bad_alloc"
        )),
    }
}
