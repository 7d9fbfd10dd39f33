//! Keeps the shared library that contains Neap loaded after its host closes it, as `libneap.so`
//! does. The process may call the library's code at any later time: each thread that allocated runs
//! Neap's destructor when it ends, `fork` runs Neap's handlers, and the purge thread runs in it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null;
use neap_heap::os::loader;

/// A constructor. If the program opens the library by `dlopen`, the loader's lock is held here.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = keep;

/// Opens the library once more and never closes it. Does nothing in the program's own file, or if
/// the C library never unloads a library, as musl.
extern "C" fn keep() {
    if !loader::is_glibc() {
        return;
    }
    let mut name = null::<c_char>();
    // SAFETY: the callback has the type that is asked for, and gets the address of the name.
    unsafe { libc::dl_iterate_phdr(Some(find), (&raw mut name).cast()) };
    // SAFETY: null, or the loader's name of a library, which is loaded.
    if name.is_null() || unsafe { CStr::from_ptr(name) }.is_empty() {
        return;
    }
    // SAFETY: `RTLD_DEFAULT` is a handle with a name. A loader, which has `dlsym`, loaded this.
    let open = unsafe { loader::symbol(libc::RTLD_DEFAULT, c"dlopen") };
    if !open.is_null() {
        type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
        // SAFETY: the function of this name has this type; it gets the loader's own name.
        unsafe {
            transmute::<*mut c_void, Open>(open)(name, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        }
    }
}

/// Stores the loader's name of the object that contains `keep`.
///
/// # Safety
/// - As the callback of `dl_iterate_phdr(3)`; `name` is where the name is to be stored.
unsafe extern "C" fn find(info: *mut libc::dl_phdr_info, _size: usize, name: *mut c_void) -> c_int {
    let here = keep as *const () as usize;
    // SAFETY: the caller's promise; the loader gave the number of headers.
    let (info, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        (info, core::slice::from_raw_parts(info.dlpi_phdr, count))
    };
    let holds = |header: &&libc::Elf64_Phdr| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
        header.p_type == libc::PT_LOAD && here.wrapping_sub(start) < header.p_memsz as usize
    };
    let is_here = headers.iter().find(holds).is_some();
    if is_here {
        // SAFETY: the caller's promise.
        unsafe { *name.cast() = info.dlpi_name };
    }
    c_int::from(is_here)
}
