//! `security` as a user runs it: what Neap stops by default and in the checking mode, and that a
//! harm shows where nothing stops it.

use crate::stage::{figure, json, neap};

use serde_json::Value;

/// Runs the situations of some classes.
fn run(classes: &str, more: &[&str]) -> Value {
    let library = neap();
    let library = library.to_str().expect("a path of text");
    let arguments = ["security", "--json", "--neap", library, "--only", classes];
    json(&[&arguments[..], more].concat())
}

/// The situations of a class that ended otherwise than `outcome` under a contender.
fn others<'a>(told: &'a Value, class: &str, peer: &str, outcome: &str) -> Vec<&'a str> {
    let rows = told["figures"].as_array().expect("no figures").iter();
    let rows = rows.filter(|row| row["peer"] == peer && row["figure"] == "outcome");
    let rows = rows.filter(|row| row["value"] != outcome);
    let names = rows.map(|row| row["case"].as_str().expect("a name"));
    names.filter(|name| name.starts_with(class)).collect()
}

#[test]
fn neap_stops_wrong_frees() {
    let told = run("double free,invalid free,mismatch", &["--peers", "neap"]);
    let figures = told["figures"].as_array().expect("no figures");
    // 41 situations in three modes, two figures each.
    assert_eq!(figures.len(), 41 * 3 * 2);
    for class in ["double free", "invalid free", "mismatch"] {
        let left = others(&told, class, "neap hardened", "stopped");
        assert!(left.is_empty(), "{left:?}");
    }
    for class in ["double free", "invalid free"] {
        let left = others(&told, class, "neap check", "stopped");
        assert!(left.is_empty(), "{left:?}");
    }
    let left = others(&told, "double free", "neap", "stopped");
    assert!(left.is_empty(), "{left:?}");
    let left = others(&told, "invalid free", "neap", "stopped");
    assert!(left.is_empty(), "{left:?}");
    // Sizes that are too small, and a delete without a size.
    let left = others(&told, "mismatch", "neap", "stopped");
    let kinds = ["object-as-array", "array-as-object"].map(|kind| format!("mismatch: {kind} 0"));
    assert_eq!(left, kinds);
    let left = others(&told, "mismatch", "neap check", "stopped");
    assert_eq!(left, kinds[..1]);
}

#[test]
fn the_checking_mode_stops_writes_to_freed_blocks() {
    let told = run("write after free", &["--peers", "neap"]);
    let left = others(
        &told,
        "write after free: write-freed-and-on",
        "neap check",
        "stopped",
    );
    assert_eq!(left, ["write after free: write-freed-and-on 262144"]);
    let left = others(&told, "write after free", "neap", "harm");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn hardened_mode_stops_what_it_can_see_in_time() {
    let told = run("overflow,reuse,zeroing", &["--peers", "neap"]);
    // Between the copy and the end of the process, nothing is called.
    let copies = |name: &&str| name.contains(": copy-") && name.ends_with(" 8");
    let left = others(&told, "overflow", "neap hardened", "stopped");
    assert!(left.iter().all(copies), "{left:?}");
    let left = others(&told, "reuse", "neap hardened", "prevented");
    assert!(left.is_empty(), "{left:?}");
    let harmed = others(&told, "zeroing", "neap hardened", "prevented");
    let read = ["4096", "262144"].map(|size| format!("zeroing: read-freed {size}"));
    assert_eq!(harmed, read, "these are stopped");
}

#[test]
fn what_nothing_stops_does_harm() {
    let told = run("zero size,reuse", &["--quick", "--peers", "glibc"]);
    let case = "zero size: write-nothing 0";
    assert_eq!(figure(&told, case, "glibc", "outcome"), "harm");
    let shown = figure(&told, case, "glibc", "shown");
    assert_eq!(shown, "a byte of a block of no bytes was written");
    assert_eq!(
        figure(&told, "reuse: reuse-at-once 8", "glibc", "outcome"),
        "harm"
    );
}
