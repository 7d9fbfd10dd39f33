//! `neap`: run programs under the Neap memory system.
//!
//! | file | what is in it |
//! |---|---|
//! | `command` | the verbs and flags |
//! | `verbs/` | one file a verb |
//! | `flags` | the options of `neap::control` as flags and variables |
//! | `library` | where the library is and how it is named to the loader |
//! | `program/` | which files a command line executes, and whether the loader takes a preload for them |
//! | `launch`, `supervise`, `statistics` | becoming the program, or waiting for it and printing what it left |
//! | `classes/` | size classes: what they waste, and which a program would have liked |
//! | `attach/` | looking into a running process |
//! | `probe/` | what this kernel offers, tried out |
//! | `profile/` | heap profiles: read, symbolised, written in the formats that others open |
//! | `recording/`, `session/`, `report/` | the heap over time: its file, the run that writes it, the page made of it |
//! | `progress` | what takes a while, and silence where it is asked for |
//! | `output` | standard output |
//! | `table` | findings as a table or as JSON |
//! | `top/` | a process, or all, again and again |
//! | `serve/` | figures and profiles over HTTP |
//! | `view/` | a process at one moment, as text, JSON or metrics |
//! | `failure` | errors and exit codes |
//!
//! The entry point is C's `main`: Rust's own would ignore SIGPIPE before we run, and
//! the program that we become must find its signals as our caller left them.

#![cfg_attr(not(test), no_main)]

mod attach;
mod classes;
mod command;
mod failure;
mod flags;
mod launch;
mod library;
mod output;
mod probe;
mod profile;
mod program;
mod progress;
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
use failure::{Failure, OWN};

/// What `main` hands to the shell, or why there is nothing to hand on.
type Outcome = Result<i32, Failure>;

/// Called by the C runtime. Arguments come from `std::env`, which has its own copy.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(_count: i32, _arguments: *const *const u8) -> i32 {
    output::begin();
    let status = match command::neap().try_get_matches() {
        Ok(matches) => perform(&matches),
        Err(error) => usage(&error),
    };
    std::process::exit(status)
}

fn perform(matches: &ArgMatches) -> i32 {
    verbs::perform(matches).unwrap_or_else(|failure| failure.report())
}

/// Help and version end well; a wrong command line is a failure of `neap`, not of the
/// program it would have run.
fn usage(error: &clap::Error) -> i32 {
    if error.use_stderr() {
        // Where standard error cannot be written to, the exit code alone tells.
        let _ = error.print();
        return i32::from(OWN);
    }
    let page = error.render().ansi().to_string();
    output::print(&page).unwrap_or_else(|failure| failure.report())
}
