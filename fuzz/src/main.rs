//! Fuzz targets for libFuzzer: every parser of foreign data, and the heap's entry points.
//!
//! | file | contents |
//! |---|---|
//! | `targets/` | the targets, by the data that they read |
//! | `bound` | the memory and the stack that one input may take |
//! | `file` | an input as a file |
//! | `seeds` | the first inputs, made by the project's own writers |
//!
//! `ci/fuzz.sh` builds and runs them. There is one program for all of them, so it is built once.
//! Its file name selects the target: the script makes a link for each.
//!
//! The command is a program and not a library, so this crate includes its sources by their paths.

#![no_main]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the targets use parts of the command's modules"
)]

#[macro_use]
#[path = "../../cli/src/choice.rs"]
mod choice;
#[macro_use]
#[path = "../../cli/src/failure.rs"]
mod failure;

#[path = "../../cli/src/attach/mod.rs"]
mod attach;
#[path = "../../cli/src/classes/mod.rs"]
mod classes;
#[path = "../../cli/src/files.rs"]
mod files;
#[path = "../../cli/src/grammar/mod.rs"]
mod grammar;
#[path = "../../cli/src/guard.rs"]
mod guard;
#[path = "../../cli/src/launch.rs"]
mod launch;
#[path = "../../cli/src/library.rs"]
mod library;
#[path = "../../cli/src/output.rs"]
mod output;
#[path = "../../cli/src/probe/mod.rs"]
mod probe;
#[path = "../../cli/src/profile/mod.rs"]
mod profile;
#[path = "../../cli/src/program/mod.rs"]
mod program;
#[path = "../../cli/src/recording/mod.rs"]
mod recording;
#[path = "../../cli/src/report/mod.rs"]
mod report;
#[path = "../../cli/src/serve/mod.rs"]
mod serve;
#[path = "../../cli/src/session/mod.rs"]
mod session;
#[path = "../../cli/src/statistics.rs"]
mod statistics;
#[path = "../../cli/src/supervise.rs"]
mod supervise;
#[path = "../../cli/src/table.rs"]
mod table;
#[path = "../../cli/src/top/mod.rs"]
mod top;
#[path = "../../cli/src/verbs/mod.rs"]
mod verbs;
#[path = "../../cli/src/view/mod.rs"]
mod view;

mod bound;
mod file;
mod seeds;
mod targets;

use std::path::Path;
use std::sync::OnceLock;
use targets::Target;

#[global_allocator]
static ALLOCATOR: bound::Counting = bound::Counting;

/// The target that the program's file name selects.
static TARGET: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: begin(),
    |bytes: &[u8]| {
        let target = TARGET.get().expect("begin has set it");
        bound::within(target.most_bytes, || (target.run)(bytes));
    }
);

fn begin() {
    if let Some(folder) = std::env::var_os("WRITE_SEEDS") {
        seeds::write(Path::new(&folder));
        std::process::exit(0);
    }
    let program = std::env::args().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let Some(target) = targets::ALL.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        println!("{}", names.join("\n"));
        std::process::exit(2);
    };
    TARGET
        .set(target)
        .unwrap_or_else(|_| unreachable!("called once"));
    bound::report_overflows();
}
