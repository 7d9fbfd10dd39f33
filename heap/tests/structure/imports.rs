//! Which file imports which: never in a circle.

use crate::sources::files_below;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file's module path: `page/mod.rs` is `[page]`, `lib.rs` or `main.rs` is the root.
fn module_of(file: &str) -> Vec<String> {
    let mut path: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if path.last() == Some(&"mod") || path == ["lib"] || path == ["main"] {
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
    let (mut is_test_only, mut is_in_tests) = (false, false);
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
        } else if !is_in_tests {
            body.push_str(line);
            body.push('\n');
        }
        is_in_tests = statement == "#[cfg(test)]";
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

/// The modules that a file declares by `#[path]`, and their files.
fn placed_modules(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("#[path = \"").skip(1).filter_map(|rest| {
        let (place, rest) = rest.split_once("\"]")?;
        let (declaration, _) = rest.split_once(';')?;
        Some((declaration.split_once("mod ")?.1, place))
    })
}

/// Which file imports which: both by their place in `modules`.
fn imports(files: &[(String, String)]) -> Vec<BTreeSet<usize>> {
    let mut modules: BTreeMap<Vec<String>, usize> = files
        .iter()
        .enumerate()
        .map(|(at, (file, _))| (module_of(file), at))
        .collect();
    for (file, text) in files {
        for (name, place) in placed_modules(text) {
            let module = |last: &str| [module_of(file), vec![last.to_string()]].concat();
            if let Some(&at) = modules.get(&module(place.trim_end_matches(".rs"))) {
                modules.insert(module(name), at);
            }
        }
    }
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

/// A source file's name and its text.
type File = (String, String);

/// Splits a package's files into its crates: the library with its modules, or else the program
/// with them; the `main.rs` beside a library; each program below `bin`.
fn crates_of(files: Vec<File>) -> Vec<Vec<File>> {
    let has_library = files.iter().any(|(file, _)| file == "lib.rs");
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for (file, text) in files {
        let (root, file) = match file.strip_prefix("bin/") {
            Some(program) => match program.split_once('/') {
                Some((root, file)) => (format!("bin/{root}"), file.to_string()),
                None => (file.clone(), "main.rs".to_string()),
            },
            None if file == "main.rs" && has_library => (file.clone(), file),
            None => (String::new(), file),
        };
        crates.entry(root).or_default().push((file, text));
    }
    crates.into_values().collect()
}

/// The folders of the workspace's packages, as its manifest lists them.
fn packages() -> Vec<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let manifest = fs::read_to_string(workspace).unwrap();
    let members = manifest
        .lines()
        .find_map(|line| line.strip_prefix("members = "));
    let quoted = members
        .expect("a line of members")
        .split('"')
        .skip(1)
        .step_by(2);
    quoted.map(String::from).collect()
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let packages = packages();
    assert!(packages.len() >= 9, "{packages:?}");
    let mut cycles = Vec::new();
    for package in packages {
        let mut files = files_below(&format!("../{package}/src"));
        files.retain(|(file, _)| !is_for_tests(file));
        let cyclic = crates_of(files)
            .into_iter()
            .flat_map(|files| in_cycles(&files));
        cycles.extend(cyclic.map(|file| format!("{package}: {file}")));
    }
    assert_eq!(cycles, [""; 0], "import cycles");
}

#[test]
fn a_packages_programs_are_crates_of_their_own() {
    let named = |files: &[&str]| {
        files
            .iter()
            .map(|file| (file.to_string(), String::new()))
            .collect()
    };
    let split = |files: &[&str]| -> Vec<Vec<String>> {
        let crates = crates_of(named(files)).into_iter();
        let names = |files: Vec<File>| files.into_iter().map(|(file, _)| file).collect();
        crates.map(names).collect()
    };
    let all = [
        "a.rs",
        "bin/one.rs",
        "bin/two/b.rs",
        "bin/two/main.rs",
        "lib.rs",
        "main.rs",
    ];
    assert_eq!(
        split(&all),
        [
            vec!["a.rs", "lib.rs"],
            vec!["main.rs"],
            vec!["b.rs", "main.rs"],
            vec!["main.rs"]
        ]
    );
    assert_eq!(split(&["a.rs", "main.rs"]), [["a.rs", "main.rs"]]);
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
        file(
            "f/mod.rs",
            "#[path = \"g.rs\"]\nmod one;\n#[path = \"h.rs\"]\nmod h;\npub use i::I;\n",
        ),
        file("f/g.rs", ""),
        file(
            "f/h.rs",
            "use super::one::G;\n#[cfg(test)]\nsuper::j::f();\n",
        ),
        file("f/i.rs", "use super::one::G;\nuse super::h;\n"),
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
