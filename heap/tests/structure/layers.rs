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
    "form.rs",
    "free.rs",
    "harden.rs",
    "init.rs",
    "large.rs",
    "malloc.rs",
    "mapped_over.rs",
    "realloc.rs",
    "rule.rs",
    "seal.rs",
    "stacks/overflow.rs",
    "stacks/stack.rs",
    "stray.rs",
    "tags.rs",
    "turn.rs",
];

pub fn room_of(file: &str) -> &str {
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

#[test]
fn the_check_sees_an_upward_edge() {
    assert_eq!(
        rooms_named("use crate::{pages::Use, cache};"),
        ["pages", "cache"]
    );
    assert_eq!(rooms_named("let x = crate::free::free;"), ["free"]);
}
