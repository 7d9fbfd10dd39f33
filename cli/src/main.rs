//! `neap`: run programs under the Neap memory system.
//!
//! | file | contents |
//! |---|---|
//! | `choice` | enumerations whose items are words of the command line |
//! | `grammar/` | the table of verbs and their options, and what derives from it |
//! | `verbs/` | the verbs |
//! | `program/` | which files a command line executes, and whether they can be preloaded |
//! | `library` | where the library is, and its name for the loader |
//! | `launch`, `supervise`, `statistics` | become the program, or wait and print its statistics |
//! | `classes/` | size classes: what they waste, and which ones would suit a program |
//! | `attach/` | inspects a running process |
//! | `probe/` | tries out what this kernel offers |
//! | `profile/` | heap profiles: reads and symbolises them, writes other tools' formats |
//! | `recording/`, `session/`, `report/` | the heap over time: its file, its run, its report |
//! | `output` | standard output and progress |
//! | `files` | reads files up to a limit, and writes them completely or not at all |
//! | `table` | findings as a table or as JSON |
//! | `top/` | a process, or all of them, at intervals |
//! | `serve/` | figures and profiles over HTTP |
//! | `view/` | a process at one moment, as text, JSON or metrics |
//! | `guard` | reports of guarded allocations |
//! | `failure` | errors and exit codes |
//!
//! The entry point is C's `main`. Rust's own would ignore SIGPIPE first, but the program that this
//! process becomes must find its signals as the caller left them.

#![cfg_attr(not(test), no_main)]

#[macro_use]
mod choice;
#[macro_use]
mod failure;

mod attach;
mod classes;
mod files;
mod grammar;
mod guard;
mod launch;
mod library;
mod output;
mod probe;
mod profile;
mod program;
mod recording;
mod report;
mod serve;
mod session;
mod statistics;
mod supervise;
mod table;
mod top;
mod verbs;
mod view;

use clap::ArgMatches;
use failure::OWN;

/// Called by the C runtime. Arguments come from `std::env`, which keeps its own copy.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(_count: i32, _arguments: *const *const u8) -> i32 {
    output::begin();
    let status = match grammar::neap().try_get_matches() {
        Ok(matches) => perform(&matches),
        Err(error) => usage(&grammar::explained(error)),
    };
    std::process::exit(status)
}

fn perform(matches: &ArgMatches) -> i32 {
    verbs::perform(matches).unwrap_or_else(|failure| failure.report())
}

/// Help and version succeed. A wrong command line is a failure of `neap`, not of the program.
fn usage(error: &clap::Error) -> i32 {
    if error.use_stderr() {
        // If standard error cannot be written to, only the exit code tells.
        let _ = error.print();
        return i32::from(OWN);
    }
    let page = error.render().ansi().to_string();
    output::print(&page).unwrap_or_else(|failure| failure.report())
}
