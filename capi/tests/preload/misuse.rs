//! Each misuse ends in SIGABRT with its own message; one tiny program each.
//!
//! `docs/misuse.md` says which is seen when; this file is its proof.

use crate::support::{self, Artifact, compile, foreign};

const DOUBLE: &str = "neap: double free of ADDR (a block of 64 bytes)\n";
const INSIDE: &str = "which is inside a block of 64 bytes and not its start\n";
const NOWHERE: &str = "neap: free of ADDR, where no block starts\n";

/// Runs the program by default, where the misuse is seen at the latest when
/// magazines are emptied, and in check mode, where it is seen at once.
fn dies(source: &str, message: &str) {
    dies_otherwise_checked(source, message, message);
}

/// [`dies`], inside the wrong call in both modes, and in those that keep the fast path from most
/// calls.
fn dies_at_once(source: &str, message: &str) {
    let source = format!("misuse/{source}");
    let library = support::library();
    let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let modes: [&[(&str, &str)]; 4] = [
        &[],
        &[("NEAP_CHECK", "1")],
        &[("NEAP_COUNT", "1")],
        &[("NEAP_SAMPLE", "1M")],
    ];
    for mode in modes {
        let output = support::run(&program, &[], mode);
        assert_eq!(
            support::aborted(&output, &source),
            message,
            "{source} {mode:?}"
        );
        assert_eq!(
            support::text(&output.stdout),
            "",
            "{source} {mode:?}: not seen at once"
        );
    }
}

/// [`dies`], where check mode knows more: it says `checked`.
fn dies_otherwise_checked(source: &str, message: &str, checked: &str) {
    let source = format!("misuse/{source}");
    let library = support::library();
    let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let output = support::run(&program, &[], &[]);
    assert_eq!(
        support::aborted(&output, &source),
        message,
        "{source} by default"
    );
    let output = support::run(&program, &[], &[("NEAP_CHECK", "1")]);
    assert_eq!(
        support::aborted(&output, &source),
        checked,
        "{source} in check mode"
    );
    assert_eq!(
        support::text(&output.stdout),
        "",
        "{source}: not seen at once in check mode"
    );
}

#[test]
fn double_free_twice() {
    dies("double_free_twice.c", DOUBLE);
}

#[test]
fn double_free_given_up() {
    dies_otherwise_checked("double_free_given_up.c", NOWHERE, DOUBLE);
}

#[test]
fn double_free_at_once() {
    dies_at_once("double_free_at_once.c", DOUBLE);
}

#[test]
fn double_free_around() {
    dies_at_once("double_free_around.c", DOUBLE);
}

#[test]
fn double_free_around_others() {
    let source = "misuse/double_free_around_others.c";
    let Some(program) = compile(source, Artifact::Program, &[]) else {
        return;
    };
    for mode in [&[][..], &[("NEAP_SAMPLE", "1M")]] {
        let output = support::run(&program, &[], mode);
        assert_eq!(output.status.code(), Some(0), "not seen: {output:?}");
        let told = support::text(&output.stderr);
        assert_eq!(told.matches("free of 0x").count(), 16, "{told}");
    }
}

#[test]
fn never_handed_out_next() {
    dies_at_once("never_handed_out_next.c", DOUBLE);
}

#[test]
fn never_handed_out() {
    dies("never_handed_out.c", DOUBLE);
    dies("never_handed_out_far.c", DOUBLE);
    dies_at_once("never_handed_out_flush.c", DOUBLE);
    dies_at_once("never_handed_out_refill.c", DOUBLE);
    dies("never_handed_out_elsewhere.c", DOUBLE);
}

#[test]
fn double_free_aba() {
    dies("double_free_aba.c", DOUBLE);
}

#[test]
fn double_free_later() {
    dies("double_free_later.c", DOUBLE);
}

#[test]
fn double_free_much_later() {
    dies("double_free_much_later.c", DOUBLE);
}

#[test]
fn double_free_thread() {
    dies("double_free_thread.c", DOUBLE);
}

#[test]
fn double_free_handed() {
    let line = "neap: double free of ADDR (a block of 32 bytes)\n";
    dies("double_free_handed.c", line);
}

#[test]
fn double_free_large() {
    let checked = "neap: double free of ADDR (a block of 1048576 bytes)\n";
    dies_otherwise_checked("double_free_large.c", NOWHERE, checked);
}

#[test]
fn free_stack() {
    dies("free_stack.c", &foreign("free"));
}

const NO_STACK: &str = "neap: ADDR is not the top of a stack in use\n";

#[test]
fn coroutine_stack_free() {
    dies("coroutine_stack_free.c", NOWHERE);
}

#[test]
fn coroutine_stack_free_middle() {
    dies("coroutine_stack_free_middle.c", NOWHERE);
}

#[test]
fn coroutine_stack_twice() {
    dies("coroutine_stack_twice.c", NO_STACK);
}

#[test]
fn coroutine_stack_trim_above() {
    let line = "neap: trim below ADDR, which is not in the stack that ends at ADDR\n";
    dies("coroutine_stack_trim_above.c", line);
}

#[test]
fn coroutine_stack_foreign() {
    dies("coroutine_stack_foreign.c", NO_STACK);
}

#[test]
fn free_static() {
    dies("free_static.c", &foreign("free"));
}

#[test]
fn free_mapped() {
    dies("free_mapped.c", &foreign("free"));
}

#[test]
fn free_foreign() {
    dies("free_foreign.c", &foreign("free"));
}

#[test]
fn free_low() {
    dies("free_low.c", &foreign("free"));
}

#[test]
fn free_high() {
    dies("free_high.c", &foreign("free"));
}

#[test]
fn free_interior() {
    dies("free_interior.c", &format!("neap: free of ADDR, {INSIDE}"));
}

#[test]
fn free_tail() {
    let inside = "which is inside a block of 48 bytes and not its start\n";
    dies("free_tail.c", &format!("neap: free of ADDR, {inside}"));
}

#[test]
fn free_unaligned() {
    dies("free_unaligned.c", &format!("neap: free of ADDR, {INSIDE}"));
}

#[test]
fn free_large_interior() {
    dies("free_large_interior.c", NOWHERE);
}

#[test]
fn free_large_near_start() {
    let inside = "which is inside a block of 1048576 bytes and not its start\n";
    dies(
        "free_large_near_start.c",
        &format!("neap: free of ADDR, {inside}"),
    );
}

#[test]
fn usable_size_stack() {
    dies("usable_size_stack.c", &foreign("malloc_usable_size"));
}

#[test]
fn realloc_freed() {
    dies(
        "realloc_freed.c",
        "neap: realloc of ADDR, a block that is already free\n",
    );
}

#[test]
fn realloc_freed_recent() {
    dies(
        "realloc_freed_recent.c",
        "neap: realloc of ADDR, a block that is already free\n",
    );
}

#[test]
fn usable_size_freed() {
    let line = "neap: malloc_usable_size of ADDR, a block that is already free\n";
    dies("usable_size_freed.c", line);
}

#[test]
fn realloc_freed_large() {
    dies_otherwise_checked(
        "realloc_freed_large.c",
        "neap: realloc of ADDR, where no block starts\n",
        "neap: realloc of ADDR, a block that is already free\n",
    );
}

#[test]
fn realloc_stack() {
    dies("realloc_stack.c", &foreign("realloc"));
}

#[test]
fn realloc_interior() {
    dies(
        "realloc_interior.c",
        &format!("neap: realloc of ADDR, {INSIDE}"),
    );
}

/// What `call` with a wrong `size` for a block of 64 bytes is answered with.
fn holds(call: &str, size: usize) -> String {
    format!("neap: {call} of ADDR with {size} bytes, but the block holds 49 to 64 bytes\n")
}

#[test]
fn sized_too_large() {
    dies("sized_too_large.c", &holds("free_sized", 100));
}

#[test]
fn sized_too_small() {
    dies("sized_too_small.c", &holds("free_sized", 10));
}

#[test]
fn delete_too_large() {
    dies_at_once("delete_too_large.cc", &holds("delete", 100));
    dies_at_once("delete_array_too_large.cc", &holds("delete[]", 100));
}

/// Harmless, and common in programs: only check mode looks.
#[test]
fn delete_too_small() {
    let source = "misuse/delete_too_small.cc";
    let library = support::library();
    let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let output = support::run(&program, &[], &[]);
    assert_eq!(support::text(&output.stderr), "");
    assert_eq!(
        support::text(&output.stdout),
        "returned\n",
        "by default the program goes on"
    );
    let output = support::run(&program, &[], &[("NEAP_CHECK", "1")]);
    assert_eq!(support::aborted(&output, source), holds("delete", 32));
}

#[test]
fn sized_misaligned() {
    let line = "neap: free_aligned_sized of ADDR, which is not at a multiple of 4096 bytes\n";
    dies_at_once("sized_misaligned.c", line);
}

#[test]
fn delete_misaligned() {
    // By default it is seen on the slow path only.
    let source = "misuse/delete_misaligned.cc";
    let Some(program) = compile(source, Artifact::Program, &[]) else {
        return;
    };
    let output = support::run(&program, &[], &[("NEAP_CHECK", "1")]);
    let line = "neap: delete of ADDR, which is not at a multiple of 4096 bytes\n";
    assert_eq!(support::aborted(&output, source), line);
}

/// Detected when the block leaves quarantine.
#[test]
fn write_freed() {
    let source = "misuse/write_freed.c";
    let library = support::library();
    let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let output = support::run(&program, &[], &[]);
    assert_eq!(support::text(&output.stderr), "");
    assert_eq!(support::text(&output.stdout), "returned\n");
    let output = support::run(&program, &[], &[("NEAP_CHECK", "1")]);
    let line = "neap: write to ADDR after its free (a block of 64 bytes; byte 40 has changed)\n";
    assert_eq!(support::aborted(&output, source), line);
}
