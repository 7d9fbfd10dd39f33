//! The library exports exactly the surface, and the header declares its own part of it cleanly.

use crate::support::{self, Artifact};
use std::ffi::OsStr;
use std::process::Command;

/// Every exported name, sorted, one a line.
const GOLDEN: &str = include_str!("../symbols.golden");

#[test]
fn exports_are_exactly_the_surface() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(support::library())
        .output();
    let output = output.expect("nm (binutils) is here: the Rust toolchain links with it");
    assert!(output.status.success(), "{}", support::text(&output.stderr));
    let listing = support::text(&output.stdout);
    let mut names: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    names.sort_unstable();
    assert_eq!(names, GOLDEN.lines().collect::<Vec<_>>());
}

/// Warnings that the header must not cause in its users' builds.
const STRICT: [&str; 5] = [
    "-Wall",
    "-Wextra",
    "-pedantic",
    "-Wwrite-strings",
    "-Werror",
];

/// Compiles the header alone, beside the system's own declarations.
fn header_is_clean(source: &str, standards: &[&str]) {
    for standard in standards {
        let flags: Vec<&OsStr> = STRICT.iter().chain([standard]).map(OsStr::new).collect();
        support::compile_strictly(source, Artifact::Plugin, &flags);
    }
}

#[test]
fn header_is_clean_c() {
    header_is_clean("programs/header.c", &["-std=c99", "-std=c11", "-std=gnu11"]);
}

#[test]
fn header_is_clean_cxx() {
    header_is_clean(
        "programs/header.cc",
        &["-std=c++11", "-std=c++17", "-std=gnu++17"],
    );
}
