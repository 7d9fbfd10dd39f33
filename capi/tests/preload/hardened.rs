//! `NEAP_HARDEN`: what it stops beyond the other modes, with its exact lines, and what goes on
//! working.

use crate::skips::announce;
use crate::support::{self, Artifact, compile, run};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

const ALL: [(&str, &str); 1] = [("NEAP_HARDEN", "1")];
/// All but `tag`, under which some of these programs end at the wrong access ([`crate::tagged`]).
const UNTAGGED: [(&str, &str); 1] = [(
    "NEAP_HARDEN",
    "random,canary,delay,zero,nullpage,guards,deletes",
)];

/// Neap calls no `membarrier`, as under a seccomp filter that was in force at the start.
const NO_BARRIER: (&str, &str) = ("NEAP_KERNEL_QUERIES", "0");

/// A program of `misuse/` ends inside the wrong call, and says so. By default it goes on.
fn dies(source: &str, line: &str) {
    let source = format!("misuse/{source}");
    let library = support::library();
    let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let output = run(&program, &[], &[]);
    assert_eq!(
        support::text(&output.stdout),
        "returned\n",
        "{source} by default"
    );
    let output = run(&program, &[], &UNTAGGED);
    assert_eq!(
        support::aborted(&output, &source),
        format!("neap: {line}\n")
    );
    assert_eq!(support::text(&output.stdout), "", "{source}: not at once");
}

#[test]
fn a_write_past_the_end_shows_when_the_block_is_freed() {
    let past = "of ADDR, past whose end something was written";
    let slack = format!("{past} (a block of 50 bytes; byte 50 has changed)");
    dies("harden_slack.c", &format!("free {slack}"));
    dies("harden_realloc.c", &format!("realloc {slack}"));
    dies("harden_realloc_moves.c", &format!("realloc {slack}"));
    dies(
        "harden_canary.c",
        &format!("free {past} (a block of at most 56 bytes)"),
    );
}

#[test]
fn a_write_beside_a_block_shows_when_the_block_is_freed() {
    let bytes = "(a block of 2000 bytes; 2052 bytes past its start)";
    dies(
        "harden_beside.c",
        &format!("free of ADDR, beside which something was written {bytes}"),
    );
}

/// The compiler states the size of the object that the program deletes twice.
#[test]
fn a_second_delete_is_a_double_free() {
    let source = "misuse/delete_twice.cc";
    let library = support::library();
    if let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) {
        let output = run(&program, &[], &UNTAGGED);
        assert_eq!(
            support::aborted(&output, source),
            "neap: double free of ADDR (a block of 64 bytes)\n"
        );
    }
}

/// Also if the first of them was the process's only one until then.
#[test]
fn of_two_threads_that_free_a_block_one_aborts() {
    if let Some(program) = compile("programs/racing_free.c", Artifact::Program, &[]) {
        support::succeeds(&run(&program, &[], &ALL), "racing_free hardened");
        let output = run(&program, &[], &[ALL[0], NO_BARRIER]);
        support::succeeds(&output, "racing_free hardened, no barrier");
    }
}

/// Neap calls no `membarrier` where that kills the process.
#[test]
fn threads_in_a_sandbox() {
    let flags = [OsStr::new("-pthread")];
    let Some(program) = compile("programs/harden_sandbox.c", Artifact::Program, &flags) else {
        return;
    };
    for entry in ["alone", "threads", "inherited"] {
        for variables in [&ALL[..], &[ALL[0], NO_BARRIER]] {
            let output = run(&program, &[OsStr::new(entry)], variables);
            support::succeeds_or_skips(&output, &format!("harden_sandbox {entry}, {variables:?}"));
        }
    }
    // Nor do samples call `membarrier`.
    for samples in [("NEAP_SAMPLE", "64K"), ("NEAP_GUARD", "1ms")] {
        let output = run(&program, &[OsStr::new("inherited")], &[ALL[0], samples]);
        support::succeeds_or_skips(&output, &format!("harden_sandbox inherited, {samples:?}"));
    }
}

#[test]
fn the_next_block_cannot_be_predicted() {
    const PROCESSES: usize = 12;
    let Some(program) = compile("programs/harden_next.c", Artifact::Program, &[]) else {
        return;
    };
    let next = |_| {
        let output = run(&program, &[], &ALL);
        support::succeeds(&output, "harden_next hardened");
        support::text(&output.stdout)
    };
    let drawn: Vec<_> = (0..PROCESSES).map(next).collect();
    let different: BTreeSet<_> = drawn.iter().collect();
    assert!(different.len() * 2 > drawn.len(), "{drawn:?}");
}

#[test]
fn a_delete_has_the_form_and_the_size_of_its_new() {
    dies("harden_delete_array.cc", "delete[] of ADDR, a block of new");
    dies(
        "harden_delete_object.cc",
        "delete of ADDR, a block of new[]",
    );
    dies(
        "harden_delete_malloc.cc",
        "delete of ADDR, a block of malloc",
    );
    // The size does not fit either, but the form says what the error is.
    dies(
        "harden_delete_array_sized.cc",
        "delete of ADDR, a block of new[]",
    );
    let line = "delete of ADDR with 59 bytes, but the block holds 60 bytes";
    dies("harden_delete_exact.cc", line);
}

/// A guarded block in its place would be accessible.
#[test]
fn what_is_no_block_is_not_accessible_with_guarded_blocks_either() {
    let library = support::library();
    let source = "misuse/harden_no_access.c";
    let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    if !has_guards() {
        announce("guards need Linux 6.13 or newer");
        return;
    }
    let variables = [&ALL[..], &[("NEAP_GUARD", "all")]].concat();
    let output = run(&program, &[OsStr::new("nothing")], &variables);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

#[test]
fn what_is_no_block_is_not_accessible() {
    let source = "misuse/harden_no_access.c";
    let library = support::library();
    let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    for access in ["past", "before", "nothing", "gone", "free"] {
        let output = run(&program, &[OsStr::new(access)], &ALL);
        let (said, signal) = (support::text(&output.stdout), output.status.signal());
        if access != "free" && signal.is_none() && !has_guards() {
            announce(&format!("{access}: guards need Linux 6.13 or newer"));
            continue;
        }
        match access {
            "free" => assert_eq!(said, "returned\n", "{output:?}"),
            _ => assert_eq!(
                (said.as_str(), signal),
                ("", Some(libc::SIGSEGV)),
                "{access}"
            ),
        }
    }
}

/// A free block is known as such wherever it waits: in the magazine of any thread, or in its slab,
/// freed before or never handed out.
#[test]
fn a_free_block_is_no_block_with_a_changed_canary() {
    let source = "misuse/harden_waiting.c";
    let library = support::library();
    let Some(program) = compile(source, Artifact::Program, &[library.as_os_str()]) else {
        return;
    };
    let free = "already free";
    for measures in ["1", "canary", "canary,delay", "random,canary,zero"] {
        for block in ["own", "other", "first", "last"] {
            for (how, said) in [
                (
                    "free",
                    "double free of ADDR (a block of 64 bytes)".to_owned(),
                ),
                (
                    "realloc",
                    format!("realloc of ADDR, a block that is {free}"),
                ),
                (
                    "usable",
                    format!("malloc_usable_size of ADDR, a block that is {free}"),
                ),
            ] {
                let case = format!("{measures}, {block}, {how}");
                let variables = [("NEAP_HARDEN", measures)];
                let output = run(&program, &[OsStr::new(block), OsStr::new(how)], &variables);
                assert_eq!(
                    support::aborted(&output, &case),
                    format!("neap: {said}\n"),
                    "{case}"
                );
            }
        }
    }
}

/// Whether this kernel makes pages inaccessible without a mapping (`MADV_GUARD_INSTALL`).
fn has_guards() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(13))
}

/// Each program of `misuse/` ends by a signal, whatever it is that the mode sees first.
#[test]
fn every_misuse_ends_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse");
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // One tells of several, in children; the others take arguments.
    let apart = [
        "misuse.h",
        "double_free_around_others.c",
        "harden_no_access.c",
        "harden_tag.c",
        "harden_waiting.c",
    ];
    let library = support::library();
    for name in names.filter(|name| !apart.contains(&name.as_str())) {
        let source = format!("misuse/{name}");
        let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) else {
            return;
        };
        let output = run(&program, &[], &UNTAGGED);
        support::aborted(&output, &source);
        assert_eq!(support::text(&output.stdout), "", "{source}: not at once");
    }
}

/// Threads and forks work as they do by default, and so do all alignments.
#[test]
fn programs_work_as_by_default() {
    let library = support::library();
    let names = [
        "fork_threads",
        "short_threads",
        "trim_race",
        "thread_end",
        "alignments",
        "exchange",
    ];
    for name in names {
        let source = format!("programs/{name}.c");
        let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) else {
            return;
        };
        support::succeeds(&run(&program, &[], &ALL), &format!("{source} hardened"));
        if support::is_full() || name == "fork_threads" {
            let output = run(&program, &[], &[ALL[0], NO_BARRIER]);
            support::succeeds(&output, &format!("{source} hardened, no barrier"));
        }
    }
}

/// A file that was mapped over a part of a block keeps its contents, and another block gets zeros.
#[test]
fn blocks_that_were_mapped_over() {
    works("mapped", &ALL);
    works("mapped", &[("NEAP_HARDEN", "zero")]);
    let Some(program) = compile("programs/mapped_over.c", Artifact::Program, &[]) else {
        return;
    };
    // Not in quarantine: the program waits for the addresses of the block that it freed.
    // Without guards, small blocks of whole pages are in slabs.
    for measures in [
        "random,canary,zero,nullpage,guards",
        "random,canary,zero",
        "canary",
        "zero",
        "guards",
    ] {
        let output = run(&program, &[], &[("NEAP_HARDEN", measures)]);
        support::succeeds(&output, &format!("mapped_over, NEAP_HARDEN={measures}"));
    }
}

/// A case of `programs/hardened.c`, under these variables.
fn works(case: &str, variables: &[(&str, &str)]) {
    if let Some(program) = compile("programs/hardened.c", Artifact::Program, &[]) {
        let output = run(&program, &[OsStr::new(case)], variables);
        support::succeeds(&output, &format!("{case}, {variables:?}"));
    }
}

/// A handler of SIGABRT does not interrupt a change of the heap. So the program's end prints all
/// figures.
#[test]
fn a_free_that_aborts_is_in_no_change() {
    let Some(program) = compile("programs/aborted_free.c", Artifact::Program, &[]) else {
        return;
    };
    let output = run(&program, &[], &[UNTAGGED[0], ("NEAP_STATS", "text")]);
    assert_eq!(output.status.code(), Some(3));
    let said = support::text(&output.stderr);
    assert!(
        said.contains("past whose end") && said.contains("at its end"),
        "{said}"
    );
}

#[test]
fn locked_pages_get_no_guards() {
    works("locked", &ALL);
    works("behind", &[("NEAP_HARDEN", "guards,zero")]);
}

#[test]
fn a_guard_that_stays_is_in_no_later_block() {
    works("writable", &[("NEAP_HARDEN", "guards")]);
}

#[test]
fn blocks_between_guards_change_their_size() {
    works("resized", &ALL);
    works("resized", &[("NEAP_HARDEN", "guards,delay")]);
    works("shrunk", &ALL);
    works("shrunk", &[ALL[0], ("NEAP_SAMPLE", "4K")]);
    works("shrunk", &[ALL[0], ("NEAP_GUARD", "all")]);
    works("kept", &ALL);
}

#[test]
fn blocks_of_no_bytes_are_aligned() {
    for measures in ["1", "nullpage", "canary", "zero"] {
        works("nothing", &[("NEAP_HARDEN", measures)]);
    }
}

#[test]
fn blocks_come_in_random_order() {
    for measures in ["1", "random", "random,canary", "random,canary,zero"] {
        works("random", &[("NEAP_HARDEN", measures)]);
    }
    works("frees", &ALL);
    works("frees", &[("NEAP_HARDEN", "random,canary")]);
}

/// Without memory for a sample, the block is one of this mode all the same.
#[test]
fn samples_without_memory() {
    let sampled = ("NEAP_SAMPLE", "4K");
    works("short", &[ALL[0], ("NEAP_LIMIT", "48M"), sampled]);
}
