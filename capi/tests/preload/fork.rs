//! Copies of the process while the heap is at work: no copy hangs, and a copy costs next to
//! nothing.
//!
//! `FORK_ROUNDS` says how often each program forks (`ci/full.sh`: 10,000; raw copies twice as
//! often).

use crate::c_library::{CLibrary, leaves_out};
use crate::support::{
    Artifact, Built, bare, compile, compile_strictly, library, run, succeeds, succeeds_or_skips,
    text,
};
use std::env;
use std::ffi::OsStr;

/// The purge thread is there, and works all the time.
const BUSY: (&str, &str) = ("NEAP_DECAY", "10");
/// It is there, and rests.
const LONG: (&str, &str) = ("NEAP_DECAY", "600000");
/// There is none.
const NONE: (&str, &str) = ("NEAP_PURGE_THREAD", "0");

/// More faults than under the C library's own heap that a child may take, without and with a purge
/// thread. With one the C library's own fork takes locks, and touches more of its pages. On Linux
/// 6.18 it takes 12 more, on 5.10 it takes 13.
const MORE_FAULTS: [u64; 2] = [3, 13];

/// How often a program forks, unless `FORK_ROUNDS` says more.
fn rounds(least: u32) -> String {
    let told = env::var("FORK_ROUNDS").ok();
    let told = told.map(|text| text.parse().expect("FORK_ROUNDS is a number"));
    told.unwrap_or(least).to_string()
}

fn built(name: &str) -> Option<Built> {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    compile_strictly(
        &format!("programs/fork/{name}.c"),
        Artifact::Program,
        &flags,
    )
}

fn passes(program: &Built, arguments: &[&str], variable: (&str, &str)) {
    let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
    let output = run(program, &arguments, &[variable]);
    succeeds_or_skips(&output, &format!("{arguments:?} {variable:?}"));
}

#[test]
fn fork_while_a_thread_flushes_all_streams_and_another_reads_lines() {
    if let Some(program) = built("streams") {
        passes(&program, &[&rounds(600)], BUSY);
    }
}

/// The children of the ordinary forks allocate.
#[test]
fn fork_beside_a_thread_that_forks_in_handlers() {
    let Some(program) = built("beside") else {
        return;
    };
    for variable in [BUSY, NONE, ("NEAP_HARDEN", "1"), ("NEAP_CHECK", "1")] {
        passes(&program, &[&rounds(300)], variable);
    }
}

/// A handler that forks while glibc forks waits for a lock of glibc.
#[test]
fn a_signal_that_comes_within_a_fork_is_handled_after_it() {
    let (Some(program), Some(other)) = (
        built("signalled"),
        compile("programs/fork/signalled_library.c", Artifact::Plugin, &[]),
    ) else {
        return;
    };
    let both = [library().display(), other.display()].map(|path| path.to_string());
    for variable in [NONE, ("NEAP_PURGE_THREAD", "always")] {
        let variables = [
            ("LD_PRELOAD", both.join(":")),
            (variable.0, variable.1.into()),
        ];
        let variables = variables
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        succeeds(&run(&program, &[], &variables), &format!("{variable:?}"));
    }
}

#[test]
fn fork_in_a_handler_that_interrupted_the_heap() {
    let Some(program) = built("handler") else {
        return;
    };
    for children in ["end", "return"] {
        for variable in [BUSY, LONG, NONE] {
            passes(&program, &[&rounds(300), children], variable);
        }
    }
}

#[test]
fn fork_in_a_handler_while_threads_wait_for_its_locks() {
    let Some(program) = built("waits") else {
        return;
    };
    for children in ["end", "return"] {
        for variable in [BUSY, NONE] {
            // A child that goes on trims many times.
            let most = rounds(150).parse::<u32>().expect("a number").min(2000);
            passes(&program, &[&most.to_string(), children], variable);
        }
    }
}

#[test]
fn fork_in_handlers_of_several_threads_at_once() {
    let Some(program) = built("handlers") else {
        return;
    };
    let calls = ["fork", "_Fork"].into_iter();
    for call in calls.filter(|call| !leaves_out(&format!("handlers {call}"))) {
        for variable in [BUSY, NONE] {
            passes(&program, &[&rounds(300), call], variable);
        }
    }
}

#[test]
fn fork_in_a_handler_that_interrupted_a_drain() {
    if let Some(program) = built("drained") {
        // A round takes a tenth of a second.
        let some = rounds(30).parse::<u32>().expect("a number").min(300);
        passes(&program, &[&some.to_string()], NONE);
    }
}

/// At each exit the statistics visit all caches.
#[test]
fn fork_in_a_handler_that_interrupted_a_threads_first_allocation_or_its_end() {
    let Some(program) = built("steps") else {
        return;
    };
    let file = env::temp_dir().join(format!("neap-fork-steps-{}", std::process::id()));
    let name = file.to_str().expect("a path of UTF-8");
    let variables = [NONE, ("NEAP_STATS", "json"), ("NEAP_STATS_FILE", name)];
    let forks = rounds(30).parse::<u32>().expect("a number").min(2000);
    let forks = forks.to_string();
    for stepped in ["first", "end"] {
        for copy in ["fork", "clone"] {
            let arguments = [&forks, stepped, copy].map(OsStr::new);
            let output = run(&program, &arguments, &variables);
            succeeds_or_skips(&output, &format!("{arguments:?}"));
        }
    }
    // There is none where the program was skipped.
    let _ = std::fs::remove_file(&file);
}

#[test]
fn children_allocate_from_a_library_that_was_opened_late() {
    if let Some(program) = built("opened_late") {
        let output = bare(&program).arg(library()).output();
        succeeds(&output.expect("it starts"), "opened_late.c");
    }
}

#[test]
fn raw_copies_allocate_whatever_the_purge_thread_does() {
    let Some(program) = built("raw") else {
        return;
    };
    let mut ways = vec!["syscall", "clone", "clone3", "clone3-short", "_Fork"];
    if cfg!(target_arch = "x86_64") {
        ways.push("fork-number");
    }
    let most = rounds(200).parse::<u32>().expect("a number") * 2;
    for way in ways {
        passes(&program, &[&most.to_string(), way], BUSY);
    }
}

#[test]
fn a_strict_sandbox_sees_no_call_that_it_does_not_allow() {
    let Some(program) = built("strict") else {
        return;
    };
    for way in ["prctl", "syscall", "threads"] {
        passes(&program, &[way, "none"], BUSY);
        passes(&program, &[way, "thread"], LONG);
    }
}

#[test]
fn a_raw_copy_asks_the_kernel_seldom_whose_process_it_is() {
    if let Some(program) = built("asked") {
        passes(&program, &[], LONG);
    }
}

#[test]
fn a_child_that_does_nothing_takes_few_faults() {
    let Some(program) = compile("programs/fork/faults.c", Artifact::Program, &[]) else {
        return;
    };
    let faults = |output: std::process::Output| {
        succeeds(&output, "faults");
        let said = text(&output.stdout);
        said.trim().parse::<u64>().expect("a number")
    };
    let plain = faults(bare(&program).output().expect("it starts"));
    let spread = match env::var_os("LIBRARY_UNDER_TEST") {
        // musl's own fork touches fewer pages.
        Some(_) if CLibrary::under_test() == CLibrary::Musl => 2,
        Some(_) => 0,
        // Code is spread over more pages where it is not optimised as a whole.
        None => 12,
    };
    for (thread, more) in ["0", "always"].into_iter().zip(MORE_FAULTS) {
        let neap = faults(run(&program, &[], &[("NEAP_PURGE_THREAD", thread)]));
        println!(
            "{neap} faults under {}, {plain} without, thread {thread}",
            library().display()
        );
        assert!(
            neap <= plain + more + spread,
            "{neap} faults, without Neap {plain}, thread {thread}"
        );
    }
}
