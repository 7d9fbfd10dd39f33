//! Heap profiles: how much each stack of calls allocates, read from a process's region or from a
//! file.
//!
//! | file | contents |
//! |---|---|
//! | `model` | a profile as plain data |
//! | `region` | parses the region of a process |
//! | `maps`, `files`, `jit`, `symbols` | from addresses to functions, files and lines |
//! | `plumbing` | removes the allocator's own frames |
//! | `fold` | folds runs of runtime frames |
//! | `pprof/` | writes and reads pprof's format |
//! | `collapsed` | one line per stack, and the flame graph |
//! | `calls` | merges stacks into a tree, and sums up functions and places |
//! | `summary`, `tree`, `leaks`, `listing`, `json` | the profile as text |
//! | `uncertainty` | how far sampled figures may be off |
//! | `gather` | the profile of a running process |
//! | `base` | what was allocated since an earlier profile |
//! | `session` | the samples of a limited time, of a process that samples for longer |

mod base;
mod calls;
mod collapsed;
mod files;
mod fold;
mod gather;
mod jit;
mod json;
mod leaks;
mod listing;
mod maps;
mod model;
mod plumbing;
pub mod pprof;
mod region;
mod session;
mod summary;
mod symbols;
#[cfg(test)]
mod tests;
mod tree;
mod uncertainty;

pub use base::Base;
pub use collapsed::{collapsed, flamegraph};
pub use files::Origin;
pub use gather::{Waiter, Wish, gather};
#[cfg(fuzzing)]
pub use jit::Jit;
pub use json::json;
pub use leaks::leaks;
pub use listing::{check_pattern, listing};
#[cfg(test)]
pub use model::Switched;
pub use model::{Extent, Figures, Frame, Profile, Stack, Value, base};
pub use plumbing::{is_runtime, is_start, without as without_plumbing};
pub use session::now_ms;
#[cfg(fuzzing)]
pub use session::subtract;
pub use summary::{gap, grouped, session_words, source};
pub use symbols::{Symbols, clean};
pub use tree::{described, tree};
pub use uncertainty::no_sample;

use crate::failure::Failure;
use region::{Region, Sampled};
use std::sync::Arc;

/// Name of the places for which the region had no room.
const OTHER_PLACES: &str = "(places for which the profile had no room)";

impl Profile {
    /// The symbolised profile in the region of a process. The process may have ended, but its files
    /// should still exist.
    ///
    /// # Errors
    /// The bytes are no region, or one of another version, truncated or damaged.
    pub fn from_region(bytes: &[u8]) -> Result<Self, Failure> {
        let region = Region::parse(bytes)?;
        let pid = region.pid;
        Ok(Self::named(&region, pid))
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
        match bytes.starts_with(&neap_shared::sites::MAGIC.to_le_bytes()) {
            true => Self::from_region(bytes),
            false => pprof::decode(bytes),
        }
    }

    /// The profile under the process's usual name. Without a known name it keeps the program's file
    /// name, which may be the target of a link.
    #[must_use]
    pub fn called(self, name: &str) -> Self {
        let program = match name {
            "" => self.program,
            name => symbols::clean(name),
        };
        Self { program, ..self }
    }

    fn named(region: &Region, pid: u32) -> Self {
        let origin = Origin {
            pid,
            began_ms: region.head.began_ms,
        };
        let mut symbols = Symbols::new(&region.maps, origin);
        let sites = region.sites.iter();
        Self {
            pid,
            program: symbols::clean(base(symbols.program().unwrap_or_default())),
            rate: region.head.rate,
            began_ms: region.head.began_ms,
            ended_ms: ended_ms(region),
            extent: Extent::Whole,
            switched: None,
            stacks: sites.map(|site| stack(site, &mut symbols)).collect(),
            mappings: symbols.mappings(),
        }
    }
}

fn stack(site: &Sampled, symbols: &mut Symbols) -> Stack {
    let addresses = site.addresses.iter();
    let frames: Vec<_> = addresses
        .flat_map(|&address| symbols.frames(address))
        .collect();
    let other = || {
        Arc::new(Frame {
            function: OTHER_PLACES.to_owned(),
            ..Frame::default()
        })
    };
    Stack {
        frames: match site.addresses.is_empty() {
            true => vec![other()],
            false => plumbing::without(frames),
        },
        figures: site.figures,
    }
}

/// The end of sampling: when it was switched off, or now if it is still on.
fn ended_ms(region: &Region) -> u64 {
    match region.head.rate {
        0 => region.head.changed_ms,
        _ => session::now_ms(),
    }
}
