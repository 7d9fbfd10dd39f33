//! The layers of `src/lib.rs`: each names only layers below it.

use crate::sources::files;

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
    ("call", ABOVE),
    ("watched", WATCHED),
    ("entry", ALL),
];

/// The layers that the entry points may name.
const ALL: &[&str] = &[
    "entry",
    "watched",
    "call",
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

/// Those that calls under watch may name.
const WATCHED: &[&str] = ALL.split_at(1).1;

/// Those that `reclaim` and the parts of a call may name.
const ABOVE: &[&str] = ALL.split_at(2).1;

/// The layers of files that have no folder of the layer's name.
const FILES: &[(&str, &[&str])] = &[
    ("entry", &["free.rs", "malloc.rs", "stacks/stack.rs"]),
    (
        "call",
        &[
            "fork.rs",
            "init.rs",
            "large.rs",
            "mapped_over.rs",
            "supply.rs",
        ],
    ),
];

pub fn room_of(file: &str) -> &str {
    let listed = FILES.iter().find(|(_, files)| files.contains(&file));
    match listed {
        Some((room, _)) => room,
        None => file.split('/').next().unwrap().trim_end_matches(".rs"),
    }
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
            let file = format!("{named}.rs");
            if !allowed.contains(&room_of(&file)) && named != room {
                wrong.push(format!("{file} names {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "upward edges: {wrong:#?}");
}

#[test]
fn the_check_sees_an_upward_edge() {
    assert_eq!(
        rooms_named("use crate::{pages::Use, cache};"),
        ["pages", "cache"]
    );
    assert_eq!(rooms_named("let x = crate::free::free;"), ["free"]);
}
