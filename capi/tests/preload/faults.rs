//! What a hostile or merely large program does: crowds of threads, trims, children, signals.

use crate::support::{Artifact, compile, passes, run, succeeds, succeeds_or_skips};
use std::ffi::OsStr;

#[test]
fn short_threads_leave_nothing() {
    passes("programs/short_threads.c");
}

#[test]
fn threads_that_sleep_keep_no_large_blocks() {
    passes("programs/sleeping_threads.c");
}

#[test]
fn a_crowd_keeps_to_the_bound_of_the_process() {
    let arguments = ["2000", "67108864"].map(OsStr::new);
    let Some(program) = compile("programs/crowd.c", Artifact::Program, &[]) else {
        return;
    };
    let output = run(&program, &arguments, &[("NEAP_CACHE", "64M")]);
    succeeds(&output, "programs/crowd.c");
}

#[test]
fn threads_that_ended_leave_no_metadata() {
    passes("programs/ended_threads.c");
}

#[test]
fn two_threads_first_blocks_share_no_cache_line() {
    passes("programs/first_touch.c");
}

#[test]
fn a_trim_issues_one_barrier_for_many_threads() {
    if let Some(program) = compile("programs/barriers.c", Artifact::Program, &[]) {
        succeeds_or_skips(&run(&program, &[], &[]), "programs/barriers.c");
    }
}

#[test]
fn trimming_races_with_allocation() {
    passes("programs/trim_race.c");
}

#[test]
fn children_of_every_kind() {
    passes("programs/children.c");
}

#[test]
fn signals_interrupt_malloc() {
    passes("programs/interrupted.c");
}

#[test]
fn all_keys_taken_and_all_destructor_rounds() {
    passes("programs/no_keys.c");
}

#[test]
fn enormous_sizes_are_refused() {
    passes("programs/enormous.c");
}

#[test]
fn moved_pages_keep_few_mappings() {
    passes("programs/moved_mappings.c");
}
