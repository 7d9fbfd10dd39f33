//! What a test says when it cannot run here. The tests of all crates share this file.
//!
//! With `REQUIRE_ALL=1` a skipped test fails. `ci/stranger.sh` runs the tests as a plain user, and
//! then as root those that need root: `LEFT_TO_ROOT` names the file with the list of them.

#![allow(dead_code)]

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reports that a test, or a part of it, is skipped: what is missing, and what to do about it.
#[track_caller]
pub fn skipped(why: &str) {
    let required = env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "required: {why}");
    announce(why);
}

/// [`skipped`] for want of privileges, which root has.
#[track_caller]
pub fn needs_root(why: &str) {
    match env::var_os("LEFT_TO_ROOT") {
        Some(list) if !is_root() => {
            let line = line_of_this_test();
            let file = OpenOptions::new().append(true).create(true).open(&list);
            let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
            written.unwrap_or_else(|error| panic!("{}: {error}", list.display()));
            announce(&format!("{why} (left to root)"));
        }
        _ => skipped(&format!("{why} (run the tests as root)")),
    }
}

/// Reports what is skipped even with `REQUIRE_ALL=1`: the kernel or the machine lacks it, or
/// another script tests it.
pub fn announce(why: &str) {
    static SO_FAR: AtomicUsize = AtomicUsize::new(0);
    let count = SO_FAR.fetch_add(1, Ordering::Relaxed) + 1;
    let name = this_test();
    // Not eprintln: the harness would hide it in a test that passes.
    let _ = writeln!(io::stderr(), "SKIPPED ({count} so far) {name}: {why}");
}

pub fn is_root() -> bool {
    // SAFETY: only reads the credentials of this process.
    unsafe { libc::geteuid() == 0 }
}

/// The harness names each test's thread after the test.
fn this_test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a test").to_owned()
}

/// How `ci/stranger.sh` finds the test again: directory, program and name, separated by tabs.
fn line_of_this_test() -> String {
    let folder = env::current_dir().expect("a test runs somewhere");
    let program = env::current_exe().expect("a test knows its own path");
    let name = this_test();
    format!("{}\t{}\t{name}\n", folder.display(), program.display())
}
