//! From addresses to functions and lines: symbols of ELF files, DWARF if present, inlined
//! functions.

use super::files::Origin;
use super::jit::Jit;
use super::maps::{Mapped, Maps};
use super::model::{Frame, Mapping, base};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The symbols of one process.
pub struct Symbols {
    maps: Maps,
    /// The file of each mapping, in the order of `maps`.
    files: Vec<Option<PathBuf>>,
    jit: Jit,
    symbolizer: Symbolizer,
    known: HashMap<u64, Vec<Arc<Frame>>>,
}

/// Longest name in characters; longer ones are cut.
const LONGEST_NAME: usize = 4096;

impl Symbols {
    /// Finds the files of a process's mappings, which have the format of `/proc/PID/maps`.
    pub fn new(maps: &str, origin: Origin) -> Self {
        let maps = Maps::parse(maps);
        Self {
            files: maps
                .all()
                .iter()
                .map(|mapped| origin.file(mapped))
                .collect(),
            jit: Jit::of(origin.pid),
            symbolizer: Symbolizer::builder().enable_auto_reload(false).build(),
            known: HashMap::new(),
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
        self.maps
            .all()
            .first()
            .map(|mapped| mapped.mapping.path.as_str())
    }

    fn look_up(&self, address: u64) -> Vec<Frame> {
        // A call that does not return may be the last instruction of its function.
        let call = address.saturating_sub(1);
        let Some((index, mapped)) = self.maps.of(call) else {
            return vec![self.outside(address, call)];
        };
        // The process chose the offset of its mapping.
        let offset = (call - mapped.mapping.start).saturating_add(mapped.mapping.offset);
        let place = Place {
            module: &mapped.mapping.path,
            address,
        };
        match self.symbol(index, offset) {
            Some(symbol) => place.frames(&symbol),
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

/// The source location of a call.
struct Place<'a> {
    module: &'a str,
    address: u64,
}

impl Place<'_> {
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
            function: clean(function),
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
        self.frame(&format!("{}+{offset:#x}", base(self.module)), None)
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
