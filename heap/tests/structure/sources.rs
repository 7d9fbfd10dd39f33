//! The source files, as texts without comments and test modules.

use std::fs;
use std::path::{Path, PathBuf};

pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
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
pub fn files() -> Vec<(String, String)> {
    files_below("src")
}

/// The heap's source files, and the instruments' with [`INSTRUMENTS`] before their names.
pub fn files_of_both() -> Vec<(String, String)> {
    let instruments = files_below("../instruments/src").into_iter();
    let named = instruments.map(|(file, text)| (format!("{INSTRUMENTS}{file}"), text));
    files().into_iter().chain(named).collect()
}

const INSTRUMENTS: &str = "instruments/";

/// Every source file: its path below `folder`, and its text without comments and test modules.
pub fn files_below(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    assert!(paths.len() > 3, "the sources were not found");
    let text_of = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let ends = ["\nmod tests {", "\npub mod tests {"].map(|tests| text.find(tests));
        let code = &text[..ends.into_iter().flatten().min().unwrap_or(text.len())];
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
