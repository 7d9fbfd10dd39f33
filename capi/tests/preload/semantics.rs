//! Every C entry point behaves as glibc's does; the programs say how.

use crate::support::{self, Artifact, compile, passes, passes_linked};

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
fn sized() {
    passes_linked("programs/sized.c");
}

#[test]
fn control() {
    passes("programs/control.c");
}

#[test]
fn figures_tell_what_is_live_in_every_mode() {
    let Some(program) = compile("programs/figures.c", Artifact::Program, &[]) else {
        return;
    };
    let modes: [&[(&str, &str)]; 4] = [
        &[],
        &[("NEAP_CHECK", "1")],
        &[("NEAP_COUNT", "1")],
        &[("NEAP_SAMPLE", "4K")],
    ];
    for mode in modes {
        let output = support::run(&program, &[], mode);
        support::succeeds(&output, &format!("programs/figures.c {mode:?}"));
    }
}

#[test]
fn calloc_touches_nothing_that_is_zero() {
    passes("programs/untouched_calloc.c");
}
