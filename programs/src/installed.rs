//! Where the installed commands are.

use std::path::PathBuf;

/// The directories to search for commands: the distribution's first, so that a version manager's
/// shims do not replace them.
pub fn search_path() -> String {
    let users = std::env::var("PATH").unwrap_or_default();
    format!("/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:{users}")
}

/// The path of a command, which is given as in [`crate::Need::command`]. Of several matches, the
/// last by name.
pub fn find(command: &str) -> Option<PathBuf> {
    match command.strip_prefix('/') {
        Some(pattern) => pattern
            .split('/')
            .fold(vec![PathBuf::from("/")], descend)
            .pop(),
        None => {
            let path = search_path();
            let mut places = path
                .split(':')
                .map(|place| PathBuf::from(place).join(command));
            places.find(|file| file.is_file())
        }
    }
}

/// The matches of one part of a pattern in these directories.
fn descend(places: Vec<PathBuf>, part: &str) -> Vec<PathBuf> {
    if part != "*" {
        let nexts = places.iter().map(|place| place.join(part));
        return nexts.filter(|next| next.exists()).collect();
    }
    let entries = places
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok());
    let mut found: Vec<_> = entries
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
