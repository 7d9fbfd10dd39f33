//! The C++ runtime of this process, looked up when memory has run out.
//!
//! It is looked up each time, since it may come late, by `dlopen`; and not only in the global scope,
//! since a C program that loads a C++ plugin has it in the plugin's scope alone.

use crate::{aligned, loader};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

/// Where the functions of the C++ runtime may stand: libstdc++, libc++ and its lower half.
const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// `std::new_handler`; it may throw, so only assembly calls it.
type NewHandler = extern "C-unwind" fn();

/// The function `name` of the C++ runtime.
fn find(name: &CStr) -> Option<NonNull<c_void>> {
    loader::first(name).or_else(|| anywhere(name))
}

/// The function `name` in whatever C++ runtime is loaded.
fn anywhere(name: &CStr) -> Option<NonNull<c_void>> {
    RUNTIMES
        .iter()
        .find_map(|library| loader::inside(library, name))
}

/// The definition that this library's operator `name` stands in front of.
pub(super) fn behind(name: &CStr) -> Option<NonNull<c_void>> {
    loader::next(name).or_else(|| anywhere(name))
}

/// The new-handler in force, for a block at `align`; none if no handler can help.
pub(super) extern "C" fn handler(align: usize) -> Option<NewHandler> {
    if !align.is_power_of_two() {
        return None;
    }
    let get = find(c"_ZSt15get_new_handlerv")?;
    // SAFETY: this is `std::new_handler std::get_new_handler() noexcept`.
    let get: extern "C" fn() -> Option<NewHandler> = unsafe { core::mem::transmute(get) };
    get()
}

/// Another attempt after the handler; null if there still is no memory.
pub(super) extern "C" fn retry(size: usize, align: usize) -> *mut u8 {
    aligned::allocate(size, align)
}

/// The function that throws `std::bad_alloc`, for a request of `size` bytes.
pub(super) extern "C" fn thrower(size: usize) -> NonNull<c_void> {
    match find(c"_ZSt17__throw_bad_allocv") {
        Some(thrower) => thrower,
        None => neap::os::fatal::fatal(format_args!(
            "operator new of {size} bytes: out of memory, and no C++ runtime to throw bad_alloc"
        )),
    }
}
