//! Every entry point runs on a coroutine's stack of a few KiB: how much of it each takes is counted on a painted one.

use crate::support::{self, Artifact, compile};
use std::ffi::OsStr;

/// Most bytes of stack that an entry point may take.
const MOST_BYTES: &str = "3072";

#[test]
fn entry_points_take_little_stack() {
    let library = support::library();
    let flags = [library.as_os_str(), OsStr::new("-Wl,-z,now")];
    let Some(program) = compile("programs/painted.c", Artifact::Program, &flags) else {
        return;
    };
    let output = support::run(&program, &[OsStr::new(MOST_BYTES)], &[]);
    print!("{}", support::text(&output.stdout));
    support::succeeds(&output, "programs/painted.c");
}
