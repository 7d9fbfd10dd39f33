//! Every C entry point behaves as glibc's does; the programs say how.

use crate::support::{self, Artifact, compile, passes, passes_linked, run, succeeds};

#[test]
fn c_names() {
    // Calls names that the C library's headers and link library no longer have.
    passes_linked("programs/c_names.c");
}

#[test]
fn alignments() {
    passes("programs/alignments.c");
}

#[test]
fn a_buffer_that_grows_uses_resident_pages() {
    passes("programs/realloc_warm.c");
}

/// Also where Neap may not ask the kernel what it follows.
#[test]
fn realloc_moves_pages_whatever_may_be_asked() {
    let Some(program) = compile("programs/realloc_moved.c", Artifact::Program, &[]) else {
        return;
    };
    for asks in ["1", "0"] {
        let output = run(&program, &[], &[("NEAP_KERNEL_QUERIES", asks)]);
        succeeds(&output, "programs/realloc_moved.c");
    }
}

#[test]
fn sized() {
    passes_linked("programs/sized.c");
}

#[test]
fn control() {
    passes("programs/control.c");
}

/// Runs a program in every mode of the library.
fn passes_in_every_mode(source: &str) {
    let Some(program) = compile(source, Artifact::Program, &[]) else {
        return;
    };
    let modes: [&[(&str, &str)]; 9] = [
        &[],
        &[("NEAP_CHECK", "1")],
        &[("NEAP_HARDEN", "1")],
        &[("NEAP_HARDEN", "canary")],
        &[("NEAP_HARDEN", "1"), ("NEAP_SAMPLE", "4K")],
        &[("NEAP_COUNT", "1")],
        &[("NEAP_SAMPLE", "4K")],
        &[("NEAP_GUARD", "all")],
        &[("NEAP_GUARD", "1ms")],
    ];
    for mode in modes {
        let output = support::run(&program, &[], mode);
        support::succeeds(&output, &format!("{source} {mode:?}"));
    }
}

#[test]
fn figures_tell_what_is_live() {
    passes_in_every_mode("programs/figures.c");
}

#[test]
fn figures_cost_no_system_call() {
    let source = "programs/mallinfo_calls.c";
    if let Some(program) = compile(source, Artifact::Program, &[]) {
        let output = support::run(&program, &[], &[("NEAP_PURGE_THREAD", "0")]);
        support::succeeds_or_skips(&output, source);
    }
}

#[test]
fn calloc_zeroes_what_is_usable() {
    passes_in_every_mode("programs/calloc_usable.c");
}

#[test]
fn calloc_touches_nothing_that_is_zero() {
    passes("programs/untouched_calloc.c");
}
