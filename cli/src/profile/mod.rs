//! Heap profiles: how much each stack of calls allocates, read from a process's region or from a
//! file.
//!
//! | file | contents |
//! |---|---|
//! | `model` | a profile as plain data |
//! | `region` | parses the region of a process, and takes the samples of a limited time from it |
//! | `symbols` | from addresses to functions, files and lines |
//! | `names` | short names of functions |
//! | `frames` | removes the allocator's own frames, and folds runs of runtime frames |
//! | `pprof/` | writes and reads pprof's format |
//! | `calls` | merges stacks into a tree, and sums up functions and places |
//! | `summary`, `places`, `listing`, `exports` | the profile as text, and for other tools |
//! | `gather` | the profile of a running process |

mod calls;
mod exports;
mod frames;
mod gather;
mod listing;
mod model;
mod names;
mod places;
pub mod pprof;
mod region;
mod summary;
mod symbols;
#[cfg(test)]
mod tests;

pub use exports::{collapsed, flamegraph, json};
pub use frames::{is_start, own, without as without_plumbing};
pub use gather::{Waiter, Wish, gather};
pub use listing::{check_pattern, listing};
#[cfg(test)]
pub use model::Switched;
pub use model::{Extent, Figures, Frame, Profile, Stack, Value, base};
pub use places::{leaks, tree};
pub use region::{Base, now_ms};
pub use summary::{
    bounded, described, gap, grouped, no_sample, percent, session_words, source, variance,
};
#[cfg(fuzzing)]
pub use symbols::Jit;
pub use symbols::{Origin, Symbols, clean};

use crate::failure::Failure;
use crate::program::elf::Elf;
use region::{Region, Sampled};
use std::sync::Arc;

/// Name of the places for which the region had no room.
const OTHER_PLACES: &str = "(places for which the profile had no room)";
/// Name of all places of a program that cannot be unwound.
const NO_TABLE: &str =
    "(no callers: the program has no table for them; link with -Wl,--eh-frame-hdr)";

impl Profile {
    /// The symbolised profile in the region of a process. The process may have ended, but its files
    /// should still exist.
    ///
    /// # Errors
    /// The bytes are no region, or one of another version, truncated or damaged.
    pub fn from_region(bytes: &[u8]) -> Result<Self, Failure> {
        let region = Region::parse(bytes)?;
        Ok(Self::named(&region, region.pid))
    }

    /// Like [`Profile::from_region`], for a process with another PID here than in its own
    /// namespace.
    ///
    /// # Errors
    /// Same as [`Profile::from_region`].
    pub fn from_region_of(bytes: &[u8], pid: u32) -> Result<Self, Failure> {
        Ok(Self::named(&Region::parse(bytes)?, pid))
    }

    /// The profile in a file, which holds pprof's format or the bytes of a region.
    ///
    /// # Errors
    /// The file is neither, or is damaged.
    pub fn from_file(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.starts_with(&neap_shared::sites::MAGIC.to_le_bytes()) {
            Self::from_region(bytes)
        } else {
            pprof::decode(bytes)
        }
    }

    /// The profile under the process's usual name. Without a known name it keeps the program's file
    /// name, which may be the target of a link.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        if !name.is_empty() {
            self.program = clean(name);
        }
        self
    }

    fn named(region: &Region, pid: u32) -> Self {
        let origin = Origin {
            pid,
            began_ms: region.head.began_ms,
        };
        let mut symbols = Symbols::new(&region.maps, &region.functions, origin);
        let other = match symbols.file().map(Elf::read) {
            Some(Ok(Some(elf))) if !elf.has_unwind_table => NO_TABLE,
            _ => OTHER_PLACES,
        };
        let sites = region.sites.iter();
        Self {
            pid,
            program: symbols::clean(base(symbols.program().unwrap_or_default())),
            rate: region.head.rate,
            began_ms: region.head.began_ms,
            ended_ms: ended_ms(region),
            extent: Extent::Whole,
            switched: None,
            stacks: sites.map(|site| stack(site, &mut symbols, other)).collect(),
            mappings: symbols.mappings(),
        }
    }
}

fn stack(site: &Sampled, symbols: &mut Symbols, other: &str) -> Stack {
    let addresses = site.addresses.iter();
    let frames: Vec<_> = addresses
        .flat_map(|&address| symbols.frames(address))
        .collect();
    let nameless = || Frame {
        function: other.to_owned(),
        ..Frame::default()
    };
    Stack {
        frames: if site.addresses.is_empty() {
            vec![Arc::new(nameless())]
        } else {
            frames::without(frames)
        },
        figures: site.figures,
    }
}

/// The end of sampling: when it was switched off, or now if it is still on.
fn ended_ms(region: &Region) -> u64 {
    match region.head.rate {
        0 => region.head.changed_ms,
        _ => region::now_ms(),
    }
}
