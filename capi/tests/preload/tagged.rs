//! The measure `tag` of `NEAP_HARDEN`: what memory tags stop on AArch64, where the processor has
//! them (MTE). qemu-user has; without tags the measure changes nothing.

use crate::support::{self, Artifact, Built, Machine, compile, run};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;

const ALL: [(&str, &str); 1] = [("NEAP_HARDEN", "1")];
const ALONE: [(&str, &str); 1] = [("NEAP_HARDEN", "tag")];

/// Whether blocks have tags here: qemu's AArch64 has, and whether this machine has is not looked
/// at.
fn has_tags() -> bool {
    Machine::under_test() == Machine::Aarch64
}

fn program() -> Option<Built> {
    compile("misuse/harden_tag.c", Artifact::Program, &[])
}

/// The fault of an access by a pointer with another tag (`SEGV_MTESERR`).
const SYNCHRONOUS: &str = "code 9\n";

/// Under these measures, each of the accesses is a fault at once.
fn faults(accesses: &[&str], variables: &[(&str, &str)]) {
    let Some(program) = program() else { return };
    for access in accesses {
        let case = format!("{access}, {variables:?}");
        let output = run(&program, &[OsStr::new(access)], variables);
        let (said, signal) = (support::text(&output.stdout), output.status.signal());
        assert_eq!(signal, Some(libc::SIGSEGV), "{case}: {output:?}");
        assert_eq!(said, SYNCHRONOUS, "{case}");
    }
}

#[test]
fn an_access_by_a_pointer_of_another_block_is_a_fault() {
    if !has_tags() {
        return;
    }
    let accesses = [
        "read freed",
        "write freed",
        "read past",
        "write past",
        "write before",
        "thread",
        "child",
    ];
    faults(&accesses, &ALL);
    faults(&accesses, &[("NEAP_HARDEN", "canary,tag")]);
    faults(&accesses, &ALONE);
    faults(&["read again", "shrunk"], &ALL);
}

/// Which calls get a pointer of a block that was freed, and the line, after `neap: `.
#[test]
fn a_call_with_an_old_pointer_ends_the_program() {
    if !has_tags() {
        return;
    }
    let Some(program) = program() else { return };
    let other = "of ADDR by the pointer of another block, or of an earlier one there";
    let lines = [
        ("free twice", "double free of ADDR".to_owned()),
        ("free again", format!("free {other}")),
        ("realloc again", format!("realloc {other}")),
        ("usable again", format!("malloc_usable_size {other}")),
    ];
    for (call, line) in lines {
        let output = run(&program, &[OsStr::new(call)], &ALL);
        assert_eq!(
            support::aborted(&output, call),
            format!("neap: {line} (a block of 48 bytes)\n")
        );
        assert_eq!(support::text(&output.stdout), "", "{call}: not at once");
    }
}

/// Where there are no tags, and where others than these measures are chosen.
#[test]
fn without_the_measure_accesses_go_through() {
    let Some(program) = program() else { return };
    let others = ("NEAP_HARDEN", "random,delay,nullpage,guards,deletes");
    let measures: &[(&str, &str)] = match has_tags() {
        true => &[others],
        false => &[others, ALONE[0]],
    };
    for &variable in measures {
        for access in ["read freed", "read past", "write past", "thread", "child"] {
            let output = run(&program, &[OsStr::new(access)], &[variable]);
            let said = support::text(&output.stdout);
            assert_eq!(said, "returned\n", "{access}, {variable:?}: {output:?}");
        }
    }
}

#[test]
fn programs_with_tags_work() {
    let Some(program) = compile("programs/tags.c", Artifact::Program, &[]) else {
        return;
    };
    let tags = if has_tags() { "1" } else { "0" };
    let output = run(&program, &[OsStr::new(tags)], &ALL);
    support::succeeds(&output, &format!("tags, {ALL:?}"));
    let rest = [
        ("NEAP_HARDEN", "tag"),
        ("NEAP_HARDEN", "canary,tag"),
        ("NEAP_HARDEN", "random,delay,zero,tag"),
    ];
    for variable in rest {
        let output = run(&program, &[OsStr::new("0")], &[variable]);
        support::succeeds(&output, &format!("tags, {variable:?}"));
    }
    // All measures, and the tools beside them.
    for other in [("NEAP_SAMPLE", "4K"), ("NEAP_GUARD", "1ms")] {
        let output = run(&program, &[OsStr::new("0")], &[ALL[0], other]);
        support::succeeds(&output, &format!("tags, {other:?}"));
    }
}
