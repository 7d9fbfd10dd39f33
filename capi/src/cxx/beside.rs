//! Another allocator beside the archive, in a program in C++.

use crate::loader::{listed, objects_of};
use crate::optional::optional;
use core::ffi::{CStr, c_int, c_void};
use core::mem::{transmute, zeroed};
use neap_heap::os::loader;
use neap_heap::os::process::fatal;

/// Refuses another allocator that comes before the C++ runtime, as one of `LD_PRELOAD` does. The
/// archive leaves the sized and nothrow operators to the runtime. Where other objects call the
/// program's `new`, those of the other allocator would free its blocks.
pub(crate) fn refuse_another() {
    refuse_if_others(c"_ZdlPvm");
    refuse_if_others(c"_ZnwmRKSt9nothrow_t");
}

/// [`refuse_another`], if it defines this operator.
fn refuse_if_others(operator: &CStr) {
    let own = Some(optional!("_DYNAMIC").cast());
    // SAFETY: as in `listed`.
    let others = unsafe { loader::find(own, c"malloc") };
    let found = (listed(c"_Znwm"), listed(operator), others.ok().flatten());
    let (Some(new), Some(other), Some(malloc)) = found else {
        return;
    };
    let [new, other, malloc] = [new, other, malloc].map(|found| found.as_ptr().cast_const());
    let [program, of_new, of_other, of_malloc] = objects_of([
        refuse_another as fn() as usize,
        new.addr(),
        other.addr(),
        malloc.addr(),
    ]);
    if of_new == program && of_other == of_malloc && !of_other.is_empty() {
        fatal(format_args!(
            "{} has operators that take blocks of the allocator that this program contains for \
             its own: start the program without it (LD_PRELOAD)",
            name_of(other)
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
