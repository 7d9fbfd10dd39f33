//! The loaded object that contains an address, according to the loader.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::slice;
use neap_heap::base::sync::plain::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use neap_heap::os::loader::keep_errno;
use neap_heap::os::loader::{find_object, has_dlsym, is_glibc, is_static};
use neap_heap::os::process::auxiliary;

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

/// Whether the C library is musl. It never unloads an object, and allocates by other functions than
/// the program's `malloc` while it holds its loader's lock, so that `malloc` may take the lock.
#[unsafe(link_section = "neap_fork")]
static IS_MUSL: AtomicBool = AtomicBool::new(false);

/// The program itself. Where there is a gap between two of its segments, the loader answers with
/// the segment of an address instead of the whole object. `lld` leaves such a gap where a segment
/// ends right before a page's end, in about one program of a hundred.
#[unsafe(link_section = "neap_fork")]
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
        let [at, count] = [libc::AT_PHDR, libc::AT_PHNUM].map(auxiliary);
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

/// Learns what [`object_at`] needs. True if that can answer.
pub fn look_up() -> bool {
    let find = find_object();
    // musl always has `dlsym`; before glibc 2.34 a process may lack it. A static program's only
    // object is found as musl's are.
    let is_musl = (has_dlsym() || is_static()) && find.is_null() && !is_glibc();
    IS_MUSL.store(is_musl, Ordering::Relaxed);
    if !find.is_null() {
        PROGRAM.look_up();
    }
    !find.is_null() || is_musl
}

/// The object that `address` lies in; `None` if none does, if it has no such table, or if the C
/// library cannot tell. Allocates nothing. Takes no lock, and so may be called from a handler of
/// signals; except in musl, where it takes the loader's for reading.
pub fn object_at(address: usize) -> Option<Object> {
    if IS_MUSL.load(Ordering::Relaxed) {
        return listed(address);
    }
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
    let find = find_object();
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

/// The same, found in the loader's list.
fn listed(address: usize) -> Option<Object> {
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback has the type that is asked for, and gets the search, which outlives the
    // call.
    keep_errno(|| unsafe { libc::dl_iterate_phdr(Some(compare), (&raw mut search).cast()) });
    search.found
}

struct Search {
    address: usize,
    found: Option<Object>,
}

/// # Safety
/// - As the callback of `dl_iterate_phdr(3)`; `search` is a [`Search`].
unsafe extern "C" fn compare(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let mut object = Object {
        start: usize::MAX,
        end: 0,
        eh_frame_hdr: 0,
    };
    for at in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader gave the number of headers.
        let header = unsafe { &*info.dlpi_phdr.add(at) };
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        match header.p_type {
            libc::PT_LOAD => {
                object.start = object.start.min(start);
                object.end = object.end.max(start + header.p_memsz as usize);
            }
            libc::PT_GNU_EH_FRAME => object.eh_frame_hdr = start,
            _ => {}
        }
    }
    let is_inside = (object.start..object.end).contains(&search.address);
    search.found = (is_inside && object.eh_frame_hdr != 0).then_some(object);
    c_int::from(is_inside)
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
        for inside in [code, libc::abort as *const () as usize] {
            assert_eq!(listed(inside), object_at(inside));
        }
        let block = std::boxed::Box::new(0_u64);
        assert_eq!(object_at(core::ptr::from_ref(&*block).addr()), None);
        assert_eq!(object_at(0), None);
        assert_eq!(object_at(usize::MAX), None);
    }
}
