//! The status page and the profile, seen from inside the process: `programs/attach/status_page.c`
//! says what each mode does.

use crate::c_library::leaves_out;
use crate::support::{Artifact, aborted, compile, run, run_limited, succeeds};
use std::ffi::OsStr;
use std::process::Output;

/// Runs one mode; none if there is no compiler.
fn outcome(mode: &str, variables: &[(&str, &str)]) -> Option<Output> {
    let program = compile("programs/attach/status_page.c", Artifact::Program, &[])?;
    let mut all = vec![("NEAP_STATUS_PAGE", "1")];
    all.extend(variables);
    Some(run(&program, &[OsStr::new(mode)], &all))
}

fn holds(mode: &str, variables: &[(&str, &str)]) {
    if let Some(output) = outcome(mode, variables) {
        succeeds(&output, mode);
    }
}

#[test]
fn every_process_has_a_sealed_status_page() {
    holds("present", &[]);
    holds("hidden", &[("NEAP_STATUS_PAGE", "0")]);
    holds("hidden", &[("NEAP_KERNEL_QUERIES", "0")]);
}

#[test]
fn an_option_says_whether_a_process_has_a_status_page() {
    let Some(program) = compile("programs/attach/status_page.c", Artifact::Program, &[]) else {
        return;
    };
    for (mode, variables) in [
        ("present", &[("NEAP_STATUS_PAGE", "1")][..]),
        ("hidden", &[("NEAP_STATUS_PAGE", "0")]),
        (
            "hidden",
            &[("NEAP_STATUS_PAGE", "1"), ("NEAP_KERNEL_QUERIES", "0")],
        ),
    ] {
        succeeds(&run(&program, &[OsStr::new(mode)], variables), mode);
    }
}

/// Every process had a status page from its start.
#[test]
fn a_status_page_comes_up_when_the_process_has_done_something() {
    for mode in ["grows", "works", "forks-early"] {
        let program = compile("programs/attach/status_page.c", Artifact::Program, &[]);
        if let Some(program) = program {
            succeeds(&run(&program, &[OsStr::new(mode)], &[]), mode);
        }
    }
}

#[test]
fn short_files_mean_no_status_page() {
    let Some(program) = compile("programs/attach/status_page.c", Artifact::Program, &[]) else {
        return;
    };
    let hidden = [OsStr::new("hidden")];
    let output = run_limited(&program, &hidden, libc::RLIMIT_FSIZE, 8192);
    succeeds(&output, "files of 8 KiB at most");
}

#[test]
fn children_have_their_own() {
    holds("fork", &[("NEAP_SAMPLE", "64K")]);
    holds("purged", &[]);
    holds("exec", &[]);
    holds("vfork", &[("NEAP_SAMPLE", "64K")]);
}

#[test]
fn the_ledger_adds_up() {
    holds("ask", &[]);
    holds("ask", &[("NEAP_SAMPLE", "16K")]);
    holds("ask", &[("NEAP_PURGE_THREAD", "0")]);
    holds("ask", &[("NEAP_CHECK", "1")]);
    holds("ask", &[("NEAP_COUNT", "1"), ("NEAP_SAMPLE", "64K")]);
}

#[test]
fn a_sleeping_program_answers_each_time() {
    holds("idle", &[]);
}

#[test]
fn a_program_on_its_fast_paths_answers() {
    holds("busy", &[]);
}

#[test]
fn ringing_in_vain_wakes_nobody_for_long() {
    holds("rung-in-vain", &[]);
}

#[test]
fn a_small_program_answers_if_told_to() {
    holds("small", &[]);
    holds("quiet-child", &[("NEAP_PURGE_THREAD", "always")]);
}

#[test]
fn strangers_words_do_no_harm() {
    holds("hostile", &[]);
    holds("hostile", &[("NEAP_SAMPLE", "8K")]);
}

#[test]
fn sampling_is_switched_under_load() {
    holds("toggle", &[]);
    holds("toggle", &[("NEAP_PURGE_THREAD", "0")]);
}

#[test]
fn a_sandbox_is_not_asked() {
    holds("sandbox", &[]);
    holds("sandbox", &[("NEAP_SAMPLE", "16K")]);
    holds("sandboxed-fork", &[("NEAP_SAMPLE", "16K")]);
    holds("sandboxed-fork", &[("NEAP_PURGE_THREAD", "0")]);
}

#[test]
fn short_stacks_are_not_overrun() {
    if leaves_out("small-stack") {
        return;
    }
    holds("small-stack", &[("NEAP_PURGE_THREAD", "0")]);
    holds("small-stack", &[("NEAP_SAMPLE", "4K")]);
}

#[test]
fn a_raw_clones_child_leaves_its_parents_figures() {
    holds("clone", &[("NEAP_SAMPLE", "64K")]);
}

#[test]
fn ending_in_a_handler_waits_for_nobody() {
    holds(
        "exit-in-handler",
        &[("NEAP_SAMPLE", "4K"), ("NEAP_MONITOR", "/nobody/listens")],
    );
}

#[test]
fn sampled_blocks_are_blocks() {
    for variables in [
        &[("NEAP_SAMPLE", "4K")][..],
        &[("NEAP_SAMPLE", "4K"), ("NEAP_COUNT", "1")],
        &[("NEAP_SAMPLE", "4K"), ("NEAP_CHECK", "1")],
    ] {
        holds("sampled", variables);
    }
}

#[test]
fn a_sampled_block_freed_twice_is_reported() {
    let sample = ("NEAP_SAMPLE", "4K");
    for (way, variables) in [
        ("twice", &[sample][..]),
        ("twice", &[sample, ("NEAP_CHECK", "1")]),
        ("twice-later", &[sample, ("NEAP_CHECK", "1")]),
        ("twice-later", &[sample, ("NEAP_HARDEN", "1")]),
    ] {
        let Some(output) = outcome(way, variables) else {
            return;
        };
        let said = aborted(&output, way);
        assert!(said.contains("neap: double free of ADDR"), "{said}");
    }
}
