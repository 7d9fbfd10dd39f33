//! The loaded object that contains an address, according to the loader.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use neap_heap::base::sync::plain::{AtomicPtr, Ordering};
use neap_heap::os::errno::keep_errno;

/// What glibc fills in (`<dlfcn.h>`, glibc 2.35, without the two fields that only old machines
/// have).
#[repr(C)]
struct Found {
    flags: u64,
    start: *const c_void,
    end: *const c_void,
    link_map: *const c_void,
    eh_frame_hdr: *const c_void,
    reserved: [u64; 7],
}

type Find = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// `_dl_find_object`, null where there is none or none was looked for.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// An object in memory: the program, a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its first address.
    pub start: usize,
    /// One past its last.
    pub end: usize,
    /// Where its table of unwinding begins.
    pub eh_frame_hdr: usize,
}

/// Looks for the C library's function, so that [`object_at`] can answer. True if it is there. Not
/// under a lock of the heap: `dlsym` takes the loader's lock and may allocate.
pub fn look_up() -> bool {
    if FIND.load(Ordering::Relaxed).is_null() {
        // SAFETY: a C string; RTLD_DEFAULT is a handle that dlsym knows.
        let found =
            keep_errno(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) });
        FIND.store(found, Ordering::Relaxed);
    }
    !FIND.load(Ordering::Relaxed).is_null()
}

/// The object that `address` lies in; `None` if none does, if it has no such table, or if the C
/// library cannot tell. Takes no lock, allocates nothing, may be called from a handler of signals.
pub fn object_at(address: usize) -> Option<Object> {
    let find = FIND.load(Ordering::Relaxed);
    if find.is_null() {
        return None;
    }
    // SAFETY: the address of the C library's function of this name, whose type this is.
    let find = unsafe { transmute::<*mut c_void, Find>(find) };
    let mut found = MaybeUninit::<Found>::zeroed();
    // SAFETY: any address may be asked for; the buffer is as large as the answer.
    let answer = unsafe {
        find(
            core::ptr::with_exposed_provenance_mut(address),
            found.as_mut_ptr(),
        )
    };
    // SAFETY: numbers and pointers; zero is a value of each.
    let found = unsafe { found.assume_init() };
    (answer == 0 && !found.eh_frame_hdr.is_null()).then(|| Object {
        start: found.start.expose_provenance(),
        end: found.end.expose_provenance(),
        eh_frame_hdr: found.eh_frame_hdr.expose_provenance(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_lies_in_an_object_and_data_of_the_heap_does_not() {
        if !look_up() {
            return;
        }
        let code = object_at as *const () as usize;
        let object = object_at(code).unwrap();
        assert!(object.start <= code && code < object.end);
        assert!(object.start < object.eh_frame_hdr && object.eh_frame_hdr < object.end);
        let block = std::boxed::Box::new(0_u64);
        assert_eq!(object_at(core::ptr::from_ref(&*block).addr()), None);
        assert_eq!(object_at(0), None);
        assert_eq!(object_at(usize::MAX), None);
    }
}
