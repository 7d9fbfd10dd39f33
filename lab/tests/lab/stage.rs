//! The tests' environment: the command, its output, directories.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::nameable::nameable;
use serde_json::Value;

/// Runs the command as cargo built it.
pub fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_neap-lab"))
        .args(arguments)
        .output()
        .expect("neap-lab does not start")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON output of a command that must succeed.
pub fn json(arguments: &[&str]) -> Value {
    parsed(&lab(arguments))
}

/// The JSON in the output of a command that must have succeeded.
pub fn parsed(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("no JSON")
}

/// The first value of a figure of a case and a peer.
pub fn figure<'a>(json: &'a Value, case: &str, peer: &str, name: &str) -> &'a Value {
    let figures = json["figures"].as_array().expect("no figures");
    let is_it = |row: &&Value| row["case"] == case && row["peer"] == peer && row["figure"] == name;
    let row = figures.iter().find(is_it);
    let row = row.unwrap_or_else(|| panic!("no {name:?} of {peer} in {case:?}: {json:#}"));
    &row["value"]
}

/// An empty directory for one test, under a unique name.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("cannot make a folder");
    folder
}

/// Neap's library: the one that LIBRARY_UNDER_TEST names, or the one that cargo built beside the
/// tests. Without it, the command would use a shipped one, possibly of other sources.
pub fn neap() -> PathBuf {
    if let Some(named) = std::env::var_os("LIBRARY_UNDER_TEST") {
        return named.into();
    }
    let program = std::env::current_exe().expect("this test has no path");
    let beside = program.parent().expect("a path has a folder");
    let places = [beside.join("libneap_c.so"), beside.join("../libneap_c.so")];
    let found = places.into_iter().find(|path| path.is_file());
    let found = found.expect("cargo builds libneap_c.so with the tests");
    nameable(found).expect("a copy of the library")
}
