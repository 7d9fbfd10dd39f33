//! The C library and the other loaded objects: `errno`, functions that not every process has, and
//! the objects' own tables.
//!
//! The functions of the loader and of threads are in libraries of their own before glibc 2.34, and
//! libneap.so loads without these.
//!
//! `dlsym` may allocate, and leaves its error to `dlerror` if there is no such name. A search of
//! the tables ([`find`]) runs no code but this, takes no lock and allocates nothing. It passes over
//! functions that the loader would ask for their address (`STT_GNU_IFUNC`). The list of objects
//! must not change meanwhile, so a process searches it at its start, before it has a second thread.
//!
//! [`may_be_own`] tells whether an object may have `operator new` and `operator delete` of its own,
//! to which its calls are bound. The blocks of such a `new` are `malloc`'s, and other objects may
//! delete them. An object that only imports the operators calls those of the process. A library
//! that defines some may be linked with `-Bsymbolic-functions`. One with a C++ runtime inside, or
//! with hidden operators, shows none of them to the loader.

use super::arch::address_of;
use crate::base::sync::plain::Ordering::{self, Relaxed};
use crate::base::sync::plain::{AtomicBool, AtomicPtr};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::iter::successors;
use core::mem::transmute;
use core::ops::Range;
use core::ptr::{NonNull, null, null_mut, with_exposed_provenance as at};
use core::slice;

/// Runs `work` and puts `errno` back to what it was before.
pub fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    let saved = errno();
    let result = work();
    set_errno(saved);
    result
}

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the C library returns the calling thread's own, always valid, errno.
    unsafe { *errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: as in `errno`.
    unsafe { *errno_location() = value }
}

/// The address of the calling thread's `errno`.
fn errno_location() -> *mut i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::__errno_location() }
}

/// The `errno` of a refused allocation.
pub const ENOMEM: i32 = libc::ENOMEM;
/// The `errno` of a bad argument.
pub const EINVAL: i32 = libc::EINVAL;

/// Whether a function is there. The compiler takes it for granted, but the loader has left the
/// address of a weak name at null.
pub fn is_there(function: *const ()) -> bool {
    !black_box(function).is_null()
}

/// The start of libneap.so, if this is libneap.so (`capi/src/start.rs`): a hidden symbol, null in
/// every other program with this heap.
pub fn library_start() -> Option<extern "C" fn()> {
    let start = address_of!(
        "neap_start_on_the_way",
        ".weak neap_start_on_the_way",
        ".hidden neap_start_on_the_way"
    );
    // SAFETY: null, or a function of this type.
    unsafe { transmute::<*const c_void, Option<extern "C" fn()>>(start) }
}

/// What the process has, found at its start: glibc, and `_dl_find_object`, which is null where the
/// C library has none.
struct Found {
    is_known: AtomicBool,
    is_glibc: AtomicBool,
    find_object: AtomicPtr<c_void>,
}

#[unsafe(link_section = "neap_fork")]
static FOUND: Found = Found {
    is_known: AtomicBool::new(false),
    is_glibc: AtomicBool::new(false),
    find_object: AtomicPtr::new(null_mut()),
};

/// Looks for what only some processes have, unless that was done. At the process's start, because
/// [`find`] needs a list that does not change, and `dlsym` would leave an error.
pub fn begin() {
    if FOUND.is_known.load(Ordering::Relaxed) {
        return;
    }
    FOUND.is_known.store(true, Ordering::Relaxed);
    // SAFETY: RTLD_DEFAULT is a handle that dlsym knows.
    let asked = |name| NonNull::new(unsafe { symbol(libc::RTLD_DEFAULT, name) });
    // SAFETY: the process has one thread, or the loader's lock is held, as in a constructor.
    let find = |name| unsafe { find(None, name) }.unwrap_or_else(|_| asked(name));
    if let Some(found) = find(c"_dl_find_object") {
        FOUND.find_object.store(found.as_ptr(), Ordering::Relaxed);
    }
    let is_glibc = find(c"gnu_get_libc_version").is_some();
    FOUND.is_glibc.store(is_glibc, Ordering::Relaxed);
}

/// Whether the C library is glibc, as a library of its own.
pub fn is_glibc() -> bool {
    begin();
    FOUND.is_glibc.load(Ordering::Relaxed)
}

/// glibc's `_dl_find_object` (2.35), or null.
pub fn find_object() -> *mut c_void {
    begin();
    FOUND.find_object.load(Ordering::Relaxed)
}

/// Whether the process is a static program with libneap.a.
static IS_STATIC: AtomicBool = AtomicBool::new(false);

/// Notes that the process is a static program: it has no loader, even where it has a `dlsym`.
pub fn note_static() {
    IS_STATIC.store(true, Ordering::Relaxed);
}

/// Whether [`note_static`] was called.
pub fn is_static() -> bool {
    IS_STATIC.load(Ordering::Relaxed)
}

/// Whether [`symbol`] can answer.
pub fn has_dlsym() -> bool {
    is_there(libc::dlsym as *const ())
}

/// `dlsym(3)`; null, too, in a process without it. It takes the loader's lock and may allocate.
///
/// # Safety
/// - As `dlsym(3)`: a handle of `dlopen`'s, or one that has a name.
pub unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    if is_static() || !has_dlsym() {
        return null_mut();
    }
    // SAFETY: a C string; the caller's promise.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// An entry of a dynamic section (`Elf64_Dyn`): its kind, and a number or an address.
pub type Entry = [usize; 2];

/// The loader's record of an object, as `<link.h>` declares it.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const LinkMap,
}

/// The tables of an object.
pub(super) struct Object {
    bias: usize,
    symbols: *const libc::Elf64_Sym,
    strings: *const u8,
    /// Bytes of the strings.
    length: usize,
    versions: *const u16,
    hash: *const u32,
    gnu_hash: *const u32,
}

/// The loader's list is not there, or lacks an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoList;

/// The first definition of `name` in the program and its libraries, in the loader's order. With
/// `own`, the address of an object's dynamic section, the first one after that object, as
/// `RTLD_NEXT` finds it.
///
/// # Safety
/// - No other thread opens or closes libraries.
pub unsafe fn find(
    own: Option<*const c_void>,
    name: &CStr,
) -> Result<Option<NonNull<c_void>>, NoList> {
    // SAFETY: the caller's promise.
    let mut objects = unsafe { objects() }.peekable();
    match own {
        Some(own) => {
            _ = objects
                .find(|object| object.dynamic.cast() == own)
                .ok_or(NoList)?
        }
        None => _ = objects.peek().ok_or(NoList)?,
    }
    // SAFETY: the loader's record of an object, and the caller's promise.
    let find = |object: &LinkMap| unsafe { Object::of(object.bias, object.dynamic).find(name) };
    Ok(objects.find_map(find))
}

/// A function of the kernel's own object (vDSO), for calls that need not enter the kernel.
pub(super) fn of_kernel(name: &CStr) -> Option<NonNull<c_void>> {
    let header: *const libc::Elf64_Ehdr = at(auxiliary(libc::AT_SYSINFO_EHDR));
    // SAFETY: null, or the kernel's object, which stays mapped.
    unsafe {
        let table = header.byte_add(header.as_ref()?.e_phoff as usize).cast();
        let parts = slice::from_raw_parts(table, (*header).e_phnum.into());
        let loaded = part(parts, libc::PT_LOAD)?;
        let start = header.addr() + loaded.p_offset as usize;
        let bias = start.wrapping_sub(loaded.p_vaddr as usize);
        let dynamic = bias.wrapping_add(part(parts, libc::PT_DYNAMIC)?.p_vaddr as usize);
        Object::of(bias, at(dynamic)).find(name)
    }
}

/// What the kernel told the program at its start about `kind`; 0 if nothing.
pub fn auxiliary(kind: libc::c_ulong) -> usize {
    // SAFETY: getauxval takes no pointers.
    keep_errno(|| unsafe { libc::getauxval(kind) }) as usize
}

/// The first part of this kind.
fn part(parts: &[libc::Elf64_Phdr], kind: u32) -> Option<&libc::Elf64_Phdr> {
    parts.iter().find(|part| part.p_type == kind)
}

/// The loader's list, in the order of its search. Empty in a static program.
///
/// # Safety
/// - As [`find`].
unsafe fn objects() -> impl Iterator<Item = &'static LinkMap> {
    // SAFETY: null, or the loader's records.
    let record = |record: *const LinkMap| unsafe { record.as_ref() };
    successors(record(first_record().unwrap_or(null())), move |object| {
        record(object.next)
    })
}

/// The loader tells debuggers where its list begins: in the program's dynamic section.
fn first_record() -> Option<*const LinkMap> {
    const DEBUG: usize = 21;
    let headers = auxiliary(libc::AT_PHDR);
    if headers == 0 {
        return None;
    }
    // SAFETY: the program's headers and dynamic section, which stay mapped; `DT_DEBUG` is 0 or the
    // address of a version and the first record.
    unsafe {
        let parts = slice::from_raw_parts(at(headers), auxiliary(libc::AT_PHNUM));
        let bias = headers.wrapping_sub(part(parts, libc::PT_PHDR)?.p_vaddr as usize);
        let dynamic = bias.wrapping_add(part(parts, libc::PT_DYNAMIC)?.p_vaddr as usize);
        let [_, debug] = entries(at(dynamic)).find(|[kind, _]| *kind == DEBUG)?;
        Some(at::<[*const LinkMap; 2]>(debug).as_ref()?[1])
    }
}

/// A dynamic section's entries.
///
/// # Safety
/// - `section` is null or a dynamic section.
pub unsafe fn entries(mut section: *const Entry) -> impl Iterator<Item = Entry> {
    core::iter::from_fn(move || {
        // SAFETY: not past the last entry, whose kind is 0.
        let entry = *unsafe { section.as_ref() }.filter(|[kind, _]| *kind != 0)?;
        section = section.wrapping_add(1);
        Some(entry)
    })
}

impl Object {
    /// # Safety
    /// - `dynamic` is null or the dynamic section of an object that is loaded with this bias.
    pub(super) unsafe fn of(bias: usize, dynamic: *const Entry) -> Object {
        let mut object = Object {
            bias,
            symbols: null(),
            strings: null(),
            length: 0,
            versions: null(),
            hash: null(),
            gnu_hash: null(),
        };
        // SAFETY: the caller's promise.
        for [kind, value] in unsafe { entries(dynamic) } {
            // glibc adds the bias in the section, musl and the kernel do not. An object has less
            // than 4 GiB. With gVisor's kernel object the bias is negative.
            let address = match value.wrapping_sub(bias) < 1 << 32 {
                true => value,
                false => bias.wrapping_add(value),
            };
            match kind {
                4 => object.hash = at(address),
                5 => object.strings = at(address),
                6 => object.symbols = at(address),
                10 => object.length = value,
                0x6fff_fef5 => object.gnu_hash = at(address),
                0x6fff_fff0 => object.versions = at(address),
                _ => {}
            }
        }
        object
    }

    /// The names that the object imports and defines, each with a 0 behind it.
    ///
    /// # Safety
    /// - The object stays loaded.
    pub(super) unsafe fn names<'a>(&self) -> &'a [u8] {
        match self.strings.is_null() {
            true => &[],
            // SAFETY: the object's table of strings.
            false => unsafe { slice::from_raw_parts(self.strings, self.length) },
        }
    }

    /// # Safety
    /// - The object stays loaded.
    pub(super) unsafe fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the caller's promise.
        let index = unsafe {
            match [self.gnu_hash, self.hash] {
                [_, _] if self.symbols.is_null() || self.strings.is_null() => None,
                [table, _] if !table.is_null() => self.find_by_gnu_hash(table, name.to_bytes()),
                [_, table] if !table.is_null() => self.find_by_hash(table, name.to_bytes()),
                _ => None,
            }?
        };
        // SAFETY: the table of hashes has only numbers of symbols.
        let value = unsafe { (*self.symbols.add(index)).st_value };
        NonNull::new(core::ptr::with_exposed_provenance_mut(
            self.bias.wrapping_add(value as usize),
        ))
    }

    /// # Safety
    /// - `table` is the object's `DT_GNU_HASH`.
    unsafe fn find_by_gnu_hash(&self, table: *const u32, name: &[u8]) -> Option<usize> {
        let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(byte.into());
        let hash = name.iter().fold(5381, step);
        // SAFETY: four words, a filter of 64-bit words, the buckets, and a chain for each, whose
        // last word is odd.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|word| *table.add(word) as usize);
            let bucket = table.add(4 + 2 * filter);
            let chain = bucket.add(buckets);
            let mut index = *bucket.add(hash as usize % buckets.max(1)) as usize;
            while index >= first.max(1) {
                let word = *chain.add(index - first);
                if (word ^ hash) >> 1 == 0 && self.defines(index, name) {
                    return Some(index);
                }
                if word & 1 != 0 {
                    break;
                }
                index += 1;
            }
        }
        None
    }

    /// # Safety
    /// - `table` is the object's `DT_HASH`.
    unsafe fn find_by_hash(&self, table: *const u32, name: &[u8]) -> Option<usize> {
        let step = |hash: u32, &byte: &u8| {
            let sum = (hash << 4).wrapping_add(byte.into());
            (sum ^ (sum >> 24 & 0xf0)) & 0x0fff_ffff
        };
        let hash = name.iter().fold(0, step);
        // SAFETY: two words, the buckets, and the number that follows each symbol, at last 0.
        unsafe {
            let buckets = *table as usize;
            let mut index = *table.add(2 + hash as usize % buckets.max(1)) as usize;
            while index != 0 && !self.defines(index, name) {
                index = *table.add(2 + buckets + index) as usize;
            }
            (index != 0).then_some(index)
        }
    }

    /// Whether the symbol is a definition of `name` that others may use: not an older version.
    ///
    /// # Safety
    /// - `index` is a symbol's.
    unsafe fn defines(&self, index: usize, name: &[u8]) -> bool {
        const HIDDEN: u16 = 1 << 15;
        const FUNCTION: u8 = 2;
        // SAFETY: the symbol and its name, which ends in 0; versions are null or one a symbol.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let text = self.strings.add(symbol.st_name as usize);
            let mut bytes = name.iter().chain(&[0]).enumerate();
            symbol.st_shndx != 0
                && symbol.st_info >> 4 != 0
                && symbol.st_info & 15 <= FUNCTION
                && (self.versions.is_null() || *self.versions.add(index) & HIDDEN == 0)
                && bytes.all(|(at, &byte)| *text.add(at) == byte)
        }
    }
}

/// The operators that others call or are called by.
const OPERATORS: [&CStr; 4] = [c"_Znwm", c"_Znam", c"_ZdlPv", c"_ZdaPv"];

/// How the names of all forms of the operators begin.
const FORMS: [&[u8]; 4] = [b"_Znw", b"_Zna", b"_Zdl", b"_Zda"];

/// The name of `std::bad_alloc`'s type, which only the C++ runtime has.
const IN_RUNTIMES: &[u8] = b"\0St9bad_alloc\0";

/// How the file names of C++ runtimes begin. Their calls are not bound to their own operators.
const RUNTIMES: [&[u8]; 2] = [b"libstdc++", b"libc++"];

/// Whether an object with operators of its own was found. Its blocks may outlive it.
static HAS_OWN: AtomicBool = AtomicBool::new(false);

/// Whether an object of the process may have operators of its own.
#[cold]
pub fn may_be_own() -> bool {
    if !HAS_OWN.load(Relaxed) && any_loaded(may_have_own) {
        HAS_OWN.store(true, Relaxed);
    }
    HAS_OWN.load(Relaxed)
}

fn may_have_own(object: &Loaded<'_>) -> bool {
    let of_kind = |kind| object.parts.iter().filter(move |part| part.p_type == kind);
    let own = may_be_own as fn() -> bool as usize;
    let has = |part: &libc::Elf64_Phdr| object.range(part).contains(&own);
    let is_runtime = (RUNTIMES.iter()).any(|start| object.file().starts_with(start));
    let Some(dynamic) = of_kind(libc::PT_DYNAMIC).next() else {
        return false;
    };
    if is_runtime || of_kind(libc::PT_LOAD).any(has) {
        return false;
    }
    // SAFETY: the object's dynamic section, and its parts that may be read and not written, of
    // which the file has these bytes.
    unsafe {
        let tables = Object::of(object.bias, at(object.range(dynamic).start));
        let read_only = of_kind(libc::PT_LOAD)
            .filter(|part| part.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R);
        let mut bytes = read_only.map(|part| {
            slice::from_raw_parts(at::<u8>(object.range(part).start), part.p_filesz as usize)
        });
        OPERATORS.iter().any(|name| tables.find(name).is_some())
            || hides(tables.names())
            || bytes.any(has_runtime)
    }
}

/// A loaded object. The loader does not unload it during the look.
pub struct Loaded<'a> {
    /// How far its addresses are from those in its file.
    pub bias: usize,
    /// Its parts.
    pub parts: &'a [libc::Elf64_Phdr],
    /// The path of its file; empty for the program.
    pub path: &'a CStr,
}

impl Loaded<'_> {
    /// The file's name without its directory.
    pub fn file(&self) -> &[u8] {
        let path = self.path.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// The addresses of a part.
    pub fn range(&self, part: &libc::Elf64_Phdr) -> Range<usize> {
        let start = self.bias.wrapping_add(part.p_vaddr as usize);
        start..start.wrapping_add(part.p_memsz as usize)
    }
}

/// Whether any loaded object is `wanted`. The objects after that one are not looked at.
pub fn any_loaded<F: FnMut(&Loaded<'_>) -> bool>(mut wanted: F) -> bool {
    // SAFETY: the callback gets the closure that it is made for, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at::<F>), (&raw mut wanted).cast()) != 0 }
}

/// # Safety
/// - As the callback of `dl_iterate_phdr(3)`; `wanted` is an `F`.
unsafe extern "C" fn look_at<F: FnMut(&Loaded<'_>) -> bool>(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise; the name of an object is null or a C string.
    let (wanted, object) = unsafe {
        let (info, wanted) = (&*info, &mut *wanted.cast::<F>());
        let parts = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let path = match info.dlpi_name.is_null() {
            true => c"",
            false => CStr::from_ptr(info.dlpi_name),
        };
        let bias = info.dlpi_addr as usize;
        (wanted, Loaded { bias, parts, path })
    };
    c_int::from(wanted(&object))
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
    fn functions_are_found_where_dlsym_finds_them() {
        for name in [c"getpid", c"mmap", c"fork", c"sigaction", c"no_such_name"] {
            // SAFETY: a C string; no test opens or closes a library.
            let [found, expected] = unsafe {
                let expected = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                [find(None, name), Ok(NonNull::new(expected))]
            };
            match cfg!(target_feature = "crt-static") {
                true => assert_eq!(found, Err(NoList)),
                false => assert_eq!(found, expected, "{name:?}"),
            }
        }
        // SAFETY: as above.
        assert_eq!(unsafe { find(Some(null()), c"getpid") }, Err(NoList));
    }

    #[test]
    fn the_older_table_finds_the_same() {
        // SAFETY: no test opens or closes a library.
        let tables = unsafe { objects() }.map(|object| unsafe {
            // SAFETY: a loaded object.
            Object::of(object.bias, object.dynamic)
        });
        for object in tables.filter(|object| !object.hash.is_null() && !object.gnu_hash.is_null()) {
            for name in [c"getpid", c"dl_iterate_phdr", c"clock_gettime"] {
                // SAFETY: both are tables of the object.
                let [old, new] = unsafe {
                    [
                        object.find_by_hash(object.hash, name.to_bytes()),
                        object.find_by_gnu_hash(object.gnu_hash, name.to_bytes()),
                    ]
                };
                assert_eq!(old, new, "{name:?}");
            }
        }
    }

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
