//! Every C entry point behaves as glibc's does; the programs say how.

use crate::support::{passes, passes_linked};

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
fn calloc_touches_nothing_that_is_zero() {
    passes("programs/untouched_calloc.c");
}
