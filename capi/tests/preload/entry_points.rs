//! Every entry point may be called on a coroutine's stack of a few KiB, and in a thread that is
//! about to be cancelled.

use crate::support::{self, Artifact, Machine, compile};
use std::ffi::OsStr;

/// Most bytes of stack that an entry point may take.
const MOST_BYTES: &str = "3072";

/// The same on AArch64, where frames save more registers.
const MOST_BYTES_AARCH64: &str = "3328";

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
    run(match Machine::under_test() {
        Machine::Own => MOST_BYTES,
        Machine::Aarch64 => MOST_BYTES_AARCH64,
    });
}

#[test]
fn no_entry_point_is_a_cancellation_point() {
    run("cancel");
}
