//! `classes`, `sizes` and `profile` as a user runs them, with small sizes. No assertion depends on
//! time.

use crate::stage::{figure, folder, json, lab, neap, text};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn value(json: &Value, case: &str, peer: &str, name: &str) -> f64 {
    figure(json, case, peer, name).as_f64().expect("no number")
}

#[test]
fn the_tables_are_what_the_peers_here_have() {
    let json = json(&[
        "classes", "--quick", "--only", "tables", "--peers", "glibc", "--json",
    ]);
    let waste = |peer, figure| {
        value(
            &json,
            "waste of the size classes; part of the block",
            peer,
            figure,
        )
    };
    for (peer, lost) in [("go-1.15", 0.25), ("go-1.16", 0.0), ("glibc", 0.25)] {
        assert_eq!(waste(peer, "lost of a block of 24 B"), lost, "{peer}");
        let mean = waste(peer, "mean; 1 B to 32 KiB");
        assert!(
            mean > 0.0 && mean < waste(peer, "worst; 65 B to 32 KiB"),
            "{peer}"
        );
    }
}

#[test]
fn a_header_shows_in_the_distance_of_blocks() {
    let json = json(&[
        "classes", "--quick", "--only", "overhead", "--peers", "glibc", "--json",
    ]);
    let distance = |peer, size| value(&json, "bytes from one block to the next", peer, size);
    assert_eq!(distance("glibc", "24 B"), 32.0);
    assert_eq!(distance("glibc", "32 B"), 48.0);
}

#[test]
fn a_rust_program_with_neap_inside_has_the_class_of_24_bytes() {
    let rust = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neap-lab-rust"));
        let output = command
            .args(arguments)
            .output()
            .expect("neap-lab-rust does not start");
        (output.status.success(), text(&output.stdout))
    };
    let (success, usable) = rust(&["usable", "32"]);
    assert!(success);
    assert_eq!(
        usable,
        "usable=1 8\nusable=9 16\nusable=17 24\nusable=25 32\n"
    );
    assert_eq!(
        rust(&["distances", "200", "24"]),
        (true, "distance_24=24\n".into())
    );
    let (success, boxed) = rust(&["boxed", "1000", "1"]);
    assert!(success && boxed.contains("ns_per_pair="), "{boxed}");
    assert!(!rust(&["sing"]).0);
}

#[test]
fn the_sizes_of_programs_are_weighed_and_the_record_can_be_shown() {
    let folder = folder("classes");
    let path = folder.to_str().expect("a path of text");
    std::fs::write(
        folder.join("2026-01-01-sizes.csv"),
        "case,peer,round,figure,unit,value\np,neap,0,count up to 24,count,10\np,neap,0,bytes up \
            to 24,bytes,240\n",
    )
    .unwrap();
    let arguments = [
        "classes",
        "--quick",
        "--only",
        "tables,programs,boxed",
        "--peers",
        "glibc",
    ];
    let output = lab(&[&arguments[..], &["--sizes", path, "--records", path]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let files: Vec<PathBuf> = files
        .filter(|file| file.to_string_lossy().contains("-classes."))
        .collect();
    assert_eq!(files.len(), 2, "the record and the picture: {files:?}");
    let record = files
        .iter()
        .find(|file| file.extension().is_some_and(|e| e == "csv"))
        .unwrap();
    let shown = lab(&["show", record.to_str().unwrap()]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let tables = text(&shown.stdout);
    assert!(
        tables.contains("25.00 %") && tables.contains("resident bytes a value"),
        "{tables}"
    );
    assert!(text(&output.stdout).contains(tables.trim()));
}

#[test]
fn what_is_not_there_is_said() {
    let none = folder("no-sizes");
    let arguments = [
        "classes", "--quick", "--only", "programs", "--peers", "glibc", "--sizes",
    ];
    let output = lab(&[&arguments[..], &[none.to_str().unwrap()]].concat());
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("left out: the sizes of real programs"));
    let output = lab(&["sizes", "--only", "cobol", "--neap", "/nowhere/libneap.so"]);
    assert!(!output.status.success());
    let output = lab(&["classes", "--only", "sing"]);
    assert!(!output.status.success());
}

#[test]
fn a_profile_is_held_against_known_allocations() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neap-lab"));
    let output = command
        .args(["worker", "sites", "200000"])
        .env("LD_PRELOAD", neap())
        .env("NEAP_SAMPLE", "4096")
        .output()
        .expect("neap-lab does not start");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    let line = report.lines().find_map(|line| line.strip_prefix("sites="));
    let sites: Vec<Value> = serde_json::from_str(line.expect("no sites")).expect("no JSON");
    assert_eq!(sites.len(), 27);
    for site in &sites {
        let number = |of: &Value| of.as_f64().expect("no number");
        let objects = |of: &str| number(&site["allocated"][of]["objects"]);
        let (objects, told) = (objects("truth"), objects("told"));
        // At this rate every block over 200 KB is sampled, and represents itself.
        if number(&site["size"]) >= 1e6 {
            assert!((told - objects).abs() < 0.01, "{site}");
        }
        if site["part"] == "freed" {
            assert_eq!(number(&site["live"]["told"]["bytes"]), 0.0, "{site}");
        }
        // At least a hundred samples; less than one run in a thousand million is this far off.
        assert!(
            (0.3..3.0).contains(&(told / objects)) || objects < 100.0,
            "{site}"
        );
    }
}

#[test]
fn a_programs_sizes_are_recorded() {
    let (neap, folder) = (neap(), folder("sizes"));
    let (neap, path) = (neap.to_str().unwrap(), folder.to_str().unwrap());
    // Every Debian system has perl.
    let output = lab(&["sizes", "--only", "perl", "--neap", neap, "--records", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let arguments = ["classes", "--quick", "--only", "programs", "--json"];
    let peers = ["--peers", "neap,glibc", "--neap", neap, "--sizes", path];
    let json = json(&[&arguments[..], &peers].concat());
    let waste = |peer| {
        value(
            &json,
            "waste in real programs; part of the blocks",
            peer,
            "perl",
        )
    };
    assert!(waste("neap-rust") > 0.0 && waste("neap-rust") <= waste("neap"));
    assert!(waste("neap") < waste("glibc"));
}
