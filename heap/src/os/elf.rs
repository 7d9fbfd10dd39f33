//! Functions of loaded objects, read from the objects' own tables.
//!
//! `dlsym` may allocate, and leaves its error to `dlerror` if there is no such name. A search here
//! runs no code but this, takes no lock and allocates nothing. It passes over functions that the
//! loader would ask for their address (`STT_GNU_IFUNC`).
//!
//! The list of objects must not change meanwhile, so a process searches it at its start, before it
//! has a second thread.

use super::errno::keep_errno;
use core::ffi::{CStr, c_char, c_void};
use core::iter::successors;
use core::ptr::{NonNull, null, with_exposed_provenance as at};
use core::slice;

/// An entry of a dynamic section (`Elf64_Dyn`): its kind, and a number or an address.
pub(super) type Entry = [usize; 2];

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
unsafe fn entries(mut section: *const Entry) -> impl Iterator<Item = Entry> {
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
}
