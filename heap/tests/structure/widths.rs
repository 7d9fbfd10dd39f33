//! Comments end at the latest at the column where rustfmt ends code, because rustfmt leaves
//! comments alone. A Rust file has at most 800 lines.

use std::fs;
use std::path::Path;

const COLUMNS: usize = 100;
const LINES: usize = 800;

const FOLDERS: [&str; 12] = [
    "capi",
    "ci",
    "cli",
    "examples",
    "fuzz",
    "heap",
    "instruments",
    "lab",
    "neap",
    "programs",
    "python",
    "shared",
];

#[test]
fn comments_are_as_wide_as_code() {
    let mut wrong = Vec::new();
    for_each_source(|path, kind, text| {
        let lines = wide_comments(text, ["sh", "py"].contains(&kind));
        wrong.extend(lines.map(|line| format!("{}:{line}", path.display())));
    });
    assert!(wrong.is_empty(), "over {COLUMNS} columns: {wrong:#?}");
}

#[test]
fn files_are_short() {
    let mut wrong = Vec::new();
    for_each_source(|path, kind, text| {
        let lines = text.lines().count();
        if kind == "rs" && lines > LINES {
            wrong.push(format!("{}: {lines}", path.display()));
        }
    });
    assert!(wrong.is_empty(), "over {LINES} lines: {wrong:#?}");
}

/// Calls `look` with the path of each source file, its extension and its text.
fn for_each_source(mut look: impl FnMut(&Path, &str, &str)) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in FOLDERS {
        visit(&workspace.join(folder), &mut look);
    }
}

fn visit(folder: &Path, look: &mut impl FnMut(&Path, &str, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        let kind = path.extension().unwrap_or_default().to_str().unwrap_or("");
        if path.is_dir() && name != "target" {
            visit(&path, look);
        } else if ["rs", "c", "cc", "h", "hpp", "sh", "py"].contains(&kind) {
            look(&path, kind, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// The numbers of the lines with a comment wider than [`COLUMNS`]. Tables and fenced text may be
/// wider.
fn wide_comments(text: &str, is_script: bool) -> impl Iterator<Item = usize> {
    let (mut in_block, mut in_fence) = (false, false);
    text.lines().enumerate().filter_map(move |(index, line)| {
        let bare = line.trim_start();
        let begins = match is_script {
            true => bare.starts_with("# "),
            false => bare.starts_with("//") || bare.starts_with("/*"),
        };
        let is_comment = begins || in_block;
        in_block = !is_script && (in_block || bare.starts_with("/*")) && !bare.contains("*/");
        let words = bare.trim_start_matches(['/', '!', '*', '#', ' ']);
        in_fence ^= is_comment && words.starts_with("```");
        let may_be_wide = in_fence || words.starts_with('|');
        (is_comment && !may_be_wide && line.chars().count() > COLUMNS).then_some(index + 1)
    })
}

#[test]
fn a_wide_comment_is_found() {
    let wide = "x".repeat(COLUMNS);
    let text = format!("/* a\n   {wide}\n*/\nlet {wide};\n// | {wide} |\n// {wide}\n");
    assert_eq!(wide_comments(&text, false).collect::<Vec<_>>(), [2, 6]);
    let script = format!("# {wide}\necho {wide}\n");
    assert_eq!(wide_comments(&script, true).collect::<Vec<_>>(), [1]);
}
