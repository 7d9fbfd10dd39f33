//! What a small and short-lived process costs under the library, in counts.

use crate::c_library::CLibrary;
use crate::support::{
    Artifact, bare, compile, library, preloaded, run, succeeds, succeeds_or_skips, text,
};
use std::env;
use std::process::Output;

/// What `programs/start/small.c` prints.
#[derive(Debug)]
struct Small {
    mappings: u64,
    writable_kib: u64,
    faults: u64,
    written_kib: u64,
}

/// The least of some runs: where the kernel puts things differs from one to the next.
fn least(runs: impl Fn() -> Output) -> Small {
    let one = || {
        let output = runs();
        succeeds(&output, "small.c");
        let said = text(&output.stdout);
        let numbers = said
            .split_whitespace()
            .map(|word| word.parse().expect("a number"));
        let numbers: Vec<u64> = numbers.collect();
        Small {
            mappings: numbers[0],
            writable_kib: numbers[1],
            faults: numbers[2],
            written_kib: numbers[3],
        }
    };
    (0..20).map(|_| one()).fold(one(), |least, small| Small {
        mappings: least.mappings.min(small.mappings),
        writable_kib: least.writable_kib.min(small.writable_kib),
        faults: least.faults.min(small.faults),
        written_kib: least.written_kib.min(small.written_kib),
    })
}

#[test]
fn a_small_process_costs_little_more_than_without() {
    let Some(program) = compile("programs/start/small.c", Artifact::Program, &[]) else {
        return;
    };
    // Both are started in the same way: what happens before `exec` counts.
    let plain = least(|| bare(&program).output().expect("it starts"));
    let neap = least(|| preloaded(&program, &[]).output().expect("it starts"));
    println!("{neap:?} under {}, {plain:?} without", library().display());
    // The tests' own library is not optimised as a whole, so its code and data are spread over more
    // pages, and it loads one more library. What a process writes hardly varies: 108 KiB more, and
    // with the tests' own library 156 or 164, as its data happen to lie. How many pages of files a
    // fault maps depends on what the kernel keeps of the file: 36 to 38 more faults were counted,
    // and 52.
    let (mappings, faults, written_kib) = match env::var_os("LIBRARY_UNDER_TEST") {
        Some(_) => (7, 48, 112),
        None => (12, 80, 168),
    };
    assert!(neap.mappings <= plain.mappings + mappings, "mappings");
    assert!(neap.faults <= plain.faults + faults, "page faults");
    assert!(
        neap.written_kib <= plain.written_kib + written_kib,
        "written memory"
    );
    assert!(
        neap.writable_kib <= plain.writable_kib + 2200,
        "writable memory"
    );
}

/// A process of several threads that registers for `membarrier` waits for a grace period of RCU:
/// for 6 to 30 ms, or seconds on an overloaded machine, in a `malloc_trim` or before an answer.
#[test]
fn the_first_drain_of_a_process_with_threads_waits_for_no_grace_period() {
    let flags = [std::ffi::OsStr::new("-pthread")];
    if let Some(program) = compile("programs/start/barrier.c", Artifact::Program, &flags) {
        succeeds_or_skips(&run(&program, &[], &[]), "barrier.c");
    }
}

/// An option that the library does not know: it says so if it starts.
const UNKNOWN: (&str, &str) = ("NEAP_TEST_OF_THE_START", "1");

/// A failing `dlsym` in the constructor had libc allocate its error's text there, and free it.
#[test]
fn a_program_with_its_own_malloc_is_left_alone() {
    let flags = ["-rdynamic".as_ref()];
    if let Some(program) = compile("programs/start/own_malloc.c", Artifact::Program, &flags) {
        succeeds(&run(&program, &[], &[UNKNOWN]), "own_malloc.c");
    }
}

#[test]
fn the_start_leaves_no_error_to_dlerror() {
    let Some(program) = compile("programs/start/dlerror.c", Artifact::Program, &[]) else {
        return;
    };
    let settings: [&[(&str, &str)]; 5] = [
        &[],
        &[("NEAP_PURGE_THREAD", "never")],
        &[("NEAP_PURGE_THREAD", "always")],
        &[("NEAP_PURGE_THREAD", "never"), ("NEAP_SAMPLE", "64K")],
        &[("NEAP_PURGE_THREAD", "never"), ("NEAP_GUARD", "20ms")],
    ];
    for variables in settings {
        let output = run(&program, &[], variables);
        assert_eq!(text(&output.stdout), "", "{variables:?}");
        succeeds(&output, "dlerror.c");
    }
    if CLibrary::under_test() == CLibrary::Musl {
        // It opens no library late that needs thread-local memory at a fixed place.
        return;
    }
    let mut alone = bare(&program);
    let output = alone.arg(library()).output().expect("it starts");
    assert_eq!(text(&output.stdout), "");
    succeeds(&output, "dlerror.c, opened late");
}
