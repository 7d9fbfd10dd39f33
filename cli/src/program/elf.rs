//! The headers of a program or library.

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol, ReadCache, ReadRef};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
}

/// A section of every file that Neap is linked into. Neither `strip` nor a linker that removes
/// unused sections takes it out.
const SECTION: &[u8] = b"neap_fork";

impl Elf {
    /// The headers of `file`; `None` if it is not ELF.
    pub fn read(file: &Path) -> io::Result<Option<Self>> {
        let data = ReadCache::new(File::open(file)?);
        let read = match FileKind::parse(&data) {
            Ok(FileKind::Elf32) => headers::<FileHeader32<Endianness>, _>(&data),
            Ok(FileKind::Elf64) => headers::<FileHeader64<Endianness>, _>(&data),
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
    let data = ReadCache::new(File::open(library)?);
    let file = object::File::parse(&data).map_err(damaged)?;
    let mut symbols = file.dynamic_symbols();
    Ok(symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok(name)))
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
    let (mut loader, mut needs_libraries) = (None, false);
    for segment in header.program_headers(order, data)? {
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
