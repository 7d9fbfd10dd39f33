//! The bounds that a user sets, and what `malloc_trim` gives back at once.

use crate::support::{Artifact, compile, compile_strictly, run, succeeds, succeeds_or_skips};
use std::ffi::OsStr;

/// Bytes of the limits under test.
const LIMIT: &str = "100663296";

/// Runs `limits/NAME`, with every warning an error, and nothing on a clock: no thread, no decay.
fn passes(name: &str, arguments: &[&str], variable: Option<(&str, &str)>) {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    let source = format!("programs/limits/{name}");
    let Some(program) = compile_strictly(&source, Artifact::Program, &flags) else {
        return;
    };
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let mut variables = vec![("NEAP_PURGE_THREAD", "0"), ("NEAP_DECAY", "3600000")];
    variables.extend(variable);
    succeeds_or_skips(&run(&program, &arguments, &variables), name);
}

#[test]
fn over_the_hard_limit_nothing_is_had() {
    passes("hard.c", &[LIMIT], Some(("NEAP_LIMIT", LIMIT)));
}

#[test]
fn pages_that_slabs_gave_back_count_when_they_come_back() {
    passes("withheld.c", &[LIMIT], Some(("NEAP_LIMIT", LIMIT)));
}

#[test]
fn under_the_hard_limit_freed_and_moved_pages_count_once() {
    for way in ["none", "page", "all", "moved"] {
        passes("served.c", &[LIMIT, way], Some(("NEAP_LIMIT", LIMIT)));
    }
}

#[test]
fn over_the_hard_limit_the_operators_throw() {
    passes("new.cc", &[LIMIT], Some(("NEAP_LIMIT", LIMIT)));
}

#[test]
fn a_program_that_changes_all_its_blocks_stays_under_the_soft_limit() {
    passes(
        "soft.c",
        &["below", LIMIT],
        Some(("NEAP_LIMIT_SOFT", LIMIT)),
    );
}

#[test]
fn over_the_soft_limit_only_what_is_live_stays() {
    passes(
        "soft.c",
        &["above", LIMIT],
        Some(("NEAP_LIMIT_SOFT", LIMIT)),
    );
}

/// The same with the thread, which must not be in the way.
#[test]
fn a_soft_limit_and_a_purge_thread() {
    let Some(program) = compile("programs/limits/soft.c", Artifact::Program, &[]) else {
        return;
    };
    for way in ["below", "above"] {
        let arguments = [way, LIMIT].map(OsStr::new);
        let output = run(&program, &arguments, &[("NEAP_LIMIT_SOFT", LIMIT)]);
        succeeds(&output, way);
    }
}

#[test]
fn free_pages_are_bounded() {
    passes("dirty.c", &["8388608"], Some(("NEAP_LIMIT_DIRTY", "8M")));
}

#[test]
fn trimming_gives_back_what_is_free() {
    passes("trim.c", &[], None);
}
