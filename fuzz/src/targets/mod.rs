//! The targets. Each takes any bytes; a panic, a hang, or memory beyond the bound is a finding.
//!
//! | file | what a target reads |
//! |---|---|
//! | `shared_memory` | what processes write for the command: status pages, regions of profiles |
//! | `files` | what people hand to the command: profiles, recordings, programs, files of sizes |
//! | `symbols` | programs with debug information that a profile names |
//! | `texts` | texts of `/proc`, of runtimes, of HTTP clients, and of the environment |
//! | `heap` | nothing: it performs the bytes as calls of the heap, by default and in hardened mode |

mod files;
mod heap;
pub mod shared_memory;
mod symbols;
mod texts;

/// A target.
pub struct Target {
    /// Its name, which the program's file has.
    pub name: &'static str,
    /// The most bytes that one input may allocate.
    pub most_bytes: usize,
    /// What it does with an input.
    pub run: fn(&[u8]),
}

const MIB: usize = 1 << 20;

/// All of them.
pub const ALL: &[Target] = &[
    target("status-page", 16 * MIB, shared_memory::status_page),
    target("region", 64 * MIB, shared_memory::region),
    target("regions", 64 * MIB, shared_memory::regions),
    target("profile", 1024 * MIB, files::profile),
    target("recording", 64 * MIB, files::recording),
    target("program", 16 * MIB, files::program),
    target("sizes", 16 * MIB, files::sizes),
    target("symbols", 256 * MIB, symbols::symbols),
    target("texts", 16 * MIB, texts::texts),
    target("options", MIB, texts::options),
    target("http", MIB, texts::http),
    target("heap", 64 * MIB, heap::calls),
    target("hardened", 64 * MIB, heap::hardened_calls),
];

const fn target(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> Target {
    Target {
        name,
        most_bytes,
        run,
    }
}
