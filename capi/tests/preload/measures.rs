//! Correct programs under every pair of measures against memory errors, and with every other mode.
//! A false report is the worst fault of a checker.

use crate::support::{Artifact, Built, compile, library, run, succeeds};
use std::path::Path;

/// The measures of `NEAP_HARDEN`, and `NEAP_CHECK`.
const MEASURES: [&str; 9] = [
    "random", "canary", "delay", "zero", "nullpage", "guards", "deletes", "tag", "check",
];

/// Frees that state sizes and alignments.
fn program() -> Option<Built> {
    compile(
        "programs/measures.cc",
        Artifact::Program,
        &[library().as_os_str()],
    )
}

/// The sets of one measure, of two, of all but one, and of all.
fn sets() -> Vec<Vec<&'static str>> {
    let numbers = 0..MEASURES.len();
    let pairs = numbers
        .clone()
        .flat_map(|first| (first..MEASURES.len()).map(move |second| (first, second)));
    let mut sets: Vec<Vec<_>> = pairs
        .map(|(first, second)| match first == second {
            true => vec![MEASURES[first]],
            false => vec![MEASURES[first], MEASURES[second]],
        })
        .collect();
    sets.extend(numbers.map(|left| {
        let others = MEASURES.iter().filter(|name| **name != MEASURES[left]);
        others.copied().collect()
    }));
    sets.push(MEASURES.to_vec());
    sets
}

/// Runs the program under a set of measures and more variables.
fn passes_under(program: &Path, set: &[&str], others: &[(&str, &str)]) {
    let hardened: Vec<_> = set
        .iter()
        .copied()
        .filter(|name| *name != "check")
        .collect();
    let hardened = match hardened.is_empty() {
        true => "0".to_owned(),
        false => hardened.join(","),
    };
    let check = if set.contains(&"check") { "1" } else { "0" };
    let modes = [("NEAP_HARDEN", hardened.as_str()), ("NEAP_CHECK", check)];
    let output = run(program, &[], &[&modes, others].concat());
    succeeds(&output, &format!("{set:?}, {others:?}"));
}

#[test]
fn correct_frees_under_every_pair_of_measures() {
    let Some(program) = program() else { return };
    for set in sets() {
        passes_under(&program, &set, &[]);
    }
}

/// Blocks that are older than the measures have the sizes that are usual without them.
#[test]
fn correct_frees_where_blocks_are_older_than_the_measures() {
    let early = compile("programs/early.c", Artifact::Plugin, &[]);
    let (Some(program), Some(early)) = (program(), early) else {
        return;
    };
    let early = early.to_str().expect("a path of letters");
    // The measures that give requests other classes.
    let moves = |set: &Vec<&str>| set.contains(&"canary") || set.contains(&"nullpage");
    for set in sets().into_iter().filter(moves) {
        passes_under(&program, &set, &[("LD_AUDIT", early)]);
    }
}

#[test]
fn correct_frees_with_other_modes() {
    let Some(program) = program() else { return };
    for set in [&[][..], &["nullpage", "deletes"], &["check"], &MEASURES] {
        for other in [
            ("NEAP_COUNT", "1"),
            ("NEAP_SAMPLE", "4K"),
            ("NEAP_GUARD", "all"),
            ("NEAP_GUARD", "1ms"),
            ("NEAP_THREAD_CACHE", "0"),
        ] {
            passes_under(&program, set, &[other]);
        }
    }
}
