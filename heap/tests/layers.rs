//! The rooms and their direction: each room names only what stands below it. See `src/lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// Room and the rooms it may name.
const ROOMS: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("os", &["os", "base"]),
    ("page", &["page", "os", "base"]),
    ("stacks", &["stacks", "page", "os", "base"]),
    ("slab", &["slab", "os", "base"]),
    (
        "cache",
        &["cache", "reclaim", "slab", "stacks", "page", "os", "base"],
    ),
    ("hook", &["cache", "slab", "page", "os", "base"]),
    ("reclaim", ABOVE),
    ("entry", ABOVE),
];

/// What the entry points, and `reclaim` may name.
const ABOVE: &[&str] = &[
    "entry", "hook", "reclaim", "cache", "slab", "stacks", "page", "os", "base", "stats", "ledger",
    "control", "board", "sites", "classes",
];

/// The files of the room `entry`.
const ENTRY: &[&str] = &[
    "fork.rs",
    "free.rs",
    "init.rs",
    "large.rs",
    "malloc.rs",
    "realloc.rs",
    "stacks/overflow.rs",
    "stacks/stack.rs",
];

/// Functions of the C library that are cancellation points: no call of `malloc`'s family may be
/// one. See `os/calls.rs`.
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
    ("libc::abort", &["os/fatal.rs"]),
    ("no_mangle", &[]),
    ("export_name", &[]),
    ("extern crate std", &[]),
];

/// The instruments' files that speak to the kernel or the loader.
const SPEAK: &[&str] = &["instruments/peek.rs", "instruments/objects.rs"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The heap's source files.
fn files() -> Vec<(String, String)> {
    files_below("src")
}

/// The heap's source files, and the instruments' with [`INSTRUMENTS`] before their names.
fn files_of_both() -> Vec<(String, String)> {
    let instruments = files_below("../instruments/src").into_iter();
    let named = instruments.map(|(file, text)| (format!("{INSTRUMENTS}{file}"), text));
    files().into_iter().chain(named).collect()
}

const INSTRUMENTS: &str = "instruments/";

/// Every source file: its path below `folder`, and its text without comments and test modules.
fn files_below(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    assert!(paths.len() > 10, "the sources were not found");
    let text_of = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("\nmod tests {").next().unwrap().to_string();
        code.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let name_of = |path: &PathBuf| {
        path.strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_string()
    };
    paths
        .iter()
        .map(|path| (name_of(path), text_of(path)))
        .collect()
}

fn room_of(file: &str) -> &str {
    if ENTRY.contains(&file) {
        return "entry";
    }
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The rooms that follow `crate::` in a text, braces of a `use` included.
fn rooms_named(text: &str) -> Vec<String> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap().split(',').collect(),
            None => vec![rest],
        };
        for item in list {
            let word = item
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_');
            named.push(word.collect());
        }
    }
    named
}

#[test]
fn no_room_names_one_above_it() {
    let mut wrong = Vec::new();
    for (file, text) in files() {
        let room = room_of(&file);
        if ["lib", "testing"].contains(&room) {
            continue;
        }
        let (_, allowed) = ROOMS
            .iter()
            .find(|(name, _)| *name == room)
            .unwrap_or_else(|| panic!("{file}: no such room in the table; add it to both tables"));
        for named in rooms_named(&text) {
            let is_entry = ENTRY.contains(&format!("{named}.rs").as_str());
            let named = if is_entry { "entry".to_string() } else { named };
            if !allowed.contains(&named.as_str()) && named != room {
                wrong.push(format!("{file} names {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "upward edges: {wrong:#?}");
}

#[test]
fn some_words_have_one_place() {
    let mut wrong = Vec::new();
    for (file, text) in files_of_both() {
        for (word, places) in ONLY_THERE {
            if text.contains(word) && !places.contains(&file.as_str()) {
                wrong.push(format!("{file} says {word}"));
            }
        }
        let may_speak = room_of(&file) == "os" || SPEAK.contains(&file.as_str());
        if text.contains("libc::") && !may_speak {
            wrong.push(format!("{file} speaks to the kernel"));
        }
        // Magazines and the thread's slot; who called; the registers that a walk up the stack
        // begins with; another stack; system calls.
        let may_have_assembly = room_of(&file) == "cache"
            || ["instruments/unwind/", "os/scratch/", "os/linux/call.rs"]
                .iter()
                .any(|folder| file.starts_with(folder));
        if text.contains("asm!(") && !may_have_assembly {
            wrong.push(format!("{file} has assembly"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_call_is_a_cancellation_point() {
    let mut wrong = Vec::new();
    for (file, text) in files_of_both() {
        for name in CANCELLATION_POINTS {
            // What stands in `child.rs` is for tests.
            if text.contains(&format!("libc::{name}(")) && file != "os/child.rs" {
                wrong.push(format!("{file} calls {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_check_sees_an_upward_edge() {
    assert_eq!(
        rooms_named("use crate::{page::Use, cache};"),
        ["page", "cache"]
    );
    assert_eq!(rooms_named("let x = crate::free::free;"), ["free"]);
}
