//! The public surface of the crate: `surface.txt` lists it, at most [`MOST`] items, including
//! methods. Each item is documented, no safe function takes an address, and `safe.rs` calls every
//! safe one.
//!
//! A small parser, for code in rustfmt's form: an item begins its line, a method has four spaces.

use std::fs;
use std::path::{Path, PathBuf};

const MOST: usize = 60;

/// One public item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// `stack::Stack::new`
    path: String,
    kind: &'static str,
    is_unsafe: bool,
    is_documented: bool,
    /// Of a function: its text up to the body.
    signature: String,
}

impl Item {
    fn line(&self) -> String {
        let safety = if self.is_unsafe { "unsafe " } else { "" };
        format!("{safety}{} {}", self.kind, self.path)
    }

    fn name(&self) -> &str {
        self.path.rsplit("::").next().unwrap()
    }
}

/// Folders of the crates that items are re-exported from.
const CRATES: &[(&str, &str)] = &[("neap_heap", "heap"), ("neap_shared", "shared")];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All source files of a folder, with their text.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

/// The item that begins with `lines[at]`, if one does that is public: `indent` is that of its
/// surroundings.
fn item(lines: &[&str], at: usize, indent: &str, prefix: &str) -> Option<Item> {
    let rest = lines[at].strip_prefix(indent)?.strip_prefix("pub ")?;
    let (rest, is_const) = strip(rest, "const ");
    let (rest, is_unsafe) = strip(rest, "unsafe ");
    let kinds = ["fn", "struct", "enum", "trait", "type", "static", "union"];
    let found = kinds
        .into_iter()
        .find_map(|kind| Some((kind, rest.strip_prefix(kind)?.strip_prefix(' ')?)));
    let (kind, rest) = match found {
        Some(found) => found,
        None if is_const => ("const", rest),
        None => return None,
    };
    let name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name: String = rest.chars().take_while(|&letter| name(letter)).collect();
    let before = lines[..at].iter().rev();
    let is_attribute = |line: &str| line.trim_start().starts_with("#[");
    let mut before = before.filter(|line| !is_attribute(line));
    let doc = before.next().unwrap_or(&"");
    let until_body = lines[at..].iter().take_while(|line| **line != "}");
    let signature = until_body.copied().collect::<Vec<_>>().join(" ");
    Some(Item {
        path: format!("{prefix}{name}"),
        kind,
        is_unsafe,
        is_documented: doc.trim_start().starts_with("///"),
        signature: signature.split(['{', ';']).next().unwrap().to_string(),
    })
}

fn strip<'t>(text: &'t str, word: &str) -> (&'t str, bool) {
    match text.strip_prefix(word) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

/// The public methods of `name` in a file.
fn methods(lines: &[&str], name: &str, prefix: &str, found: &mut Vec<Item>) {
    let heads = [format!("impl {name} {{"), format!("impl {name}<'_> {{")];
    let mut inside = false;
    for (at, line) in lines.iter().enumerate() {
        if heads.iter().any(|head| head == line) {
            inside = true;
        } else if *line == "}" {
            inside = false;
        } else if inside {
            found.extend(item(lines, at, "    ", &format!("{prefix}{name}::")));
        }
    }
}

/// The item that `path` names in another crate, and its methods. The path's modules name the file
/// or folder that it is in.
fn reexported(path: &str, prefix: &str, found: &mut Vec<Item>) {
    let mut words: Vec<&str> = path.split("::").collect();
    let name = words.pop().unwrap();
    let (_, folder) = CRATES.iter().find(|(name, _)| *name == words[0]).unwrap();
    let below = workspace().join(folder).join("src");
    let mut files = Vec::new();
    sources(&below, &mut files);
    let start = below.join(words[1..].join("/"));
    let start = start.to_str().unwrap();
    files.retain(|(file, _)| file.to_str().unwrap().starts_with(start));
    let before = found.len();
    for (_, text) in &files {
        let lines: Vec<&str> = text.lines().collect();
        let items = (0..lines.len()).filter_map(|at| item(&lines, at, "", prefix));
        found.extend(items.filter(|item| item.name() == name));
        methods(&lines, name, prefix, found);
    }
    let items = found[before..].iter().filter(|item| item.name() == name);
    assert_eq!(items.count(), 1, "definitions of {path}");
}

/// The paths of a `pub use` statement without `pub use` and `;`.
fn paths(statement: &str) -> Vec<String> {
    match statement.split_once('{') {
        None => vec![statement.to_string()],
        Some((head, list)) => {
            let names = list.trim_end_matches('}').split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(|name| format!("{head}{name}")).collect()
        }
    }
}

/// The public items of one file of this crate.
fn of_file(text: &str, prefix: &str, found: &mut Vec<Item>) {
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(item) = item(&lines, at, "", prefix) {
            let name = item.name().to_string();
            found.push(item);
            methods(&lines, &name, prefix, found);
        } else if let Some(first) = line.strip_prefix("pub use ") {
            let rest = lines[at + 1..].iter().copied();
            let statement: String = std::iter::once(first).chain(rest).collect();
            for path in paths(statement.split(';').next().unwrap()) {
                if CRATES.iter().any(|(name, _)| path.starts_with(name)) {
                    reexported(&path, prefix, found);
                }
            }
        }
    }
}

fn surface() -> Vec<Item> {
    let below = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&below, &mut files);
    let mut found = Vec::new();
    for (file, text) in &files {
        let module = file.file_stem().unwrap().to_str().unwrap();
        // Private parts of a module are in its folder.
        if file.parent() != Some(&below) {
            continue;
        }
        match module {
            "lib" | "corosensei" => {}
            // Private; `lib.rs` re-exports all their items.
            "allocator" | "kernel" => of_file(text, "", &mut found),
            _ => of_file(text, &format!("{module}::"), &mut found),
        }
    }
    found.sort();
    found
}

#[test]
fn the_list_is_complete_and_short() {
    let lines: Vec<String> = surface().iter().map(Item::line).collect();
    let listed = fs::read_to_string(workspace().join("neap/tests/surface.txt")).unwrap();
    let listed: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines,
        listed,
        "the surface has changed: put this into neap/tests/surface.txt, if it is meant\n{}\n",
        lines.join("\n")
    );
    assert!(lines.len() <= MOST, "{} items", lines.len());
}

#[test]
fn every_item_is_documented() {
    let bare: Vec<String> = surface()
        .iter()
        .filter(|item| !item.is_documented)
        .map(Item::line)
        .collect();
    assert!(bare.is_empty(), "{bare:#?}");
}

/// What a safe function that took one of these did with it would be the caller's word.
const ADDRESSES: &[&str] = &["*mut", "*const", "NonNull", "address", "pointer"];

fn takes_an_address(signature: &str) -> bool {
    let arguments = signature.split("->").next().unwrap();
    ADDRESSES.iter().any(|word| arguments.contains(word))
}

#[test]
fn no_safe_function_takes_an_address() {
    let items = surface();
    let functions = items.iter().filter(|item| item.kind == "fn");
    let wrong: Vec<&Item> = functions
        .filter(|item| !item.is_unsafe && takes_an_address(&item.signature))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(takes_an_address("pub fn f(block: *mut u8) -> usize"));
    assert!(takes_an_address("pub fn f(address: usize)"));
    assert!(!takes_an_address("pub fn top(&self) -> NonNull<u8>"));
}

#[test]
fn every_safe_item_is_called_without_unsafe_code() {
    let calls = fs::read_to_string(workspace().join("neap/tests/safe.rs")).unwrap();
    assert!(calls.contains("#![forbid(unsafe_code)]"));
    let body = &calls[calls.find("#[test]").unwrap()..];
    let words: Vec<&str> = body
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .collect();
    let all = surface();
    // A program has one of the two as its allocator.
    let is_called = |item: &&Item| !item.is_unsafe && !["Neap", "Hardened"].contains(&item.name());
    let safe = all.iter().filter(is_called);
    let missing: Vec<&Item> = safe.filter(|item| !words.contains(&item.name())).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_parser_reads_rustfmts_form() {
    let text = "/// A.\n#[repr(C)]\npub struct A;\n\nimpl A {\n    /// B.\n    pub unsafe fn b(&self) {}\n\
                \n    pub const C: u8 = 1;\n    fn d() {}\n}\npub(crate) fn e() {}\npub const fn f() {}\n";
    let mut found = Vec::new();
    of_file(text, "m::", &mut found);
    let lines: Vec<String> = found.iter().map(Item::line).collect();
    let expected = [
        "struct m::A",
        "unsafe fn m::A::b",
        "const m::A::C",
        "fn m::f",
    ];
    assert_eq!(lines, expected);
    let documented: Vec<bool> = found.iter().map(|item| item.is_documented).collect();
    assert_eq!(documented, [true, true, false, false]);
    assert_eq!(paths("a::{B, C,}"), ["a::B", "a::C"]);
}
