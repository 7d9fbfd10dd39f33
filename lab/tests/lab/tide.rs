//! `neap-lab tide` as a user runs it, with small sizes: every step of every run is present, and
//! what must hold on every machine is checked. No assertion depends on time.

use crate::skips::skipped;
use crate::stage::{folder, lab, neap, parsed, text};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SMALL: [&str; 7] = ["tide", "--coroutines", "200", "--mib", "2", "--wait", "50"];

fn small(more: &[&str]) -> Output {
    lab(&[&SMALL[..], more].concat())
}

/// The figures of one step.
struct Step<'a> {
    case: &'a str,
    figures: Vec<&'a Value>,
}

impl Step<'_> {
    fn find(&self, name: &str) -> Option<u64> {
        let figure = self
            .figures
            .iter()
            .find(|figure| figure["figure"] == name)?;
        figure["value"].as_f64().map(|number| number as u64)
    }

    fn number(&self, name: &str) -> u64 {
        let number = self.find(name);
        number.unwrap_or_else(|| panic!("no {name} in {} {:?}", self.case, self.figures))
    }
}

/// The steps of a run, in order.
fn steps<'a>(json: &'a Value, engine: &str, run: &str) -> Vec<Step<'a>> {
    let mut steps: Vec<Step> = Vec::new();
    for figure in json["figures"].as_array().expect("no figures") {
        let case = figure["case"].as_str().expect("no case");
        if figure["peer"] != engine || !case.starts_with(&format!("{run} ")) {
            continue;
        }
        match steps.last_mut() {
            Some(last) if last.case == case => last.figures.push(figure),
            _ => steps.push(Step {
                case,
                figures: vec![figure],
            }),
        }
    }
    steps
}

#[test]
fn every_step_of_every_run_tells_what_came_and_went() {
    let json = parsed(&small(&["--peers", "glibc", "--json"]));
    let waited = steps(&json, "glibc", "waited");
    let names: Vec<&str> = waited.iter().map(|step| step.case).collect();
    let all = [
        "waited start",
        "waited allocated",
        "waited created",
        "waited closed",
        "waited allocated-again",
        "waited created-again",
    ];
    assert_eq!(names, all);
    assert_eq!(steps(&json, "glibc", "at-once").len(), 6);
    assert_eq!(steps(&json, "glibc", "stacks-first").len(), 4);
    let counts: Vec<u64> = waited.iter().map(|s| s.number("coroutines")).collect();
    assert_eq!(counts, [0, 0, 200, 0, 0, 200]);
    let (allocated, created) = (&waited[1], &waited[2]);
    // 2 MiB and 200 pages are present while they are in use, and needed only then.
    let base = waited[0].number("RSS");
    assert!(allocated.number("RSS when full") >= base + 1_800);
    assert!(created.number("peak RSS") >= created.number("RSS"));
    assert!(created.number("live") >= 800 && allocated.number("live") == 0);
    assert!(created.number("minor faults") >= 200);
    assert!(created.number("page tables") > 4 && created.find("RSS later").is_some());
    assert!(json["head"]["kernel"].is_string() && json["head"]["max_map_count"].is_string());
}

#[test]
fn a_record_with_its_picture_shows_the_same_tables() {
    let folder = folder("tide-records");
    let path = folder.to_str().expect("a path of text");
    let output = small(&["--peers", "glibc", "--blocks", "one", "--records", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    for part in ["RSS in MiB, at once", "Page tables", "Newly faulted"] {
        assert!(tables.contains(part), "no {part:?} in {tables}");
    }
    let files = std::fs::read_dir(&folder).expect("no folder");
    let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let names: Vec<String> = files
        .iter()
        .map(|file| text(file.as_os_str().as_encoded_bytes()))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for (name, end) in names.iter().zip(["-tide.csv", "-tide.svg"]) {
        assert!(name.ends_with(end), "{name}");
    }
    let picture = folder.join("again.svg");
    let shown = lab(&[
        "show",
        "--svg",
        picture.to_str().expect("a path"),
        &names[0],
    ]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(tables.contains(text(&shown.stdout).trim()), "{tables}");
    let drawn = std::fs::read(picture).expect("no picture");
    assert_eq!(drawn, std::fs::read(&files[1]).expect("no picture"));
}

#[test]
fn the_write_ups_program_in_go_takes_the_same_steps() {
    let output = small(&["--peers", "go,go-freed", "--json"]);
    let errors = text(&output.stderr);
    if errors.contains("go is not installed") {
        return skipped(&errors);
    }
    let json = parsed(&output);
    for engine in ["go", "go-freed"] {
        let waited = steps(&json, engine, "waited");
        assert_eq!(waited.len(), 6);
        // A goroutine has a stack of at least 2 KiB.
        assert!(waited[2].number("live") >= 400);
        assert_eq!(waited[3].number("coroutines"), 0);
    }
    let version = json["head"]["version of go"].as_str();
    assert!(
        version.is_some_and(|v| v.starts_with("go1.")),
        "{version:?}"
    );
}

#[test]
fn coroutines_on_neaps_stacks_tell_what_neap_keeps() {
    let neap = neap();
    let neap = neap.to_str().expect("a path of text");
    let json = parsed(&small(&["--peers", "neap", "--neap", neap, "--json"]));
    let waited = steps(&json, "neap", "waited");
    let counts: Vec<u64> = waited.iter().map(|s| s.number("coroutines")).collect();
    assert_eq!(counts, [0, 0, 200, 0, 0, 200]);
    assert!(waited[1].find("free and dirty").is_some() && waited[1].find("purged").is_some());
}

#[test]
fn without_go_that_row_is_absent_and_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_neap-lab"))
        .args(SMALL)
        .args(["--peers", "go,glibc", "--at-once"])
        .env("PATH", "")
        .output()
        .expect("neap-lab does not start");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("go is absent: go is not installed"));
    assert!(text(&output.stdout).contains("glibc"));
}

/// A worker in an address space of `bytes`, in which stacks run out.
fn cramped_worker(bytes: u64, coroutines: &str) -> Output {
    let limits = format!("ulimit -v {}; exec \"$0\" \"$@\"", bytes >> 10);
    let lab = env!("CARGO_BIN_EXE_neap-lab");
    let mut child = Command::new("sh")
        .args(["-c", &limits, lab, "worker", "tide", "own"])
        .args(["2097152", "4096", coroutines, "65536"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh does not start");
    let mut actions = child.stdin.take().expect("no pipe");
    actions
        .write_all(b"create\nclose\nallocate\n")
        .expect("the worker does not listen");
    drop(actions);
    child.wait_with_output().expect("no end")
}

#[test]
fn where_stacks_run_out_the_worker_tells_how_far_it_came_and_goes_on() {
    let output = cramped_worker(256 << 20, "100000");
    let report = text(&output.stdout);
    assert!(output.status.success(), "{report}");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 4, "{report}");
    let done = |line: &str| serde_json::from_str::<Value>(line).expect("a result");
    let created = done(lines[1]);
    let note = created["note"].as_str().expect("no note");
    let (count, reason) = note.split_once(" coroutines, then: ").expect(note);
    assert_eq!(reason, "Cannot allocate memory");
    assert_eq!(created["coroutines"].to_string(), count.replace(',', ""));
    assert_eq!(done(lines[2])["coroutines"], 0);
    assert!(done(lines[3])["full_kib"].as_u64() > Some(2_048));
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    for (arguments, told) in [
        (&["--peers", "dlmalloc"][..], "no engine \"dlmalloc\""),
        (&["--only", "hurried"], "no run \"hurried\""),
        (&["--coroutines", "1000000000000"], "are missing"),
        (&["--coroutines", "0"], "no coroutines"),
        (&["--stack-kib", "9"], "whole pages"),
    ] {
        let output = lab(&[&["tide"], arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.starts_with("neap-lab: ") && errors.contains(told),
            "{errors}"
        );
    }
    let output = lab(&["tide", "--blocks", "4M"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("--blocks"),
        "{}",
        text(&output.stderr)
    );
}
