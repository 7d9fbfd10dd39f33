//! Guarded blocks: each wrong access or call is reported, and ends the process as it says.

use crate::support::{self, Artifact, Built, compile};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::sync::LazyLock;

static PROGRAM: LazyLock<Option<Built>> =
    LazyLock::new(|| compile("programs/guard.c", Artifact::Program, &[]));

/// Runs the program's `what` with all blocks guarded; `None` without a compiler.
fn run(what: &str, variables: &[(&str, &str)]) -> Option<Output> {
    let variables = [&[("NEAP_GUARD", "all")], variables].concat();
    let program: &Path = PROGRAM.as_ref()?;
    Some(support::run(program, &[OsStr::new(what)], &variables))
}

/// Asserts that the report has these lines, in order, and perhaps others; each address is `ADDR`.
fn has_lines(output: &Output, lines: &[&str]) {
    let stderr = support::without_addresses(&support::text(&output.stderr));
    let mut rest = stderr.lines();
    for line in lines {
        let is_it = |found: &str| found.starts_with(line);
        assert!(
            rest.any(is_it),
            "no line {line:?}, in this order:\n{stderr}"
        );
    }
}

/// What ends a process.
enum End {
    Signal(i32),
    Exit(i32),
}

fn reports(what: &str, end: End, lines: &[&str]) {
    let Some(output) = run(what, &[]) else { return };
    has_lines(&output, lines);
    let status = output.status;
    match end {
        End::Signal(signal) => assert_eq!(status.signal(), Some(signal), "{what}: {status}"),
        End::Exit(code) => assert_eq!(status.code(), Some(code), "{what}: {status}"),
    }
}

const FAULT: End = End::Signal(libc::SIGSEGV);
const ABORT: End = End::Signal(libc::SIGABRT);
/// The report of a fault. AArch64's kernel does not tell whether it was a read or a write.
const FAULT_LINE: &str = "neap: ";
const MADE: &str = "  the allocation by thread";
const FREED: &str = "  the free by thread";

/// Neither guarded blocks from before the sandbox nor new ones need a system call in it.
#[test]
fn a_sandbox_does_not_kill() {
    if let Some(program) = compile("programs/guard_sandbox.c", Artifact::Program, &[]) {
        let output = support::run(&program, &[], &[("NEAP_GUARD", "all")]);
        support::succeeds(&output, "guard_sandbox");
    }
}

/// Guarded blocks need system calls that the option forbids. The program runs without guarded
/// blocks.
#[test]
fn guarded_blocks_without_kernel_queries_are_refused() {
    let Some(output) = run("nothing", &[("NEAP_KERNEL_QUERIES", "0")]) else {
        return;
    };
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(
        support::text(&output.stderr),
        "neap: NEAP_GUARD is ignored: NEAP_KERNEL_QUERIES=0 or a sandbox forbids its system calls\n"
    );
}

#[test]
fn an_overflow_faults() {
    // A block at the end of its page has 8 bytes behind it, which keep its alignment.
    reports(
        "overflow",
        FAULT,
        &["neap: ", "  the access by thread", "    #0 ADDR", MADE],
    );
    let Some(output) = run("overflow", &[]) else {
        return;
    };
    let text = support::text(&output.stderr);
    let is_said = ["8 bytes after the end of", "4072 bytes after the end of"]
        .iter()
        .any(|distance| text.contains(&format!("{distance} a block of 24 bytes\n")));
    assert!(is_said || cfg!(target_arch = "aarch64"), "{text}");
}

#[test]
fn an_underflow_faults() {
    reports(
        "underflow",
        FAULT,
        &["neap: ", "  the access by thread", MADE],
    );
}

#[test]
fn a_use_after_free_faults() {
    let lines = [
        "neap: ",
        "  the access by thread",
        "    #0",
        MADE,
        "    #0",
        FREED,
        "    #0",
    ];
    reports("use_after_free", FAULT, &lines);
    let Some(output) = run("use_after_free", &[]) else {
        return;
    };
    let text = support::text(&output.stderr);
    assert!(
        text.contains(", byte 3 of a block of 24 bytes that was freed\n"),
        "{text}"
    );
}

#[test]
fn wrong_calls_abort() {
    let double = "neap: double free of ADDR (a block of 24 bytes)";
    reports(
        "double_free",
        ABORT,
        &[double, "  the wrong call by", MADE, FREED],
    );
    let beside = "neap: write to ADDR, right after a block of 24 bytes, found when";
    reports(
        "small_overflow",
        ABORT,
        &[beside, "  the free that found it by", MADE],
    );
    let inside = "neap: free of ADDR, which is inside a block of 24 bytes and not its start";
    reports("interior", ABORT, &[inside, "  the wrong call by", MADE]);
    let freed = "neap: realloc of ADDR, a block that is already free";
    reports(
        "resize_freed",
        ABORT,
        &[freed, "  the wrong call by", MADE, FREED],
    );
}

#[test]
fn threads_children_and_small_stacks_report() {
    reports(
        "in_thread",
        FAULT,
        &[FAULT_LINE, "  the access by thread", MADE],
    );
    reports(
        "in_child",
        End::Exit(libc::SIGSEGV),
        &[FAULT_LINE, MADE, FREED],
    );
    reports(
        "on_small_stack",
        FAULT,
        &[FAULT_LINE, "  the access by thread", MADE],
    );
}

#[test]
fn the_programs_own_handler_runs_after_the_report() {
    reports("own_handler", End::Exit(7), &[FAULT_LINE, MADE, FREED]);
    reports("by_signal", End::Exit(8), &[FAULT_LINE, MADE, FREED]);
}

#[test]
fn a_child_of_vfork_changes_no_handler_of_its_parent() {
    reports(
        "by_signal_after_vfork",
        End::Exit(8),
        &[FAULT_LINE, MADE, FREED],
    );
}

#[test]
fn a_handler_that_was_set_by_a_system_call_is_the_programs() {
    reports(
        "set_past_the_library",
        End::Exit(8),
        &[FAULT_LINE, MADE, FREED],
    );
}

#[test]
fn children_set_handlers_whatever_their_parents_threads_did() {
    reports("in_children_meanwhile", End::Exit(0), &[]);
}

#[test]
fn a_handler_that_is_set_while_ours_begins_is_the_programs() {
    let Some(program) = &*PROGRAM else { return };
    let output = support::run(program, &[OsStr::new("set_while_it_begins")], &[]);
    let stderr = support::text(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{stderr}");
}

#[test]
fn a_thread_that_ends_leaves_its_sample_to_the_next() {
    let variables = [("NEAP_GUARD", "1h"), ("NEAP_PURGE_THREAD", "never")];
    let Some(output) = run("in_short_threads", &variables) else {
        return;
    };
    let stderr = support::text(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{stderr}");
}

#[test]
fn other_faults_are_the_programs() {
    let Some(output) = run("other_fault", &[]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(support::text(&output.stderr), "");
}

#[test]
fn the_programs_handler_runs_on_the_stack_that_it_chose() {
    let cases = [
        ("on_its_stack", 8, 0),
        ("on_the_alternate_stack", 9, 0),
        ("guard_on_its_stack", 8, 1),
    ];
    for (what, status, reports) in cases {
        let Some(output) = run(what, &[]) else { return };
        let stderr = support::text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{what}: {stderr}");
        assert_eq!(
            stderr.matches("neap: ").count(),
            reports,
            "{what}: {stderr}"
        );
    }
}

#[test]
fn a_fault_that_happens_again_is_reported_once() {
    let Some(output) = run("twice", &[]) else {
        return;
    };
    let stderr = support::text(&output.stderr);
    assert_eq!(stderr.matches("neap: ").count(), 1, "{stderr}");
}

#[test]
fn standard_error_gets_the_report_that_a_full_disk_does_not_take() {
    let Some(output) = run("use_after_free", &[("NEAP_GUARD_FILE", "/dev/full")]) else {
        return;
    };
    has_lines(&output, &["neap: ", "  the access by", "  the free by"]);
}

#[test]
fn a_file_gets_the_report_and_standard_error_its_first_line() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guard-{}", std::process::id()));
    let Some(path) = file.to_str() else { return };
    let Some(output) = run("use_after_free", &[("NEAP_GUARD_FILE", path)]) else {
        return;
    };
    let (first, text) = (support::text(&output.stderr), fs::read_to_string(&file));
    let text = text.expect("the library made the file");
    fs::remove_file(&file).expect("the test's own file");
    assert_eq!(first.lines().count(), 1, "{first}");
    assert!(text.starts_with(&first), "{text}");
    let mapped = "\n  mapped (neap report FILE shows the names of the calls):\n    ";
    assert!(text.contains(mapped), "{text}");
}
