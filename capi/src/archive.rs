//! What the archive `libneap.a` takes from the program that it is linked into.
//!
//! In a dynamic program, `dlsym` answers all questions, as it does for `libneap.so`. A static
//! program has no loader to ask. There the linker has answered: it left null what nothing else in
//! the program needed.

use crate::loader::{listed, objects_of};
use crate::optional::optional;
use core::arch::global_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ops::Range;
use core::ptr::null_mut;
use neap_heap::os::abort::fatal;
use neap_heap::os::elf;

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

/// Refuses another allocator that comes before the C++ runtime, as one of `LD_PRELOAD` does. The
/// archive leaves the sized and nothrow operators to the runtime. Where other objects call the
/// program's `new`, those of the other allocator would free its blocks.
pub(crate) fn refuse_another() {
    let own = Some(optional!("_DYNAMIC").cast());
    // SAFETY: the process has one thread.
    let others = unsafe { elf::find(own, c"malloc") };
    let found = (listed(c"_Znwm"), listed(c"_ZdlPvm"), others.ok().flatten());
    let (Some(new), Some(delete), Some(malloc)) = found else {
        return;
    };
    let [new, delete, malloc] = [new, delete, malloc].map(|found| found.as_ptr().cast_const());
    let [program, of_new, of_delete, of_malloc] = objects_of([
        refuse_another as fn() as usize,
        new.addr(),
        delete.addr(),
        malloc.addr(),
    ]);
    if of_new == program && of_delete == of_malloc && !of_delete.is_empty() {
        fatal(format_args!(
            "{} would free blocks of the allocator that this program contains, by its operator \
             delete: start the program without it (LD_PRELOAD)",
            name_of(delete)
        ));
    }
}

/// The file name of the loaded object that contains `address`.
fn name_of(address: *const c_void) -> &'static str {
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let function = optional!("dladdr");
    // SAFETY: null, or the C library's function of this name and so of this type, which is handed a
    // place for its answer. The names that it answers stay while the object is loaded.
    let name = unsafe {
        let mut answer: libc::Dl_info = zeroed();
        transmute::<*const c_void, Option<Dladdr>>(function)
            .filter(|dladdr| dladdr(address, &raw mut answer) != 0 && !answer.dli_fname.is_null())
            .map(|_| CStr::from_ptr(answer.dli_fname))
    };
    name.and_then(|name| name.to_str().ok())
        .unwrap_or("another library")
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
