//! The case `download`: what its server accepts as a report, and a run that loses bytes. Tests that
//! need the Python packages use those that are installed, and install nothing.

use crate::skips::skipped;
use crate::stage::{figure, folder, lab, parsed, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What two downloads of two bytes tell, with the CRC-32 of these bytes.
const REPORT: &str = "download=2:2659403885\ndownload=2:2659403885\nreads=9\nlargest_buffer=3\n";

/// What the server says of a report on downloads of the bytes `ab` in chunks of four.
fn judged(report: &str) -> String {
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import server\n\
                  print(server.complaint(sys.argv[2], b'ab', 4, 2))";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/download");
    let mut python = Command::new("python3");
    let output = python.args(["-B", "-c", script, folder, report]).output();
    let output = output.expect("python3 does not start");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn wrong_and_missing_bytes_are_refused() {
    assert_eq!(judged(REPORT), "None\n");
    for (good, bad, expected) in [
        (":2659403885", ":78", "not those that were sent"),
        ("=2:", "=1:", "of 2 bytes a download came [[1, "),
        (
            "download=2:2659403885\n",
            "",
            "of 2 bytes a download came [[2, ",
        ),
        ("=2:", "=3:", "[3, "),
        ("buffer=3", "buffer=2", "not the chunk's 4"),
    ] {
        let said = judged(&REPORT.replacen(good, bad, 1));
        assert!(said.contains(expected), "{bad}: {said}");
    }
}

#[test]
fn every_package_is_pinned() {
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/download/case.toml");
    let case = fs::read_to_string(case).expect("no case");
    let (_, packages) = case.split_once("pip = [\n").expect("no packages");
    let packages = packages.split_once("\n]").expect("no end").0.lines();
    let packages: Vec<&str> = packages.collect();
    assert!(packages.len() > 3 && packages.iter().all(|line| line.contains("==")));
}

/// Runs the case with chunks of `mib` under the library `neap`, or under the C library without one;
/// `None` without the packages.
fn run(mib: &str, neap: Option<&Path>) -> Option<Output> {
    let listed = text(&lab(&["cases", "--list", "--only", "download"]).stdout);
    if listed.contains("not installed") {
        skipped("no Python packages: neap lab cases --install --only download");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_neap-lab"));
    command.args(["cases", "--only", "download", "--quick", "--json"]);
    command.env("DOWNLOAD_CHUNK", mib);
    match neap {
        Some(library) => command.args(["--peers", "neap", "--neap"]).arg(library),
        None => command.args(["--peers", "glibc"]),
    };
    Some(command.output().expect("neap-lab does not start"))
}

#[test]
fn a_small_download_comes_whole() {
    let Some(output) = run("1", None) else { return };
    let json = parsed(&output);
    assert_eq!(figure(&json, "download", "glibc", "outcome"), "ok");
    assert_eq!(figure(&json, "download", "glibc", "check"), "1-mib-zeroed");
}

/// Wraps the C library's functions. The buffered reader shrinks a chunk by realloc to the part that
/// it could fill, and this realloc changes a byte of it.
const MALLOC: &str = r#"
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void free(void *block) { __libc_free(block); }

void *realloc(void *block, size_t size) {
    char *moved = __libc_realloc(block, size);
    if (moved && size > 500000) moved[size / 2] += 1;
    return moved;
}
"#;

#[test]
fn wrong_bytes_fail_the_run() {
    let home = folder("forgetful");
    let (source, library) = (home.join("malloc.c"), home.join("libneap.so"));
    fs::write(&source, MALLOC).expect("cannot write");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
    let compiled = compiler.args([&library, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc failed");
    let Some(output) = run("100", Some(&library)) else {
        return;
    };
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let told = text(&output.stdout);
    assert!(told.contains("are not those that were sent"), "{told}");
}
