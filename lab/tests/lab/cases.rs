//! `cases` as a user runs it, on small cases of the tests' own.

use crate::stage::{figure, folder, lab, parsed, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use serde_json::Value;

const MIB: f64 = 1_048_576.0;

/// The folder of the tests' cases.
fn small() -> String {
    format!("{}/tests/cases", env!("CARGO_MANIFEST_DIR"))
}

/// Runs cases of the tests, whose programs are installed first.
fn cases(arguments: &[&str]) -> Output {
    static INSTALLED: Once = Once::new();
    let of = small();
    INSTALLED.call_once(|| {
        let built = ["--only", "grows,forks", "--install"];
        let installed = lab(&[&["cases", "--cases", &of], &built[..]].concat());
        assert!(installed.status.success(), "{}", text(&installed.stderr));
    });
    lab(&[&["cases", "--quiet", "--cases", &of], arguments].concat())
}

fn value(json: &Value, case: &str, peer: &str, name: &str) -> f64 {
    figure(json, case, peer, name).as_f64().expect("no number")
}

/// Fails unless `value` is within a tenth of `expected`, with 3 MiB for the program itself.
fn assert_near(value: f64, expected: f64, what: &str) {
    let range = expected * 0.9..expected * 1.1 + 3.0 * MIB;
    assert!(range.contains(&value), "{what}: {value}, not {expected}");
}

#[test]
fn the_peak_and_the_rest_are_what_the_program_holds() {
    let output = cases(&[
        "--only",
        "grows",
        "--peers",
        "glibc,glibc-2-arenas",
        "--json",
    ]);
    let json = parsed(&output);
    for peer in ["glibc", "glibc-2-arenas"] {
        let value = |name| value(&json, "grows", peer, name);
        assert_near(value("peak"), 96.0 * MIB, "peak");
        for moment in ["at rest", "2 s after", "at the end"] {
            assert_near(value(moment), 32.0 * MIB, moment);
        }
        assert_eq!(value("live"), 32.0 * MIB);
        assert_eq!(value("processes"), 1.0);
        assert!(value("time") > 0.0 && value("processor time at rest") < 0.5);
        assert_eq!(figure(&json, "grows", peer, "outcome"), "ok");
        let course = figure(&json, "grows", peer, "MB over seconds");
        let course = course.as_str().expect("no text");
        assert!((20..=202).contains(&course.split(' ').count()), "{course}");
    }
}

#[test]
fn an_allocator_runs_in_the_row_that_the_case_tunes_or_in_none() {
    let peers = "glibc,jemalloc,jemalloc-tuned";
    let output = cases(&["--only", "forks", "--peers", peers, "--json"]);
    let json = parsed(&output);
    let figures = json["figures"].as_array().expect("no figures");
    assert!(figures.iter().all(|row| row["peer"] != "jemalloc-tuned"));
}

#[test]
fn the_children_of_a_subject_count_together_wherever_their_session_is() {
    let json = parsed(&cases(&["--only", "forks", "--peers", "glibc", "--json"]));
    let value = |name| value(&json, "forks", "glibc", name);
    assert_eq!(value("processes"), 4.0);
    // The peaks of three processes need not coincide.
    assert!(value("peak") > 60.0 * MIB && value("peak") < 115.0 * MIB);
    assert_near(value("at the end"), 48.0 * MIB, "at the end");
}

#[test]
fn a_driver_is_not_counted_and_ends_the_run() {
    let json = parsed(&cases(&["--only", "driven", "--peers", "glibc", "--json"]));
    let value = |name| value(&json, "driven", "glibc", name);
    assert!((40e6..80e6).contains(&value("at the end")), "{json:#}");
    assert_eq!(figure(&json, "driven", "glibc", "outcome"), "ok");
}

#[test]
fn what_is_installed_is_not_installed_again() {
    cases(&["--list"]);
    let again = ["--only", "grows,driven", "--install"];
    let output = lab(&[&["cases", "--cases", &small()], &again[..]].concat());
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "driven: installed\ngrows: installed\n"
    );
}

/// Whether a process has that word in its command.
fn is_running(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("no /proc").flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| text(&line).split('\0').any(|part| part == word))
}

#[test]
fn a_subject_that_dies_and_one_that_hangs_are_shown_and_leave_nothing() {
    let output = cases(&["--only", "dies,hangs", "--peers", "glibc"]);
    let (tables, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for part in [
        "dies under glibc: subject ended early: signal 11: subject: out of luck",
        "hangs under glibc: load over 1 s",
    ] {
        assert!(tables.contains(part), "no {part:?} in {tables}");
    }
    assert!(errors.contains("failed: dies under glibc"), "{errors}");
    assert!(!is_running("987654"));
}

#[test]
fn another_check_is_a_fault_of_that_allocator() {
    let output = cases(&["--only", "differs", "--peers", "glibc,glibc-2-arenas"]);
    let (tables, errors) = (text(&output.stdout), text(&output.stderr));
    let row = tables
        .lines()
        .find(|line| line.contains("│ glibc-2-arenas"));
    let row = row.expect("no row");
    assert!(row.contains("check differs"), "{tables}");
    let told = "left out: differs under glibc-2-arenas: check differs";
    assert!(errors.contains(told), "{errors}");
}

#[test]
fn variables_of_allocators_come_from_the_row_alone() {
    let output = Command::new(env!("CARGO_BIN_EXE_neap-lab"))
        .args(["cases", "--quiet", "--cases", &small(), "--json"])
        .args(["--only", "differs", "--peers", "glibc"])
        .env("MALLOC_ARENA_MAX", "7")
        .output();
    let json = parsed(&output.expect("neap-lab does not start"));
    assert_eq!(figure(&json, "differs", "glibc", "check"), "none");
}

#[test]
fn what_is_missing_is_told_and_a_record_has_a_table_and_a_picture() {
    let of = folder("cases");
    let needy = of.join("needy");
    std::fs::create_dir(&needy).expect("no folder");
    let grows = std::fs::read_to_string(format!("{}/grows/case.toml", small()));
    let text_of = grows.expect("no case");
    let text_of = text_of.replace("build = [", "apt = [\"no-such-package\"]\nbuild = [");
    std::fs::write(needy.join("case.toml"), text_of).expect("cannot write");
    let copy = Command::new("cp")
        .args(["-r", &format!("{}/driven", small())])
        .arg(&of)
        .status();
    assert!(copy.is_ok_and(|status| status.success()));
    let (of, records) = (of.to_string_lossy().into_owned(), folder("cases-records"));
    let arguments = ["cases", "--cases", &of, "--peers", "glibc", "--records"];
    let output = lab(&[&arguments[..], &[&records.to_string_lossy()]].concat());
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("left out: needy: Debian's no-such-package missing"),
        "{errors}"
    );
    assert!(text(&output.stdout).contains("cases that ran: 1 of 2"));
    let named = lab(&["cases", "--cases", &of, "--only", "needy"]);
    let told = text(&named.stderr);
    assert_eq!(named.status.code(), Some(1), "{told}");
    let remedy = "(neap lab cases --install --only needy)";
    assert!(
        told.contains("no case can run: needy: ") && told.contains(remedy),
        "{told}"
    );
    let list = text(&lab(&["cases", "--cases", &of, "--list"]).stdout);
    assert!(list.contains("Debian's no-such-package missing"), "{list}");
    let files = std::fs::read_dir(&records).expect("no folder").flatten();
    let files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    let of_kind = |kind: &str| {
        let found = files
            .iter()
            .find(|file| file.extension().is_some_and(|e| e == kind));
        found.unwrap_or_else(|| panic!("no {kind} in {files:?}"))
    };
    let record = of_kind("csv").to_string_lossy().into_owned();
    let shown = text(&lab(&["show", &record]).stdout);
    assert!(shown.contains("driven: Driven (memory in MB)"), "{shown}");
    let picture = std::fs::read_to_string(of_kind("svg")).expect("no picture");
    assert!(picture.contains(">Driven</text>"), "{picture}");
}

/// The case book tells of every case in the same form.
#[test]
fn every_case_tells_its_story() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let book = std::fs::read_to_string(root.join("../docs/cases.md")).expect("no case book");
    let cases = std::fs::read_dir(root.join("cases"))
        .expect("no cases")
        .flatten();
    let folders: Vec<PathBuf> = cases.map(|entry| entry.path()).collect();
    assert!(!folders.is_empty());
    for folder in folders
        .iter()
        .filter(|path| path.join("case.toml").is_file())
    {
        let name = folder.file_name().expect("a name").to_string_lossy();
        let story = std::fs::read_to_string(folder.join("README.md"));
        let story = story.unwrap_or_else(|_| panic!("{name} has no README.md"));
        for part in [
            "# ",
            "\n## What happens\n",
            "\n## Why\n",
            "\n## What one does\n",
        ] {
            assert!(story.contains(part), "no {part:?} in {name}/README.md");
        }
        let link = format!("](../lab/cases/{name}/README.md)");
        assert!(book.contains(&link), "docs/cases.md has no row {link}");
    }
    let listed = lab(&["cases", "--list"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
}
