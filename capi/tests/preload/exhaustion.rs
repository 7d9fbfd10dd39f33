//! 64 MiB and no more: NULL and ENOMEM, then life goes on.

use crate::support::{Artifact, compile, run_limited, succeeds};
use std::ffi::OsStr;

/// Runs the program with `resource` at 64 MiB from its very start.
fn under(resource: libc::__rlimit_resource_t, name: &str) {
    if let Some(program) = compile("programs/exhaustion.c", Artifact::Program, &[]) {
        succeeds(
            &run_limited(&program, &[OsStr::new(name)], resource, 64 << 20),
            name,
        );
    }
}

#[test]
fn of_address_space() {
    under(libc::RLIMIT_AS, "as");
}

#[test]
fn of_data() {
    under(libc::RLIMIT_DATA, "data");
}

#[test]
fn calloc_zeroes_all_of_a_block_of_a_larger_class() {
    if let Some(program) = compile("programs/calloc_larger.c", Artifact::Program, &[]) {
        let output = run_limited(&program, &[], libc::RLIMIT_AS, 64 << 20);
        succeeds(&output, "calloc_larger.c");
    }
}
