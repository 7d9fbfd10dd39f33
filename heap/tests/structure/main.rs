//! The layers of `src/lib.rs`: each names only layers below it, and no files import each other in a
//! circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each layer, and the layers that it may name.
const ROOMS: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("os", &["os", "base"]),
    ("pages", &["pages", "os", "base"]),
    ("stacks", &["stacks", "pages", "os", "base"]),
    ("slab", &["slab", "os", "base"]),
    (
        "cache",
        &["cache", "reclaim", "slab", "stacks", "pages", "os", "base"],
    ),
    ("hook", &["cache", "slab", "pages", "os", "base"]),
    ("reclaim", ABOVE),
    ("entry", ABOVE),
];

/// The layers that the entry points and `reclaim` may name.
const ABOVE: &[&str] = &[
    "entry",
    "hook",
    "reclaim",
    "cache",
    "slab",
    "stacks",
    "pages",
    "os",
    "base",
    "stats",
    "ledger",
    "control",
    "status_page",
    "sites",
    "classes",
];

/// The files of the layer `entry`.
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
    assert!(paths.len() > 5, "the sources were not found");
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

/// The layers that follow `crate::` in a text, including those in the braces of a `use`.
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

/// A file's module path: `page/mod.rs` is `[page]`, `lib.rs` is the root.
fn module_of(file: &str) -> Vec<String> {
    let mut path: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if path.last() == Some(&"mod") || path == ["lib"] {
        path.pop();
    }
    path.into_iter().map(String::from).collect()
}

/// Whether a file is compiled for tests only.
fn is_for_tests(file: &str) -> bool {
    let folders: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let is_test = |name: &&str| ["tests", "testing", "fake", "child"].contains(name);
    folders
        .iter()
        .any(|name| is_test(name) || name.ends_with("models"))
        || folders.last() == Some(&"lock_loom")
}

/// The single paths of a `use` tree.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        return vec![path.trim().to_string()];
    };
    let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => branches.push(String::new()),
            letter => branches.last_mut().unwrap().push(letter),
        }
    }
    let branches = branches.iter().map(|branch| branch.trim());
    branches
        .filter(|branch| !branch.is_empty())
        .flat_map(|branch| paths_of(&format!("{}{branch}", head.trim())))
        .collect()
}

/// The paths that a file names: in its `use` statements, and inline from `crate::` or `super::` on.
fn paths_named(text: &str) -> Vec<String> {
    let (mut named, mut body) = (Vec::new(), String::new());
    let mut is_test_only = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let statement = line.trim_start();
        let is_use = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "]
            .iter()
            .find_map(|head| statement.strip_prefix(head));
        if let Some(first) = is_use {
            let mut tree = first.to_string();
            while !tree.contains(';') {
                tree.push_str(lines.next().unwrap_or(";"));
            }
            if !is_test_only {
                named.extend(paths_of(tree.split(';').next().unwrap()));
            }
        } else {
            body.push_str(line);
            body.push('\n');
        }
        is_test_only = statement.starts_with("#[cfg(") && statement.contains("test");
    }
    for root in ["crate::", "super::"] {
        for (at, _) in body.match_indices(root) {
            let is_path = |letter: &char| letter.is_alphanumeric() || "_:".contains(*letter);
            let begins = !body[..at].ends_with("::");
            let path: String = body[at..].chars().take_while(is_path).collect();
            named.extend(begins.then_some(path));
        }
    }
    named
}

/// Which file imports which: both by their place in `modules`.
fn imports(files: &[(String, String)]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<Vec<String>, usize> = files
        .iter()
        .enumerate()
        .map(|(at, (file, _))| (module_of(file), at))
        .collect();
    let target = |from: &str, path: &str| {
        let mut words: Vec<String> = path.split("::").map(|word| word.trim().into()).collect();
        let mut at = module_of(from);
        let is_child = || modules.contains_key(&[&at[..], &words[..1]].concat());
        match words[0].as_str() {
            "crate" => at = Vec::new(),
            "super" | "self" => words.insert(0, String::new()),
            _ if is_child() => words.insert(0, String::new()),
            _ => return None,
        }
        words.remove(0);
        while ["super", "self"].contains(&words.first().map_or("", String::as_str)) {
            if words.remove(0) == "super" {
                at.pop();
            }
        }
        at.extend(words);
        while !at.is_empty() && !modules.contains_key(&at) {
            at.pop();
        }
        modules.get(&at).copied()
    };
    files
        .iter()
        .enumerate()
        .map(|(own, (file, text))| {
            let named = paths_named(text).into_iter();
            let targets = named.filter_map(|path| target(file, &path));
            targets.filter(|&other| other != own).collect()
        })
        .collect()
}

/// Everything that `from` imports, directly or not.
fn reached(from: usize, imports: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        next.extend(imports[at].iter().filter(|&&other| seen.insert(other)));
    }
    seen
}

/// The files that import themselves by way of others.
fn in_cycles(files: &[(String, String)]) -> Vec<String> {
    let imports = imports(files);
    let is_cyclic = |at: &usize| reached(*at, &imports).contains(at);
    let cyclic = (0..files.len()).filter(is_cyclic);
    let mut names: Vec<String> = cyclic.map(|at| files[at].0.clone()).collect();
    names.sort();
    names
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let is_product = |(file, _): &(String, String)| !is_for_tests(file);
    let cycles_below = |folder| {
        let files: Vec<_> = files_below(folder).into_iter().filter(is_product).collect();
        in_cycles(&files)
    };
    for folder in ["src", "../instruments/src", "../neap/src"] {
        assert_eq!(cycles_below(folder), [""; 0], "import cycles in {folder}");
    }
}

#[test]
fn the_check_sees_a_circle() {
    let file = |name: &str, text: &str| (name.to_string(), text.to_string());
    let files = [
        file("a.rs", "use crate::{b::{self, Thing}, c};\n"),
        file("b/mod.rs", "mod inner;\npub use inner::Thing;\n"),
        file("b/inner.rs", "fn f() {\n    super::super::a::g();\n}\n"),
        file("c.rs", "use crate::b::inner;\n"),
        file(
            "d.rs",
            "#[cfg(test)]\nuse crate::e;\nuse crate::a::f as g;\n",
        ),
        file("e.rs", "use super::d;\n"),
    ];
    assert_eq!(
        in_cycles(&files),
        ["a.rs", "b/inner.rs", "b/mod.rs", "c.rs"]
    );
    assert_eq!(
        paths_of("crate::a::{b, c::{d, e as f}}"),
        ["crate::a::b", "crate::a::c::d", "crate::a::c::e"]
    );
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
        let may_speak =
            ["os", "testing"].contains(&room_of(&file)) || SPEAK.contains(&file.as_str());
        if text.contains("libc::") && !may_speak {
            wrong.push(format!("{file} speaks to the kernel"));
        }
        // Magazines and the thread's slot; who called; the registers that a walk up the stack
        // begins with; another stack; system calls.
        let may_have_assembly = room_of(&file) == "cache"
            || ["instruments/unwind/", "os/x86_64.rs", "os/aarch64.rs"]
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

#[test]
fn the_check_sees_an_upward_edge() {
    assert_eq!(
        rooms_named("use crate::{pages::Use, cache};"),
        ["pages", "cache"]
    );
    assert_eq!(rooms_named("let x = crate::free::free;"), ["free"]);
}
