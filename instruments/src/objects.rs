//! The loaded object that contains an address, according to the loader.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::slice;
use neap_heap::base::sync::plain::{AtomicPtr, AtomicUsize, Ordering};
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

/// The program itself. Where there is a gap between two of its segments, the loader answers with
/// the segment of an address instead of the whole object. `lld` leaves such a gap where a segment
/// ends right before a page's end, in about one program of a hundred.
static PROGRAM: Program = Program {
    link_map: AtomicPtr::new(null_mut()),
    start: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

struct Program {
    /// How the loader names it; null before it is known. Written last.
    link_map: AtomicPtr<c_void>,
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Program {
    /// Reads where the program lies from the headers that the kernel passed. Without them, the
    /// loader's answers are used as they are.
    fn look_up(&self) {
        // SAFETY: getauxval takes no pointers.
        let [at, count] = [libc::AT_PHDR, libc::AT_PHNUM]
            .map(|kind| keep_errno(|| unsafe { libc::getauxval(kind) }) as usize);
        let Some(found) = find(at).filter(|_| at != 0) else {
            return;
        };
        // SAFETY: the program's headers, which stay mapped as long as it runs.
        let headers: &[libc::Elf64_Phdr] =
            unsafe { slice::from_raw_parts(core::ptr::with_exposed_provenance(at), count) };
        let of_kind = |kind: u32| headers.iter().filter(move |header| header.p_type == kind);
        let ends = |header: &libc::Elf64_Phdr| header.p_vaddr + header.p_memsz;
        let (Some(own), Some(first), Some(last)) = (
            of_kind(libc::PT_PHDR).next(),
            of_kind(libc::PT_LOAD).map(|header| header.p_vaddr).min(),
            of_kind(libc::PT_LOAD).map(ends).max(),
        ) else {
            return;
        };
        let bias = at.wrapping_sub(own.p_vaddr as usize);
        let first = first as usize & !(PAGE - 1);
        self.start
            .store(bias.wrapping_add(first), Ordering::Relaxed);
        self.end
            .store(bias.wrapping_add(last as usize), Ordering::Relaxed);
        let name = found.link_map.cast_mut();
        self.link_map.store(name, Ordering::Release);
    }

    /// Its range, if the loader means the program.
    fn range(&self, link_map: *const c_void) -> Option<(usize, usize)> {
        let is_it = link_map == self.link_map.load(Ordering::Acquire).cast_const();
        let [start, end] = [&self.start, &self.end].map(|word| word.load(Ordering::Relaxed));
        (is_it && !link_map.is_null()).then_some((start, end))
    }
}

/// The least alignment of a mapping.
const PAGE: usize = 4096;

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
        PROGRAM.look_up();
    }
    !FIND.load(Ordering::Relaxed).is_null()
}

/// The object that `address` lies in; `None` if none does, if it has no such table, or if the C
/// library cannot tell. Takes no lock, allocates nothing, may be called from a handler of signals.
pub fn object_at(address: usize) -> Option<Object> {
    let found = find(address)?;
    let (start, end) = match PROGRAM.range(found.link_map) {
        Some(range) => range,
        None => (
            found.start.expose_provenance(),
            found.end.expose_provenance(),
        ),
    };
    Some(Object {
        start,
        end,
        eh_frame_hdr: found.eh_frame_hdr.expose_provenance(),
    })
}

/// The loader's answer, if it knows of an object with a table at `address`.
fn find(address: usize) -> Option<Found> {
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
    (answer == 0 && !found.eh_frame_hdr.is_null()).then_some(found)
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
