//! The headers of a program or library, and the sanitizer that a program is built with.

use neap_shared::sanitizers::RUNTIMES;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol, ReadCache, ReadRef};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The fields that determine which loader loads a file and what it can load with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// 32 or 64.
    pub bits: u8,
    /// `e_machine`.
    pub machine: u16,
    /// Byte order.
    pub order: Endianness,
    /// The dynamic loader that the file requests (`PT_INTERP`).
    pub loader: Option<PathBuf>,
    /// Whether it names libraries that the loader must load with it (`DT_NEEDED`).
    pub needs_libraries: bool,
    /// Whether Neap is linked into it.
    pub has_neap: bool,
    /// Whether code in the process finds the tables for unwinding (`PT_GNU_EH_FRAME`).
    pub has_unwind_table: bool,
}

/// A section of every file that Neap is linked into. Neither `strip` nor a linker that removes
/// unused sections takes it out.
const SECTION: &[u8] = b"neap_fork";

/// Most bytes that are read of a file, pieces that are read twice counted twice. The headers of a
/// malformed one can name the whole file thousands of times.
const MOST_BYTES: u64 = 256 << 20;

/// A file of which only so much is read.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    file: &'a ReadCache<File>,
    left: &'a Cell<u64>,
}

impl Bounded<'_> {
    fn take(self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(bytes).ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.file.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.file.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let found = self.file.read_bytes_at_until(range, delimiter)?;
        self.take(found.len() as u64)?;
        Ok(found)
    }
}

impl Elf {
    /// The headers of `file`; `None` if it is not ELF.
    pub fn read(file: &Path) -> io::Result<Option<Self>> {
        let (cache, left) = (ReadCache::new(File::open(file)?), Cell::new(MOST_BYTES));
        let data = Bounded {
            file: &cache,
            left: &left,
        };
        let read = match FileKind::parse(data) {
            Ok(FileKind::Elf32) => headers::<FileHeader32<Endianness>, _>(data),
            Ok(FileKind::Elf64) => headers::<FileHeader64<Endianness>, _>(data),
            _ => return Ok(None),
        };
        read.map(Some).map_err(damaged)
    }

    /// Whether one process can load both.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.bits, self.machine, self.order) == (other.bits, other.machine, other.order)
    }

    /// Whether the loader can load `library`. One that needs glibc cannot go into a process of musl
    /// or Android; one that needs no library can go into a process of musl.
    pub fn can_preload(&self, library: &Self) -> bool {
        let name = self
            .loader
            .as_ref()
            .and_then(|loader| loader.file_name()?.to_str());
        !name.is_some_and(|name| {
            name.starts_with("linker") || library.needs_libraries && name.starts_with("ld-musl")
        })
    }
}

/// Whether a shared library exports a symbol of this name.
pub fn defines(library: &Path, name: &str) -> io::Result<bool> {
    defined(library, &[name]).map(|found| found.is_some())
}

/// The first of `names`, as its index, that a program or shared library exports.
pub fn defined(file: &Path, names: &[&str]) -> io::Result<Option<usize>> {
    let (cache, left) = (ReadCache::new(File::open(file)?), Cell::new(MOST_BYTES));
    let data = Bounded {
        file: &cache,
        left: &left,
    };
    let file = object::File::parse(data).map_err(damaged)?;
    let definitions = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let of = |symbol: &str| names.iter().position(|name| *name == symbol);
    let found = definitions.filter_map(|symbol| of(symbol.name().ok()?));
    Ok(found.min())
}

fn damaged(error: object::Error) -> io::Error {
    io::Error::other(format!("damaged ELF headers: {error}"))
}

fn headers<'data, H, R>(data: R) -> object::Result<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let order = header.endian()?;
    let (mut loader, mut needs_libraries, mut has_unwind_table) = (None, false, false);
    for segment in header.program_headers(order, data)? {
        has_unwind_table |= segment.p_type(order) == elf::PT_GNU_EH_FRAME;
        if let Some(name) = segment.interpreter(order, data)? {
            loader = Some(PathBuf::from(OsStr::from_bytes(name)));
        }
        if let Ok(Some(entries)) = segment.dynamic(order, data) {
            let mut tags = entries.iter().map(|entry| entry.d_tag(order));
            needs_libraries |= tags.any(|tag| tag == elf::DT_NEEDED);
        }
    }
    // A file without section headers, or with damaged ones, is as one without the section.
    let sections = header.sections(order, data);
    let has_neap =
        sections.is_ok_and(|sections| sections.section_by_name(order, SECTION).is_some());
    let bits = if header.is_class_64() { 64 } else { 32 };
    Ok(Elf {
        bits,
        machine: header.e_machine(order).0,
        order,
        loader,
        needs_libraries,
        has_neap,
        has_unwind_table,
    })
}

impl fmt::Display for Elf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match machine_name(self.machine) {
            Some(name) => write!(out, "{name} ({} bit)", self.bits),
            None => write!(out, "machine type {} ({} bit)", self.machine, self.bits),
        }
    }
}

fn machine_name(machine: u16) -> Option<&'static str> {
    Some(match elf::Machine(machine) {
        elf::EM_386 => "x86",
        elf::EM_X86_64 => "x86-64",
        elf::EM_ARM => "arm",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_RISCV => "risc-v",
        elf::EM_PPC64 => "powerpc64",
        elf::EM_S390 => "s390",
        elf::EM_LOONGARCH => "loongarch",
        _ => return None,
    })
}

/// The sanitizer whose runtime is in one of `files`: a program and the libraries that are loaded
/// with it. A file that cannot be read has none.
pub fn sanitizer_among<'a>(files: impl Iterator<Item = &'a Path>) -> Option<&'static str> {
    let names = RUNTIMES.map(|(init, _)| init);
    let runtimes = files.filter_map(|file| defined(file, &names).ok().flatten());
    runtimes.min().map(|first| RUNTIMES[first].1)
}

/// Why a program with the sanitizer `name` does not run under Neap. With musl's loader, the library
/// cannot leave the process.
pub fn sanitizer_refusal(name: &str, loader: &Path) -> String {
    let file = loader.file_name().unwrap_or_default().as_encoded_bytes();
    let outcome = if file.starts_with(b"ld-musl") {
        "do not combine them"
    } else {
        "it runs without Neap"
    };
    format!("built with {name}, which needs a malloc of its own: {outcome}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const HEADER: usize = 64;
    const SEGMENT: usize = 56;

    /// A file of `length` bytes whose `count` program headers each name most of it as the loader.
    fn greedy(count: u16, length: usize) -> Vec<u8> {
        let mut file = vec![0; length];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16..20].copy_from_slice(&[3, 0, 62, 0]);
        file[20] = 1;
        file[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        for (at, word) in [(52, HEADER as u16), (54, SEGMENT as u16), (56, count)] {
            file[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        for index in 0..count {
            let segment = &mut file[HEADER + usize::from(index) * SEGMENT..][..SEGMENT];
            segment[0] = 3; // PT_INTERP
            let bytes = length as u64 - u64::from(index);
            segment[32..40].copy_from_slice(&bytes.to_le_bytes());
        }
        file
    }

    fn read(bytes: &[u8]) -> io::Result<Option<Elf>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Elf::read(file.path())
    }

    #[test]
    fn headers_that_name_the_file_again_and_again_are_damaged() {
        let sound = read(&greedy(2, 4096)).unwrap().unwrap();
        assert_eq!((sound.bits, sound.machine), (64, 62));
        let why = read(&greedy(1000, 1 << 20)).unwrap_err().to_string();
        assert!(why.contains("damaged ELF headers"), "{why}");
    }
}
