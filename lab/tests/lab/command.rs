//! The command as a user runs it: workers under a preload, refusals, records.

use crate::skips::skipped;
use crate::stage::{figure, folder, lab, parsed, text};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_worker_tells_what_it_cost_and_whose_heap_it_used() {
    let output = lab(&["worker", "run", "churn-1k-4t", "--ops", "40000"]);
    let report = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for key in ["ns_per_op=", "peak_rss_kib=", "minor_faults=", "heap=/"] {
        assert!(
            report.lines().any(|line| line.starts_with(key)),
            "no {key} in {report}"
        );
    }
}

#[test]
fn a_live_block_costs_at_least_its_bytes() {
    let output = lab(&["worker", "run", "live-1024", "--ops", "20000"]);
    let report = text(&output.stdout);
    let bytes = report
        .lines()
        .find_map(|line| line.strip_prefix("bytes_per_block="));
    let bytes: f64 = bytes.expect("no bytes").parse().expect("no number");
    assert!((1_000.0..2_100.0).contains(&bytes), "{bytes}");
}

#[test]
fn every_workload_runs_once_and_leaves_a_record_that_can_be_shown() {
    let records = folder("records");
    let records = records.to_str().expect("a path of text");
    let arguments = [
        "bench",
        "--quick",
        "--no-counts",
        "--peers",
        "glibc",
        "--records",
        records,
    ];
    let output = lab(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    for part in [
        "churn-128k-4t",
        "live-1024",
        "Geometric means",
        "processor: ",
    ] {
        assert!(tables.contains(part), "no {part:?} in {tables}");
    }
    let files = std::fs::read_dir(records).expect("no folder of records");
    let files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    let csv = files
        .iter()
        .find(|f| f.extension().is_some_and(|e| e == "csv"))
        .expect("no CSV");
    assert!(
        files
            .iter()
            .any(|f| f.extension().is_some_and(|e| e == "svg")),
        "no SVG"
    );
    let shown = lab(&[
        "show",
        "--base",
        "glibc",
        csv.to_str().expect("a path of text"),
    ]);
    assert!(
        tables.contains(text(&shown.stdout).trim()),
        "{}",
        text(&shown.stdout)
    );
}

const LATENCY: &str = "# experiment: latency
# date: 2026-11-21
case,peer,round,figure,unit,value
latency,glibc,0,malloc: 1 of 100 takes at least,ns,250
latency,glibc,0,free: 1 of 100 takes at least,ns,120
";

#[test]
fn a_record_is_shown_and_drawn() {
    let folder = folder("shown");
    let (record, picture) = (folder.join("record.csv"), folder.join("picture.svg"));
    std::fs::write(&record, LATENCY).expect("cannot write");
    let record = record.to_str().expect("a path of text");
    let picture = picture.to_str().expect("a path of text");
    let output = lab(&["show", "--svg", picture, record]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    assert!(tables.contains("250 ns"), "{tables}");
    let drawn = std::fs::read_to_string(picture).expect("no picture");
    assert!(drawn.contains(">glibc</text>"), "{drawn}");
    let output = lab(&["show", "--json", record]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("no JSON");
    assert_eq!(json["head"]["date"], "2026-11-21");
    let time = figure(&json, "latency", "glibc", "free: 1 of 100 takes at least");
    assert_eq!(time.as_f64(), Some(120.0));
}

#[test]
fn what_is_no_record_and_what_is_damaged_is_told() {
    let file = folder("no-record").join("record.csv");
    let name = file.to_str().expect("a path of text");
    for (content, told) in [
        (
            "name,size\n1,2\n",
            "it does not have the columns of a record",
        ),
        (
            &LATENCY.replace("250", "fast"),
            "in the line \"latency,glibc,",
        ),
    ] {
        std::fs::write(&file, content).expect("cannot write");
        let output = lab(&["show", name]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.starts_with("neap-lab: cannot show ") && errors.contains(told),
            "{errors}"
        );
    }
}

#[test]
fn a_library_that_does_not_take_fails_the_run() {
    let wrong = folder("wrong").join("libneap.so");
    std::fs::write(&wrong, "no library").expect("cannot write");
    let wrong = wrong.to_str().expect("a path of text");
    let common = ["--quick", "--peers", "neap", "--neap", wrong, "--only"];
    for (verb, only) in [
        ("bench", &["pair-48", "--no-counts"][..]),
        ("calloc", &["64K,none"]),
    ] {
        let output = lab(&[&[verb], &common[..], only].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let told = "the process uses the malloc of";
        assert!(errors.contains(told), "{errors}");
    }
}

#[test]
fn an_unknown_name_and_an_absent_library_are_refused() {
    for arguments in [
        &["bench", "--only", "no-such-row"][..],
        &["bench", "--peers", "dlmalloc"],
        &["bench", "--neap", "/nowhere/libneap.so"],
        &["bench", "--base", "dlmalloc"],
        &["show", "/nowhere.csv"],
        &["worker", "run", "redis", "--ops", "1"],
        &["calloc", "--only", "11M"],
        &["calloc", "--peers", "dlmalloc"],
    ] {
        let output = lab(arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).starts_with("neap-lab: "),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_budget_of_nothing_leaves_everything_out_and_says_so() {
    for (verb, first) in [("bench", "pair-48"), ("calloc", "64K none")] {
        let output = lab(&[verb, "--peers", "glibc", "--seconds", "0", "--quick"]);
        let errors = text(&output.stderr);
        let told = format!("left out: time is up in round 1 of 1, before {first}");
        assert!(errors.contains(&told), "{errors}");
    }
}

#[test]
fn the_golden_check_without_valgrind_exits_with_three() {
    let output = Command::new(env!("CARGO_BIN_EXE_neap-lab"))
        .args(["golden", "--check"])
        .env("PATH", "")
        .output()
        .expect("neap-lab does not start");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn instruction_counts_are_the_same_twice() {
    let count = || {
        let only = ["--only", "pair-48", "--quick", "--json"];
        let output = lab(&[&["bench", "--peers", "glibc"], &only[..]].concat());
        if text(&output.stderr).contains("left out: instructions") {
            return None;
        }
        let json = parsed(&output);
        let count = figure(&json, "pair-16", "glibc", "instructions");
        Some(count.as_f64().expect("no number"))
    };
    match (count(), count()) {
        (None, None) => {
            skipped("instruction counts: no valgrind here");
        }
        (first, second) => {
            assert_eq!(first, second);
            assert!(
                first.is_some_and(|c| (20.0..1_000.0).contains(&c)),
                "{first:?}"
            );
        }
    }
}
