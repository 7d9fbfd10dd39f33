//! `retention`, `fragmentation` and `latency` as a user runs them, with small sizes. Every figure
//! is present, and those that hold on every machine are checked. No assertion depends on time.

use crate::stage::{figure, json, lab, text};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The value of one figure of a case under the C library.
fn value(json: &Value, case: &str, name: &str) -> f64 {
    figure(json, case, "glibc", name)
        .as_f64()
        .expect("no number")
}

const PATTERNS: [&str; 5] = ["own", "other", "idle-owner", "eight", "large"];

#[test]
fn every_pattern_of_retention_fills_and_is_left_alone() {
    let json = json(&["retention", "--quick", "--peers", "glibc", "--json"]);
    for (pattern, tasks) in PATTERNS.into_iter().zip([1.0, 1.0, 2.0, 9.0, 1.0]) {
        let figure = |name| value(&json, pattern, name);
        let grown = figure("resident when filled") - figure("resident before");
        // A large block is 10 MiB, even if 4 are requested.
        let least = if pattern == "large" {
            10 << 20
        } else {
            4 << 20
        };
        // Memory that was resident and free before does not count.
        assert!(grown >= 0.9 * f64::from(least), "{pattern}: {grown}");
        assert!(figure("kept at once") < grown, "{pattern}");
        assert!(figure("kept after 0.1 s") < grown, "{pattern}");
        assert_eq!(figure("tasks then"), tasks, "{pattern}");
        // The C library has no thread of its own, and the process sleeps.
        let switches = figure("context switches in the next 0.1 s");
        assert_eq!(switches, 0.0, "{pattern}");
        assert_eq!(figure("processor time in them"), 0.0, "{pattern}");
    }
}

#[test]
fn only_what_is_named_is_run() {
    let arguments = ["retention", "--quick", "--peers", "glibc", "--only"];
    let output = lab(&[&arguments[..], &["large,own", "--mib", "1"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    assert_eq!(tables.matches("kept at once").count(), 2, "{tables}");
    assert!(tables.contains("\nMiB: 1\n") && !tables.contains("idle-owner"));
}

#[test]
fn fragmentation_tells_every_step() {
    let json = json(&["fragmentation", "--quick", "--peers", "glibc", "--json"]);
    let figure = |name: &str| value(&json, "fragmentation", name);
    let (few, all) = (
        figure("asked for and live then"),
        figure("asked for and live at the end"),
    );
    // 20,000 blocks of 264 bytes on average, a tenth of them left.
    assert!((5.0e6..5.6e6).contains(&all), "{all}");
    assert!((0.08..0.12).contains(&(few / all)), "{few} of {all}");
    let before = figure("resident before");
    for step in ["with all small blocks", "with the larger blocks"] {
        assert!(
            figure(&format!("resident {step}")) >= before + all,
            "{step}"
        );
    }
    let peak = figure("resident at the peak");
    assert!(peak >= figure("resident with all small blocks"), "{peak}");
    assert!(figure("resident after the sleep") >= before + few);
}

#[test]
fn the_same_seed_asks_for_the_same_bytes() {
    let asked = |seed| {
        let arguments = ["fragmentation", "--quick", "--peers", "glibc", "--json"];
        let json = json(&[&arguments[..], &["--seed", seed]].concat());
        value(&json, "fragmentation", "asked for and live then")
    };
    assert_eq!(asked("7"), asked("7"));
    assert_ne!(asked("7"), asked("8"));
}

#[test]
fn of_slower_calls_there_are_fewer() {
    let json = json(&["latency", "--quick", "--peers", "glibc", "--json"]);
    for call in ["malloc", "free"] {
        let numbers = [2, 5, 10, 20, 100, 500, 1_000, 10_000, 100_000];
        let times = numbers.map(|number| {
            let name = format!("{call}: 1 of {number} takes at least");
            value(&json, "latency", &name)
        });
        assert!(times.is_sorted() && times[8] > 0.0, "{call}: {times:?}");
    }
}

#[test]
fn records_have_a_line_for_every_figure() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("returns-records");
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.to_str().expect("a path of text");
    for (verb, figures) in [("retention", 5 * 7), ("fragmentation", 8), ("latency", 18)] {
        let output = lab(&[verb, "--quick", "--peers", "glibc", "--records", path]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let ending = format!("-{verb}.csv");
        let files = std::fs::read_dir(&folder).expect("no folder");
        let files = files.map(|entry| entry.expect("an entry").path());
        let record: Vec<PathBuf> = files
            .filter(|file| file.to_string_lossy().ends_with(&ending))
            .collect();
        assert_eq!(record.len(), 1, "{record:?}");
        let shown = lab(&["show", record[0].to_str().expect("a path of text")]);
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        let record = std::fs::read_to_string(&record[0]).expect("no record");
        assert!(record.contains("\n# kernel: ") && record.contains("# version of glibc: "));
        let lines = record.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(lines, 1 + figures, "{record}");
    }
}

#[test]
fn unknown_names_and_a_wrong_library_are_refused() {
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong-returns.so");
    std::fs::write(&wrong, "no library").expect("cannot write");
    let wrong = wrong.to_str().expect("a path of text");
    for (arguments, told) in [
        (
            &["retention", "--peers", "dlmalloc"][..],
            "no peer \"dlmalloc\"",
        ),
        (
            &["fragmentation", "--peers", "dlmalloc"],
            "no peer \"dlmalloc\"",
        ),
        (
            &[
                "retention",
                "--quick",
                "--only",
                "own",
                "--neap",
                wrong,
                "--peers",
                "neap",
            ],
            "the process uses the malloc of",
        ),
        (
            &[
                "fragmentation",
                "--quick",
                "--neap",
                wrong,
                "--peers",
                "neap",
            ],
            "the process uses the malloc of",
        ),
    ] {
        let output = lab(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains(told), "{arguments:?}: {errors}");
    }
}
