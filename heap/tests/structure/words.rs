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

/// The functions of the C library that are called by name. Another library may define a name first,
/// and allocate in its function, so these are called with no lock held that an allocation takes.
/// Calls to the kernel go by number (`os/mod.rs`).
const BY_NAME: &[&str] = &[
    "__errno_location",
    "abort",
    "dl_iterate_phdr",
    "dlsym",
    "getauxval",
    "pthread_atfork",
    "pthread_attr_destroy",
    "pthread_attr_init",
    "pthread_attr_setdetachstate",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_getspecific",
    "pthread_key_create",
    "pthread_setspecific",
    "sbrk",
    "sigaction",
];

/// Files that alone may contain a word.
const ONLY_THERE: &[(&str, &[&str])] = &[
    ("sync::atomic", &["base/sync.rs"]),
    ("core::cell", &["base/sync.rs"]),
    ("libc::abort", &["os/process.rs"]),
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
        // begins with; another stack; system calls; memory tags; where a section begins; requests
        // to valgrind.
        let may_have_assembly = room_of(&file) == "cache"
            || [
                "instruments/unwind/",
                "os/x86_64.rs",
                "os/aarch64.rs",
                "os/lock.rs",
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

/// The functions of the crate `libc` that a text calls. Its macros are in capitals.
fn called(text: &str) -> Vec<String> {
    let is_of_a_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let parts = text.split("libc::").skip(1);
    let names = parts.filter_map(|rest| {
        let name: String = rest.chars().take_while(is_of_a_name).collect();
        rest[name.len()..].starts_with('(').then_some(name)
    });
    let is_macro = |name: &String| name.starts_with(|c: char| c.is_ascii_uppercase());
    names.filter(|name| !is_macro(name)).collect()
}

#[test]
fn the_kernel_is_called_by_number() {
    let mut wrong = Vec::new();
    for (file, text) in files_of_both() {
        let is_exempt = room_of(&file) == "testing";
        let names = called(&text).into_iter();
        for name in names.filter(|name| !is_exempt && !BY_NAME.contains(&name.as_str())) {
            wrong.push(format!("{file} calls {name}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        called("libc::SYS_x, libc::kill(1), libc::SIGRTMIN()"),
        ["kill"]
    );
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
