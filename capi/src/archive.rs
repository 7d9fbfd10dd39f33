//! What the archive `libneap.a` takes from the program that it is linked into.
//!
//! In a dynamic program, `dlsym` answers all questions, as it does for `libneap.so`. A static
//! program has no loader to ask. There the linker has answered: it left null what nothing else in
//! the program needed.

use crate::optional::optional;
use core::arch::global_asm;
use core::ffi::{CStr, c_void};
use core::ops::Range;
use core::ptr::null_mut;

// A strong reference would link the loader into every static program.
global_asm!(".weak dlsym");

/// This library's code, which ci/archive.sh collects in one section. The object that contains it
/// is the program.
pub(crate) fn own_code(_object: &Range<usize>) -> Range<usize> {
    neap_instruments::unwind::own_code()
}

/// Whether the program is static: nothing that this archive is part of needs a library. A static
/// program may have a `dlsym` (glibc's conversions of characters link it), which finds nothing.
pub(crate) fn is_static() -> bool {
    let mut entry: *const Entry = optional!("_DYNAMIC").cast();
    while !entry.is_null() {
        // SAFETY: the linker's table, which ends in an entry of kind 0.
        match unsafe { entry.read() }.kind {
            DT_NULL => break,
            DT_NEEDED => return false,
            // SAFETY: not past the last.
            _ => entry = unsafe { entry.add(1) },
        }
    }
    true
}

/// An entry of the table of a dynamic object (`Elf64_Dyn`).
#[repr(C)]
struct Entry {
    kind: u64,
    _value: u64,
}

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;

/// Answers as `dlsym` does, in a static program. It knows the names without which Neap would do
/// less: what `operator new` calls when memory runs out, and a function of the C library's, for its
/// place. Null for the others: a function that wraps one of the C library's then calls the kernel.
pub(crate) fn linked(name: &CStr) -> *mut c_void {
    let address = match name.to_bytes() {
        b"_ZSt15get_new_handlerv" => optional!("_ZSt15get_new_handlerv"),
        b"_ZSt17__throw_bad_allocv" => optional!("_ZSt17__throw_bad_allocv"),
        b"getpid" => libc::getpid as *const c_void,
        _ => return null_mut(),
    };
    address.cast_mut()
}
