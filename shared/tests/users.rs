//! The tools use only this crate of the library's. The exception is the lab's Rust program, whose
//! allocator is the crate `neap`.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with the tools' sources.
const TOOLS: [&str; 3] = ["cli/src", "lab/src", "programs"];
/// The library's other parts.
const PARTS: [&str; 3] = ["neap", "neap_heap", "neap_instruments"];
/// May name `neap`.
const RUST_PROGRAM: &str = "lab/src/bin/neap-lab-rust.rs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

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

/// The text without comments and without string literals that end on their line.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        code.extend(line.split('"').step_by(2));
        code.push('\n');
    }
    code
}

/// The library's parts that begin a path in `code`. Backticks quote names in messages.
fn named(code: &str) -> Vec<&'static str> {
    let begins_path = |part: &&&str| {
        let path = format!("{part}::");
        code.match_indices(&path).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "_:`".contains(c))
        })
    };
    PARTS.iter().filter(begins_path).copied().collect()
}

#[test]
fn tools_name_no_other_part_of_the_library() {
    let mut paths = Vec::new();
    for tool in TOOLS {
        sources(&root().join(tool), &mut paths);
    }
    assert!(paths.len() > 100, "the sources were not found");
    let wrong: Vec<String> = paths
        .iter()
        .filter(|path| !path.ends_with(RUST_PROGRAM))
        .flat_map(|path| {
            let parts = named(&code(&fs::read_to_string(path).unwrap()));
            parts
                .into_iter()
                .map(move |part| format!("{} names {part}", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tools_do_not_depend_on_it() {
    for (tool, allowed) in [("cli", &[][..]), ("programs", &[]), ("lab", &["neap"])] {
        let manifest = fs::read_to_string(root().join(tool).join("Cargo.toml")).unwrap();
        let (_, rest) = manifest.split_once("\n[dependencies]\n").unwrap();
        let own = rest
            .split("\n[")
            .next()
            .unwrap()
            .lines()
            .filter_map(|line| {
                let name = line.split(['=', '.']).next()?.trim().replace('-', "_");
                PARTS.contains(&name.as_str()).then_some(name)
            });
        assert_eq!(own.collect::<Vec<_>>(), allowed, "{tool}/Cargo.toml");
    }
}

#[test]
fn the_check_sees_a_path() {
    assert_eq!(named("use neap_heap::front;"), ["neap_heap"]);
    assert_eq!(named("let x = neap::Neap;"), ["neap"]);
    assert_eq!(named(&code("say(\"neap::x\"); // neap_heap::y")), [""; 0]);
    assert_eq!(named("use neap_shared::status_page; a::neap::b()"), [""; 0]);
}
