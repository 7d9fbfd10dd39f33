//! Every entry point may be called on a coroutine's stack of a few KiB, and in a thread that is
//! about to be cancelled.

use crate::support::{self, Artifact, compile};
use std::ffi::OsStr;

/// Most bytes of stack that an entry point may take.
const MOST_BYTES: &str = "3072";

/// Runs every entry point of the library.
fn run(how: &str) {
    let library = support::library();
    let flags = [library.as_os_str(), OsStr::new("-Wl,-z,now")];
    let Some(program) = compile("programs/entry_points.c", Artifact::Program, &flags) else {
        return;
    };
    let output = support::run(&program, &[OsStr::new(how)], &[]);
    print!("{}", support::text(&output.stdout));
    support::succeeds(&output, "programs/entry_points.c");
}

#[test]
fn entry_points_take_little_stack() {
    run(MOST_BYTES);
}

#[test]
fn no_entry_point_is_a_cancellation_point() {
    run("cancel");
}
