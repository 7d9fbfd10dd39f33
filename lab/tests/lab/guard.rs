//! `guard` as a user runs it: SQLite with its planted error, and a name that it does not know.

use crate::skips::skipped;
use crate::stage::{figure, json, lab, text};
use std::path::Path;

/// The command `neap` that cargo built beside the lab. `cargo test -p neap-lab` does not build it.
fn neap() -> Option<String> {
    let beside = Path::new(env!("CARGO_BIN_EXE_neap-lab")).with_file_name("neap");
    if !beside.is_file() {
        skipped("guarded samples in real programs: cargo build -p neap-cli -p neap-c");
        return None;
    }
    Some(beside.to_string_lossy().into_owned())
}

#[test]
fn an_error_is_found_and_the_program_without_it_makes_no_report() {
    let Some(neap) = neap() else { return };
    let only = ["--only", "sqlite", "--command", &neap];
    let output = lab(&[&["guard", "--install"], &only[..]].concat());
    if !output.status.success() {
        let why = text(&output.stderr);
        return skipped(&format!("guarded samples in sqlite3: {}", why.trim()));
    }
    let told = json(&[&["guard", "--quick", "--json"], &only[..]].concat());
    let number = |name| figure(&told, "sqlite", "neap", name).as_f64().unwrap();
    assert!((2.0..1_000.0).contains(&number("guardable allocations a request")));
    assert!(number("computed") > 0.999_999);
    assert!((1.0..=10_000.0).contains(&number("request of the report")));
    assert_eq!(number("requests without the error"), 500.0);
    assert_eq!(number("reports without the error"), 0.0);
    let line = figure(&told, "sqlite", "neap", "report").as_str().unwrap();
    assert!(
        line.ends_with("byte 16 of a block of 124 bytes that was freed"),
        "{line}"
    );
}

#[test]
fn an_unknown_program_is_refused() {
    let output = lab(&["guard", "--only", "mysql"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("no program \"mysql\"; there are redis, python"),
        "{said}"
    );
}
