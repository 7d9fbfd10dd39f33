//! Every C entry point behaves as glibc's does; the programs say how.

use crate::support::{self, Artifact, compile, passes, passes_linked, run, succeeds};
use std::ffi::OsStr;

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

/// Options, and what shows in `pairs.c` or its statistics that they are in force.
const OPTIONS: [(&str, &str, &str); 14] = [
    ("NEAP_CHECK", "1", "second"),
    ("NEAP_HARDEN", "1", "second past"),
    ("NEAP_HARDEN", "canary", "second past"),
    ("NEAP_GUARD", "all", "second past far thread"),
    ("NEAP_COUNT", "1", "count"),
    ("NEAP_SAMPLE", "64K", "sample"),
    ("NEAP_LIMIT", "64M", "limit"),
    ("NEAP_PURGE_THREAD", "always", "thread"),
    ("NEAP_CACHE", "0", ""),
    ("NEAP_THREAD_CACHE", "0", "second"),
    ("NEAP_DECAY", "0", ""),
    ("NEAP_THP", "always", ""),
    ("NEAP_STATUS_PAGE", "1", ""),
    ("NEAP_KERNEL_QUERIES", "0", ""),
];

/// What shows of two options, in order. Without queries of the kernel there are neither guarded
/// blocks nor samples, as a line says, and there is no thread, as `docs/options.md` says.
fn expected(pair: [(&str, &str, &str); 2]) -> Vec<String> {
    let asks = pair.iter().all(|(name, ..)| *name != "NEAP_KERNEL_QUERIES");
    let needs = |name| ["NEAP_GUARD", "NEAP_SAMPLE", "NEAP_PURGE_THREAD"].contains(&name);
    let shown = pair.iter().filter(|(name, ..)| asks || !needs(*name));
    let words = shown.flat_map(|(.., words)| words.split_whitespace());
    let mut words: Vec<String> = words.map(String::from).collect();
    words.sort();
    words.dedup();
    words
}

#[test]
fn every_two_options_work_together() {
    let Some(program) = compile("programs/pairs.c", Artifact::Program, &[]) else {
        return;
    };
    let pairs = (0..OPTIONS.len()).flat_map(|one| (0..one).map(move |other| [one, other]));
    let pairs = pairs.map(|pair| pair.map(|number| OPTIONS[number]));
    let mut wrong = Vec::new();
    for pair in pairs.filter(|[one, other]| one.0 != other.0) {
        let [one, other] = pair.map(|(name, value, _)| (name, value));
        let expected = expected(pair);
        let thread = OsStr::new("thread");
        let waits_for: &[&OsStr] = match expected.iter().any(|word| word == "thread") {
            true => &[thread],
            false => &[],
        };
        let output = run(&program, waits_for, &[one, other, ("NEAP_STATS", "text")]);
        let (stdout, stderr) = (support::text(&output.stdout), support::text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{pair:?}: {stderr}");
        let mut words: Vec<&str> = stdout.split_whitespace().collect();
        words.extend(stderr.contains(" allocations of ").then_some("count"));
        // What the samples alone tell.
        let sampled = "asked for by the program (estimated from samples)";
        words.extend(stderr.contains(sampled).then_some("sample"));
        // A block may be a sample by chance, whose second free is always seen.
        let may_see = [one, other].contains(&("NEAP_SAMPLE", "64K"));
        words.retain(|word| *word != "second" || !may_see || expected.iter().any(|it| it == word));
        words.sort_unstable();
        if words != expected {
            wrong.push((one, other, words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sampled_and_guarded_blocks_count_in_hardened_mode() {
    let Some(program) = compile("programs/pairs.c", Artifact::Program, &[]) else {
        return;
    };
    for chosen in [("NEAP_SAMPLE", "4K"), ("NEAP_GUARD", "1ms")] {
        let modes = [
            ("NEAP_HARDEN", "1"),
            ("NEAP_COUNT", "1"),
            ("NEAP_STATS", "text"),
        ];
        let output = run(&program, &[], &[&modes[..], &[chosen]].concat());
        let stderr = support::text(&output.stderr);
        // Children of the program say theirs as well.
        let lines = stderr
            .lines()
            .filter(|line| line.contains(" allocations of "));
        let counts = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
        let count: Option<u32> = counts.max();
        assert!(count >= Some(5000), "{chosen:?}: {stderr}");
    }
}

/// With huge pages, the kernel makes all of a slab resident whose first page is used.
#[test]
fn samples_cost_little_memory() {
    let Some(program) = compile("programs/sampled_memory.c", Artifact::Program, &[]) else {
        return;
    };
    for pages in ["always", "never"] {
        let resident = |options: &[(&str, &str)]| -> usize {
            let output = run(&program, &[], &[&[("NEAP_THP", pages)], options].concat());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let told = support::text(&output.stdout);
            told.trim().parse().expect("a number of KiB")
        };
        let most = resident(&[]) * 105 / 100 + 2048;
        for rate in ["512K", "64K", "16K", "4K"] {
            let sampled = resident(&[("NEAP_SAMPLE", rate)]);
            assert!(sampled <= most, "{pages}, {rate}: {sampled} of {most} KiB");
        }
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
