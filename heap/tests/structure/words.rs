//! Words that have one place, and words that have none.

use crate::layers::room_of;
use crate::sources::{files_of_both, sources};
use std::fs;
use std::path::{Path, PathBuf};

/// Functions of the C library that are cancellation points: no call of `malloc`'s family may be
/// one. See `os/file.rs`.
const CANCELLATION_POINTS: &[&str] = &[
    "accept",
    "close",
    "connect",
    "creat",
    "fcntl",
    "fdatasync",
    "fsync",
    "getrandom",
    "lockf",
    "msync",
    "nanosleep",
    "clock_nanosleep",
    "open",
    "open64",
    "openat",
    "openat64",
    "pause",
    "poll",
    "ppoll",
    "pread",
    "pread64",
    "preadv",
    "pselect",
    "pwrite",
    "pwrite64",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "select",
    "sem_wait",
    "send",
    "sendmsg",
    "sendto",
    "sigpause",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sleep",
    "tcdrain",
    "usleep",
    "wait",
    "waitpid",
    "write",
    "writev",
];

/// Files that alone may contain a word.
const ONLY_THERE: &[(&str, &[&str])] = &[
    ("sync::atomic", &["base/sync.rs"]),
    ("core::cell", &["base/sync.rs"]),
    ("libc::abort", &["os/abort.rs"]),
    ("no_mangle", &[]),
    ("export_name", &[]),
    ("extern crate std", &[]),
];

/// The instruments' files that speak to the kernel or the loader.
const SPEAK: &[&str] = &["instruments/peek.rs", "instruments/objects.rs"];

#[test]
fn some_words_have_one_place() {
    let mut wrong = Vec::new();
    for (file, text) in files_of_both() {
        for (word, places) in ONLY_THERE {
            if text.contains(word) && !places.contains(&file.as_str()) {
                wrong.push(format!("{file} says {word}"));
            }
        }
        let may_speak =
            ["os", "testing"].contains(&room_of(&file)) || SPEAK.contains(&file.as_str());
        if text.contains("libc::") && !may_speak {
            wrong.push(format!("{file} speaks to the kernel"));
        }
        // Magazines and the thread's slot; who called; the registers that a walk up the stack
        // begins with; another stack; system calls; memory tags; requests to valgrind.
        let may_have_assembly = room_of(&file) == "cache"
            || [
                "instruments/unwind/",
                "os/x86_64.rs",
                "os/aarch64.rs",
                "os/tagging.rs",
                "testing/access.rs",
            ]
            .iter()
            .any(|folder| file.starts_with(folder));
        if text.contains("asm!(") && !may_have_assembly {
            wrong.push(format!("{file} has assembly"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn source_files_that_comments_name_exist() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in ["heap", "instruments", "shared", "neap", "capi", "cli"] {
        sources(&workspace.join(folder), &mut all);
    }
    let ours = ["heap/src", "instruments/src"].map(|folder| workspace.join(folder));
    let is_ours = |path: &&PathBuf| ours.iter().any(|folder| path.starts_with(folder));
    let mut wrong = Vec::new();
    for path in all.iter().filter(is_ours) {
        let text = fs::read_to_string(path).unwrap();
        for comment in text
            .lines()
            .filter_map(|line| Some(line.split_once("//")?.1))
        {
            let words = comment.split(|c: char| !(c.is_alphanumeric() || "_./".contains(c)));
            let names = words.map(|word| word.trim_end_matches('.'));
            for name in names.filter(|name| name.ends_with(".rs")) {
                if !all.iter().any(|file| file.ends_with(name)) {
                    wrong.push(format!("{} names {name}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no such file: {wrong:#?}");
}

#[test]
fn no_call_is_a_cancellation_point() {
    let mut wrong = Vec::new();
    for (file, text) in files_of_both() {
        for name in CANCELLATION_POINTS {
            if text.contains(&format!("libc::{name}(")) && room_of(&file) != "testing" {
                wrong.push(format!("{file} calls {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
