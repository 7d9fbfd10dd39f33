//! From addresses to functions and lines: the mappings that a region lists, a readable path to each
//! mapping's file, the symbols of ELF files with DWARF and inlined functions if present, and the
//! names of code without a file, from `/tmp/perf-PID.map`.
//!
//! Runtimes with a JIT compiler write that file (Node with `--perf-basic-prof`, Java with an agent,
//! CPython from 3.12 with `-X perf`).

use super::model::{Frame, Mapping, base};
use super::names::short;
use crate::attach::Process;
use crate::files;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use indexmap::IndexSet;
use lzma_rust2::XzReader;
use neap_shared::areas::range;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The symbols of one process.
pub struct Symbols {
    maps: Maps,
    /// The file of each mapping, in the order of `maps`.
    files: Vec<Option<PathBuf>>,
    jit: Jit,
    /// What was left in a stripped file, once it was needed.
    left: HashMap<PathBuf, Option<Left>>,
    symbolizer: Symbolizer,
    known: HashMap<u64, Vec<Arc<Frame>>>,
}

/// Longest name in characters; longer ones are cut.
const LONGEST_NAME: usize = 4096;

impl Symbols {
    /// Finds the files of a process's mappings, which have the format of `/proc/PID/maps`. The
    /// `functions` are at no address of them.
    pub fn new(maps: &str, functions: &[Arc<Frame>], origin: Origin) -> Self {
        let function = |frame: &Arc<Frame>| (frame.address, vec![Arc::clone(frame)]);
        let maps = Maps::parse(maps);
        let files: Vec<_> = maps
            .all()
            .iter()
            .map(|mapped| origin.file(mapped))
            .collect();
        let builder = Symbolizer::builder().enable_auto_reload(false);
        Self {
            jit: Jit::of(origin.pid),
            symbolizer: builder.set_debug_dirs(Some(debug_dirs(&files))).build(),
            files,
            left: HashMap::new(),
            known: functions.iter().map(function).collect(),
            maps,
        }
    }

    /// The frames of the call that returns to `address`, innermost first: the function and those
    /// inlined into it.
    pub fn frames(&mut self, address: u64) -> Vec<Arc<Frame>> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let frames: Vec<_> = self.look_up(address).into_iter().map(Arc::new).collect();
        self.known.insert(address, frames.clone());
        frames
    }

    /// The mappings, with build IDs for files that can be read.
    pub fn mappings(&self) -> Vec<Mapping> {
        let with_id = |(mapped, file): (&Mapped, &Option<PathBuf>)| Mapping {
            build_id: file.as_ref().map(build_id).unwrap_or_default(),
            ..mapped.mapping.clone()
        };
        let files = self.files.iter();
        self.maps.all().iter().zip(files).map(with_id).collect()
    }

    /// The path of the program, which the loader maps below its libraries.
    pub fn program(&self) -> Option<&str> {
        Some(&self.maps.all().first()?.mapping.path)
    }

    /// The program's own file.
    pub fn file(&self) -> Option<&Path> {
        self.files.first()?.as_deref()
    }

    fn look_up(&mut self, address: u64) -> Vec<Frame> {
        // A call that does not return may be the last instruction of its function.
        let call = address.saturating_sub(1);
        let Some((index, mapped)) = self.maps.of(call) else {
            return vec![self.outside(address, call)];
        };
        // The process chose the offset of its mapping.
        let offset = (call - mapped.mapping.start).saturating_add(mapped.mapping.offset);
        let place = Call {
            module: &mapped.mapping.path,
            address,
        };
        if let Some(symbol) = self.symbol(index, offset) {
            return place.frames(&symbol);
        }
        let left = self.files[index].as_ref().map(|file| {
            let left = self.left.entry(file.clone());
            &*left.or_insert_with(|| Left::of(file))
        });
        let left = left.and_then(Option::as_ref);
        match left.and_then(|left| left.name(offset)) {
            Some(name) => vec![place.frame(name, None)],
            None => vec![place.nameless(offset)],
        }
    }

    /// A frame outside all files: code compiled at run time, or in a mapping that did not exist
    /// when the mappings were recorded.
    fn outside(&self, address: u64, call: u64) -> Frame {
        let name = self.jit.name(call).map(clean);
        Frame {
            function: name.unwrap_or_else(|| format!("{address:#x}")),
            address,
            ..Frame::default()
        }
    }

    fn symbol(&self, index: usize, offset: u64) -> Option<Sym<'_>> {
        let file = self.files[index].as_ref()?;
        let full = self.symbol_in(Elf::new(file), offset);
        full.or_else(|| {
            // If the debug information is damaged, use the symbol table.
            let mut plain = Elf::new(file);
            plain.debug_syms = false;
            self.symbol_in(plain, offset)
        })
    }

    fn symbol_in(&self, elf: Elf, offset: u64) -> Option<Sym<'_>> {
        self.symbolizer
            .symbolize_single(&Source::Elf(elf), Input::FileOffset(offset))
            .ok()?
            .into_sym()
    }
}

/// Where a file's debugging information may be, apart from its own directory: as gdb looks.
fn debug_dirs(files: &[Option<PathBuf>]) -> IndexSet<PathBuf> {
    let global = ["/usr/lib/debug", "/lib/debug"].map(PathBuf::from);
    let beside = files
        .iter()
        .flatten()
        .map(|file| file.with_file_name(".debug"));
    global.into_iter().chain(beside).collect()
}

/// The source location of a call.
struct Call<'a> {
    module: &'a str,
    address: u64,
}

impl Call<'_> {
    fn frames(&self, symbol: &Sym<'_>) -> Vec<Frame> {
        let inlined = symbol.inlined.iter().rev();
        let mut frames: Vec<Frame> = inlined
            .map(|function| Frame {
                inlined: true,
                ..self.frame(&function.name, function.code_info.as_ref())
            })
            .collect();
        frames.push(self.frame(&symbol.name, symbol.code_info.as_deref()));
        frames
    }

    fn frame(&self, function: &str, source: Option<&CodeInfo<'_>>) -> Frame {
        Frame {
            function: short(&clean(function)),
            file: source.map_or_else(String::new, |source| {
                clean(&source.to_path().to_string_lossy())
            }),
            line: source.and_then(|source| source.line).unwrap_or(0),
            module: clean(self.module),
            address: self.address,
            inlined: false,
        }
    }

    fn nameless(&self, offset: u64) -> Frame {
        let function = clean(&format!("{}+{offset:#x}", base(self.module)));
        Frame {
            function,
            ..self.frame("", None)
        }
    }
}

/// A name of bounded length without control characters.
pub fn clean(name: &str) -> String {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    name.replace(char::is_control, "\u{fffd}")
}

fn build_id(file: &PathBuf) -> String {
    let id = blazesym::helper::read_elf_build_id(file).ok().flatten();
    let bytes = id.iter().flat_map(|id| id.iter());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Mappings, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    mapped: Vec<Mapped>,
}

/// One mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The profile's view of it.
    pub mapping: Mapping,
    /// The file's inode number.
    pub inode: u64,
    /// The file was deleted, or another file has its name now.
    pub deleted: bool,
}

/// The kernel appends this to the name of a deleted file.
const DELETED: &str = " (deleted)";

impl Maps {
    /// The file mappings; malformed lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut mapped: Vec<Mapped> = text.lines().filter_map(line).collect();
        mapped.sort_by_key(|mapped| mapped.mapping.start);
        Self { mapped }
    }

    /// The mapping that contains an address.
    pub fn of(&self, address: u64) -> Option<(usize, &Mapped)> {
        let after = self
            .mapped
            .partition_point(|mapped| mapped.mapping.start <= address);
        let index = after.checked_sub(1)?;
        let mapped = &self.mapped[index];
        (address < mapped.mapping.end).then_some((index, mapped))
    }

    /// All mappings, sorted by address.
    pub fn all(&self) -> &[Mapped] {
        &self.mapped
    }
}

/// Parses `start-end rights offset device inode   path`; `None` unless it maps a file.
fn line(line: &str) -> Option<Mapped> {
    let Range { start, end } = range(line)?;
    let mut words = line.splitn(6, ' ').skip(2);
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let _device = words.next()?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    let deleted = path.ends_with(DELETED);
    (path.starts_with('/') && start < end).then(|| Mapped {
        mapping: Mapping {
            start,
            end,
            offset,
            path: path.strip_suffix(DELETED).unwrap_or(path).to_owned(),
            build_id: String::new(),
        },
        inode,
        deleted,
    })
}

/// The process whose files are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its PID. The process may have ended, and another process may have reused the PID.
    pub pid: u32,
    /// When its mappings were recorded, in ms since 1970.
    pub began_ms: u64,
}

impl Origin {
    /// A path to exactly the mapped file, if there is one.
    pub fn file(self, mapped: &Mapped) -> Option<PathBuf> {
        let same = |path: &PathBuf| regular(path).is_some_and(|found| found.ino() == mapped.inode);
        let here = PathBuf::from(&mapped.mapping.path);
        let there = self.there(mapped);
        // For users who may follow it, the link leads even to deleted files.
        let (start, end) = (mapped.mapping.start, mapped.mapping.end);
        let link = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid));
        let found = [&here, &there, &link].into_iter().find(|path| same(path));
        match found {
            Some(path) => Some(path.clone()),
            None => self.unchanged(mapped, here, there),
        }
    }

    /// The path from the process's point of view.
    fn there(self, mapped: &Mapped) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.pid, mapped.mapping.path))
    }

    /// Some file systems report different inode numbers in `maps` and in `stat`. A file that had
    /// this name when the mappings were recorded, and has not changed since, is the mapped one.
    fn unchanged(self, mapped: &Mapped, here: PathBuf, there: PathBuf) -> Option<PathBuf> {
        let alive = Path::new(&format!("/proc/{}/root", self.pid)).exists();
        let path = if alive { there } else { here };
        let changed_ms = |found: Metadata| found.ctime().saturating_mul(1000);
        let old = regular(&path)
            .and_then(|found| u64::try_from(changed_ms(found)).ok())
            .is_some_and(|changed| changed < self.began_ms);
        (old && !mapped.deleted).then_some(path)
    }
}

/// The process chose the names in its region, so a device or a pipe must not be opened.
fn regular(path: &Path) -> Option<Metadata> {
    fs::metadata(path).ok().filter(Metadata::is_file)
}

/// The symbols that distributions like Fedora leave in a stripped file, compressed: those of
/// functions that it does not export (gdb, "Debugging information in a special section").
#[derive(Debug)]
struct Left {
    symbols: Jit,
    /// Of each loaded piece, its offsets in the file and its address.
    segments: Vec<(Range<u64>, u64)>,
}

impl Left {
    fn of(file: &Path) -> Option<Self> {
        let bytes = files::foreign(file, MOST)?;
        let elf = object::File::parse(&*bytes).ok()?;
        let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
        let (mut plain, limit_kb) = (Vec::new(), (MOST >> 10) as u32);
        let unpacked = XzReader::new_mem_limit(packed, false, limit_kb).take(MOST);
        BufReader::new(unpacked).read_to_end(&mut plain).ok()?;
        let named = object::File::parse(&*plain).ok()?;
        let symbols = named
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text);
        let piece = |symbol: object::Symbol<'_, '_>| {
            let name = symbol.name().ok()?.to_owned();
            Some(Piece {
                start: symbol.address(),
                bytes: symbol.size(),
                name,
            })
        };
        // Many symbols may have the same long name.
        let mut room = MOST as usize;
        let pieces = symbols.filter_map(piece).take_while(move |piece| {
            room = room.saturating_sub(piece.name.len());
            room > 0
        });
        let loaded = |segment: object::Segment<'_, '_>| {
            let (start, bytes) = segment.file_range();
            (start..start.saturating_add(bytes), segment.address())
        };
        Some(Self {
            symbols: Jit::sorted(pieces.take(MOST_PIECES).collect()),
            segments: elf.segments().map(loaded).collect(),
        })
    }

    /// The function at an offset in the file.
    fn name(&self, offset: u64) -> Option<&str> {
        let mut segments = self.segments.iter();
        let (file, address) = segments.find(|(file, _)| file.contains(&offset))?;
        self.symbols.name(address.wrapping_add(offset - file.start))
    }
}

/// Pieces of code, sorted by address.
#[derive(Debug, Default)]
pub struct Jit {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    bytes: u64,
    name: String,
}

/// Most bytes of a map that are read.
const MOST: u64 = 64 << 20;
/// Most pieces that are kept. The shortest lines would take eight times their length.
const MOST_PIECES: usize = 1 << 20;

impl Jit {
    /// The map of a process; empty if there is none.
    pub fn of(pid: u32) -> Self {
        // In a PID namespace, the process names the file by its number there, the last one.
        let numbers = Process::open(pid.cast_signed()).map(|process| process.numbers());
        let own = numbers
            .ok()
            .and_then(|numbers| numbers.into_iter().rev().nth(1));
        let own = own.unwrap_or(pid.into());
        let seen = [
            format!("/proc/{pid}/root/tmp/perf-{own}.map"),
            format!("/tmp/perf-{pid}.map"),
        ];
        let text = seen.iter().find_map(|path| text(path));
        text.map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// The pieces that the lines name; malformed lines are skipped.
    pub fn parse(text: &str) -> Self {
        Self::sorted(text.lines().filter_map(piece).take(MOST_PIECES).collect())
    }

    fn sorted(mut pieces: Vec<Piece>) -> Self {
        pieces.sort_by_key(|piece| piece.start);
        Self { pieces }
    }

    /// The name of the code at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.pieces.partition_point(|piece| piece.start <= address);
        let piece = &self.pieces[after.checked_sub(1)?];
        (address - piece.start < piece.bytes).then_some(&piece.name)
    }
}

fn text(path: &str) -> Option<String> {
    let bytes = files::foreign(Path::new(path), MOST)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses `start bytes name`; the numbers are hexadecimal.
fn piece(line: &str) -> Option<Piece> {
    let (start, rest) = line.split_once(' ')?;
    let (bytes, name) = rest.split_once(' ')?;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    Some(Piece {
        start: number(start)?,
        bytes: number(bytes)?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::Mapping;

    const TEXT: &str = "\
7f0000002000-7f0000003000 r-xp 00002000 08:01 77                         /usr/lib/a b.so (deleted)
00400000-00401000 r-xp 00001000 08:01 12                                 /bin/program
7f0000004000-7f0000005000 r-xp 00000000 00:00 0
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
zzz
9-8 r-xp 00000000 08:01 12 /backwards
";

    #[test]
    fn files_are_found_by_address() {
        let maps = Maps::parse(TEXT);
        assert_eq!(maps.all().len(), 2);
        let (index, mapped) = maps.of(0x7f00_0000_2fff).unwrap();
        assert_eq!((index, mapped.inode, mapped.deleted), (1, 77, true));
        assert_eq!(mapped.mapping.path, "/usr/lib/a b.so");
        assert_eq!(maps.of(0x40_0000).unwrap().1.mapping.offset, 0x1000);
        assert!(maps.of(0x40_1000).is_none());
        assert!(maps.of(0).is_none());
    }

    fn mapped(path: &Path, inode: u64, deleted: bool) -> Mapped {
        Mapped {
            mapping: Mapping {
                start: 0x1000,
                end: 0x2000,
                path: path.to_str().unwrap().to_owned(),
                ..Mapping::default()
            },
            inode,
            deleted,
        }
    }

    #[test]
    fn only_the_same_file_is_taken() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.path().metadata().unwrap().ino();
        let pid = std::process::id();
        let early = Origin { pid, began_ms: 1 };
        let late = Origin {
            pid,
            began_ms: u64::MAX,
        };
        let found =
            |origin: Origin, inode, deleted| origin.file(&mapped(file.path(), inode, deleted));
        assert_eq!(found(early, inode, false).as_deref(), Some(file.path()));
        assert_eq!(found(early, inode + 1, false), None);
        assert_eq!(found(late, inode + 1, true), None);
        let root = PathBuf::from(format!("/proc/{pid}/root{}", file.path().display()));
        assert_eq!(found(late, inode + 1, false), Some(root));
    }

    #[test]
    fn devices_are_not_opened() {
        let null = Path::new("/dev/null");
        let inode = null.metadata().unwrap().ino();
        let origin = Origin {
            pid: std::process::id(),
            began_ms: u64::MAX,
        };
        assert_eq!(origin.file(&mapped(null, inode, false)), None);
    }

    #[test]
    fn names_are_found_by_address() {
        let jit = Jit::parse("2000 10 late *x.js:1\nnonsense\n1000 20 early\n1000 zz broken\n");
        assert_eq!(jit.name(0x1000), Some("early"));
        assert_eq!(jit.name(0x101f), Some("early"));
        assert_eq!(jit.name(0x1020), None);
        assert_eq!(jit.name(0x2001), Some("late *x.js:1"));
        assert_eq!(jit.name(0xfff), None);
    }

    #[test]
    fn a_map_of_short_lines_is_cut() {
        let jit = Jit::parse(&"1 1 a\n".repeat(MOST_PIECES + 1));
        assert_eq!(jit.pieces.len(), MOST_PIECES);
    }

    #[test]
    fn a_process_without_a_map_has_no_names() {
        assert_eq!(Jit::of(u32::MAX).name(0x1000), None);
    }
}
