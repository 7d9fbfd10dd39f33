//! Whether a loaded object may have `operator new` and `operator delete` of its own, to which its
//! calls are bound. The blocks of such a `new` are `malloc`'s, and other objects may delete them.
//!
//! An object that only imports the operators calls those of the process. A library that defines
//! some may be linked with `-Bsymbolic-functions`. One with a C++ runtime inside, or with hidden
//! operators, shows none of them to the loader.

use super::elf::Object;
use crate::base::sync::plain::{AtomicBool, Ordering::Relaxed};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{null_mut, with_exposed_provenance as at};
use core::slice;

/// The operators that others call or are called by.
const OPERATORS: [&CStr; 4] = [c"_Znwm", c"_Znam", c"_ZdlPv", c"_ZdaPv"];

/// How the names of all forms of the operators begin.
const FORMS: [&[u8]; 4] = [b"_Znw", b"_Zna", b"_Zdl", b"_Zda"];

/// The name of `std::bad_alloc`'s type, which only the C++ runtime has.
const IN_RUNTIMES: &[u8] = b"\0St9bad_alloc\0";

/// How the file names of C++ runtimes begin. Their calls are not bound to their own operators.
const RUNTIMES: [&[u8]; 2] = [b"libstdc++", b"libc++"];

/// Whether an object with operators of its own was found. Its blocks may outlive it.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Whether an object of the process may have operators of its own.
#[cold]
pub fn may_be_own() -> bool {
    // SAFETY: a callback of the type that is asked for, which uses no data.
    if !FOUND.load(Relaxed) && unsafe { libc::dl_iterate_phdr(Some(look_at), null_mut()) } != 0 {
        FOUND.store(true, Relaxed);
    }
    FOUND.load(Relaxed)
}

/// Ends the iteration at an object that may have operators of its own.
///
/// # Safety
/// - As the callback of `dl_iterate_phdr(3)`.
unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; the loader keeps the object meanwhile.
    c_int::from(unsafe { may_have_own(&*info) })
}

/// # Safety
/// - The loader's description of an object, which stays loaded.
unsafe fn may_have_own(info: &libc::dl_phdr_info) -> bool {
    // SAFETY: the caller's promise.
    let (parts, path) = unsafe {
        let parts = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let path = match info.dlpi_name.is_null() {
            true => c"",
            false => CStr::from_ptr(info.dlpi_name),
        };
        (parts, path.to_bytes())
    };
    let address = |part: &libc::Elf64_Phdr| (info.dlpi_addr + part.p_vaddr) as usize;
    let of_kind = |kind| parts.iter().filter(move |part| part.p_type == kind);
    let own = may_be_own as fn() -> bool as usize;
    let has = |part: &libc::Elf64_Phdr| own.wrapping_sub(address(part)) < part.p_memsz as usize;
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let is_runtime = RUNTIMES.iter().any(|start| file.starts_with(start));
    let Some(dynamic) = of_kind(libc::PT_DYNAMIC).next() else {
        return false;
    };
    if is_runtime || of_kind(libc::PT_LOAD).any(has) {
        return false;
    }
    // SAFETY: the object's dynamic section, and its parts that may be read and not written, of
    // which the file has these bytes.
    unsafe {
        let object = Object::of(info.dlpi_addr as usize, at(address(dynamic)));
        let read_only = of_kind(libc::PT_LOAD)
            .filter(|part| part.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R);
        let mut bytes = read_only
            .map(|part| slice::from_raw_parts(at::<u8>(address(part)), part.p_filesz as usize));
        OPERATORS.iter().any(|name| object.find(name).is_some())
            || hides(object.names())
            || bytes.any(has_runtime)
    }
}

/// Whether these are the names of a C++ object that allocates, and by none of the operators of
/// others.
fn hides(names: &[u8]) -> bool {
    let mut says = (false, false, false);
    for name in names.split(|&byte| byte == 0) {
        // The linker may store the name as the end of another.
        says.0 |= name.ends_with(b"malloc");
        says.1 |= name.starts_with(b"_Z");
        says.2 |= FORMS.iter().any(|form| name.starts_with(form));
    }
    says == (true, true, false)
}

/// Whether a C++ runtime is among the bytes.
fn has_runtime(bytes: &[u8]) -> bool {
    bytes
        .windows(IN_RUNTIMES.len())
        .any(|window| window == IN_RUNTIMES)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cxx_object_that_names_no_operator_may_hide_its_own() {
        assert!(hides(b"\0malloc\0_ZN1A1fEv\0"));
        assert!(hides(b"\0g_malloc\0_ZN1A1fEv\0"));
        assert!(!hides(b"\0malloc\0_ZN1A1fEv\0_ZdlPvm\0"));
        assert!(!hides(b"\0malloc\0free\0"));
        assert!(!hides(b"\0_ZN1A1fEv\0"));
    }

    #[test]
    fn a_runtime_inside_an_object_is_seen() {
        assert!(has_runtime(b"\0\0St9bad_alloc\0\0"));
        // An imported name.
        assert!(!has_runtime(b"\0_ZTISt9bad_alloc\0"));
    }
}
