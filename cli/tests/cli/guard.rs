//! `neap guard`: guarded samples of a running process.

use crate::fake::Fake;
use crate::stage::{compile, neap, printed, room, said};
use neap_shared::status_page::{self, Head, Served, ThreadState};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program with a use after free, running under Neap until this value is dropped.
struct Freed {
    child: Child,
    room: TempDir,
}

fn built(room: &TempDir) -> PathBuf {
    let program = room.path().join("freed");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/freed.c");
    compile(["-O1", "-g", "-fno-builtin", source, "-o"], &program);
    program
}

impl Freed {
    fn start(mode: &str, variables: &[(&str, &str)]) -> Freed {
        let room = room();
        let program = built(&room);
        let stderr = File::create(room.path().join("stderr")).unwrap();
        let mut command = neap();
        command.args(["run", "--"]).arg(&program).arg(mode);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Freed { child, room }
    }

    fn neap(&self, arguments: &[&str]) -> Command {
        let (verb, rest) = arguments.split_first().unwrap();
        let mut command = neap();
        command.arg(verb).arg(self.child.id().to_string());
        command.args(["--timeout", "60s"]).args(rest);
        command
    }

    fn guard(&self, interval: &str) -> String {
        printed(&mut self.neap(&["guard", "--interval", interval]))
    }

    /// What `neap stat` says of its guarded samples.
    fn guards(&self) -> Value {
        let text = printed(&mut self.neap(&["stat", "--format=json"]));
        let object: Value = serde_json::from_str(&text).unwrap();
        object["guards"].clone()
    }

    /// Waits until one of these counts is not 0.
    fn await_count(&self, name: &str) -> Value {
        let since = Instant::now();
        loop {
            let guards = self.guards();
            if guards[name].as_u64().unwrap() > 0 {
                return guards;
            }
            assert!(since.elapsed() < PATIENCE, "{guards}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.room.path().join("stderr")).unwrap()
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_error_is_found_and_counted_after_the_switch() {
    let freed = Freed::start("lives", &[]);
    assert_eq!(freed.guards()["state"], "off");
    let page = printed(&mut freed.neap(&["stat"]));
    assert!(!page.contains("guards"), "{page}");
    let page = freed.guard("all");
    let title = format!("freed ({}) guards every small", freed.child.id());
    assert!(page.starts_with(&title), "{page}");
    assert!(
        page.contains("reports to   its standard error (/"),
        "{page}"
    );
    assert!(
        page.contains("--interval off\n") && !page.contains("hint"),
        "{page}"
    );
    let guards = freed.await_count("errors");
    assert_eq!(
        (&guards["state"], &guards["interval_ms"]),
        (&"all".into(), &0.into())
    );
    assert!(
        guards["blocks"].as_u64() >= guards["errors"].as_u64(),
        "{guards}"
    );
    let report = freed.stderr();
    assert!(report.starts_with("neap: read of 0x"), "{report}");
    assert!(
        report.contains(", byte 0 of a block of 16 bytes that was freed\n"),
        "{report}"
    );
    assert!(report.contains("\n  the free by thread"), "{report}");
    let page = printed(&mut freed.neap(&["stat"]));
    assert!(page.contains(" memory error"), "{page}");
    let metrics = printed(&mut freed.neap(&["stat", "--format=prometheus"]));
    for name in ["neap_memory_errors_total{", "neap_guarded_blocks_total{"] {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(!line.ends_with(" 0"), "{line}");
    }
}

#[test]
fn samples_end_a_wrong_program_with_a_report() {
    let mut freed = Freed::start("dies", &[]);
    freed.guard("1ms");
    // To wait would close its input.
    let _input = freed.child.stdin.take();
    let status = freed.child.wait().unwrap();
    let report = freed.stderr();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}: {report}");
    assert!(
        report.contains("byte 0 of a block of 16 bytes that was freed"),
        "{report}"
    );
}

#[test]
fn what_is_switched_on_is_switched_off_again() {
    let freed = Freed::start("sound", &[("NEAP_GUARD_FILE", "/tmp/freed-reports")]);
    let page = freed.guard("2ms");
    assert!(
        page.contains("guards one allocation of each thread about every 2 ms\n"),
        "{page}"
    );
    assert!(
        page.contains("reports to   /tmp/freed-reports, and their first lines"),
        "{page}"
    );
    freed.await_count("blocks");
    // The usual interval.
    let page = printed(&mut freed.neap(&["guard"]));
    assert!(page.contains(" about every 20 ms\n"), "{page}");
    let page = freed.guard("off");
    assert!(
        page.contains(" guards no further allocations\n  so far "),
        "{page}"
    );
    assert!(!page.contains("reports to"), "{page}");
    let (first, second) = (freed.guards(), freed.guards());
    assert_eq!(first, second);
    assert_eq!(
        (&first["state"], &first["errors"]),
        (&"off".into(), &0.into())
    );
    assert_eq!(freed.stderr(), "");
}

#[test]
fn a_process_that_was_started_with_guards_tells_them() {
    let freed = Freed::start("sound", &[("NEAP_GUARD", "7ms")]);
    assert_eq!(freed.guards()["interval_ms"], 7);
}

#[test]
fn a_report_tells_the_error_of_a_run() {
    let room = room();
    let program = built(&room);
    let mut command = neap();
    command
        .arg("report")
        .arg("-o")
        .arg(room.path().join("page.html"));
    command.arg("--").arg(&program).arg("dies");
    command
        .env("NEAP_GUARD", "all")
        .env("NEAP_GUARD_FILE", room.path().join("reports"));
    let output = command.output().unwrap();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGSEGV),
        "{}",
        said(&output)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
    assert!(
        text.contains("- Guarded samples found 1 memory error in "),
        "{text}"
    );
    assert!(text.contains("    neap: read of 0x"), "{text}");
    assert!(text.contains("parse (freed.c:"), "{text}");
    let page = fs::read_to_string(room.path().join("page.html")).unwrap();
    assert!(page.contains("data-kind=\"memory_error\"") && page.contains("<pre>neap: read of 0x"));
}

/// Only the program's own part of a Rust program's stack traces helps.
#[test]
fn a_stack_trace_begins_with_the_programs_code() {
    let room = room();
    let program = room.path().join("rusty");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rusty.c");
    compile(["-O0", "-fno-builtin", source, "-o"], &program);
    let mut command = neap();
    let output = command.args(["run", "--guard=all", "--"]).arg(&program);
    let output = output.output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    let mut lines = said.lines();
    for (title, first) in [
        ("  the wrong call by ", "    #0 drop (in rusty)"),
        ("  the allocation by ", "    #0 make (in rusty)"),
        ("  the free by ", "    #0 drop (in rusty)"),
    ] {
        assert!(lines.any(|line| line.starts_with(title)), "{said}");
        assert_eq!(lines.next(), Some(first), "{said}");
        let second = lines.next().unwrap();
        assert!(second.starts_with("    #1 main (in rusty)"), "{said}");
    }
}

#[test]
fn the_file_of_the_reports_is_checked_before_the_start() {
    let room = room();
    let run = |flags: &[&str], file: &str| {
        let mut command = neap();
        command.current_dir(room.path()).arg("run").args(flags);
        command.env("NEAP_GUARD_FILE", file);
        command.args(["--", "echo", "ran"]).output().unwrap()
    };
    for (flags, file) in [
        (&["--guard", "--guard-file=/no/such/dir/f"][..], ""),
        (&["--guard-file=/no/such/dir/f"], ""),
        (&["--guard"], "/no/such/dir/f"),
    ] {
        let said = refusal(&run(flags, file));
        let why = "neap: error: cannot write /no/such/dir/f: there is no directory /no/such/dir";
        assert!(said.starts_with(why), "{flags:?}: {said}");
    }
    let output = run(&["--guard", "--guard-file=reports"], "");
    assert_eq!(
        (output.status.code(), said(&output).as_str()),
        (Some(0), "")
    );
    // It would say that an error was found.
    assert!(!room.path().join("reports").exists());
}

/// The command that the finding names leads to a page with the reports.
#[test]
fn a_finding_without_its_report_says_how_to_have_it() {
    let room = room();
    let program = built(&room);
    let report = |operands: &[&str]| {
        let mut command = neap();
        command.current_dir(room.path()).env("NEAP_GUARD", "all");
        command.args(["report", "--format=json", "-o", "verdict"]);
        command.args(operands).output().unwrap();
        let text = fs::read(room.path().join("verdict")).unwrap();
        let verdict: Value = serde_json::from_slice(&text).unwrap();
        verdict["findings"][0].clone()
    };
    let finding = report(&["--", program.to_str().unwrap(), "dies"]);
    assert!(finding["kind"] == "memory_error" && finding["text"].is_null());
    let remedy = finding["remedy"].as_str().unwrap();
    let named = remedy
        .split('`')
        .find_map(|part| part.strip_prefix("neap "));
    let words = named.expect(remedy).split(' ').map(|word| match word {
        "--guard" => "--guard=all",
        "--guard-file=FILE" => "--guard-file=reports",
        "PROGRAM" => program.to_str().unwrap(),
        word => word,
    });
    let mut command = neap();
    command.current_dir(room.path()).args(words).arg("dies");
    let output = command.output().unwrap();
    assert!(
        said(&output).contains("next: neap report freed.neap"),
        "{}",
        said(&output)
    );
    let text = report(&["freed.neap"])["text"].to_string();
    assert!(
        text.contains("neap: read of 0x") && text.contains("parse (freed.c:"),
        "{text}"
    );
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125), "{}", said(output));
    assert!(output.stdout.is_empty());
    said(output)
}

#[test]
fn who_cannot_be_asked_is_named() {
    let guard = |arguments: &[&str]| {
        let output = neap().arg("guard").args(arguments).output().unwrap();
        refusal(&output)
    };
    assert!(guard(&["999999999"]).contains("there is no process 999999999"));
    for wrong in ["0", "20", "2h", "sometimes"] {
        let said = guard(&["1", "--interval", wrong]);
        assert!(said.contains("for '--interval <TIME>'"), "{said}");
    }
    let file = File::open("/dev/null").unwrap();
    let alien = Fake::holding(file);
    let said = refusal(&alien.neap(&["guard"]));
    assert!(said.contains("Neap"), "{said}");
    let closed = Freed::start("sound", &[("NEAP_STATUS_PAGE", "0")]);
    let said = refusal(&closed.neap(&["guard"]).output().unwrap());
    assert!(said.contains("NEAP_STATUS_PAGE=0"), "{said}");
    let older = Fake::status_page();
    older.write(offset_of!(Head, version), &5_u64.to_ne_bytes());
    let said = refusal(&older.neap(&["guard"]));
    assert!(said.contains("layout 5"), "{said}");
}

#[test]
fn a_process_that_sleeps_is_asked_all_the_same() {
    let fake = Fake::status_page();
    let output = fake.neap(&["guard", "--timeout=50ms", "--interval=5ms"]);
    assert_eq!(output.status.code(), Some(124), "{}", said(&output));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        page.contains("has not changed its guarded samples yet"),
        "{page}"
    );
    assert_eq!(
        (fake.control().guard, fake.control().guard_interval),
        (1, 5)
    );
    let json = fake.neap(&["guard", "--timeout=50ms", "--format=json"]);
    let object: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&object["state"], &object["guards"]),
        (&"pending".into(), &Value::Null)
    );
}

#[test]
fn the_answer_says_what_is_in_force() {
    let fake = Fake::status_page();
    let output = fake.answering(&["guard", "--timeout=60s", "--interval=5s", "--format=json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["state"], &object["program"]),
        (&"done".into(), &"sleep".into())
    );
    assert_eq!(object["guards"]["interval_ms"], 5000);
    assert!(object["reports"]["file"].is_null(), "{object}");
    let page = fake.answering(&["guard", "--timeout=60s"]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    // The fake process says nothing of a thread.
    assert!(
        page.contains("hint         it has no purge thread"),
        "{page}"
    );
}

#[test]
fn hostile_counts_are_shown_as_they_are() {
    let fake = Fake::status_page();
    let served = Served {
        guard_interval: u64::MAX - 7,
        guarded_blocks: u64::MAX,
        memory_errors: u64::MAX,
        thread: ThreadState::Here as u64,
        ..Served::default()
    };
    fake.write(status_page::SERVED_AT, bytemuck::bytes_of(&served));
    let page = fake.neap(&["stat", "--timeout=20ms"]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        page.contains("at an interval that this neap does not know"),
        "{page}"
    );
    assert!(
        page.contains("18446744073709551615 memory errors"),
        "{page}"
    );
}

/// The status is the program's, and no file of reports stays behind.
#[test]
fn reports_that_standard_error_does_not_take() {
    let room = room();
    let (program, temporary) = (built(&room), room.path().join("temporary"));
    fs::create_dir(&temporary).unwrap();
    let mut command = neap();
    command.args(["run", "--guard=all", "--"]).arg(&program);
    command.arg("dies").env("TMPDIR", &temporary);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(File::create("/dev/full").unwrap()).status();
    assert_eq!(status.unwrap().signal(), Some(libc::SIGSEGV));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_file_of_reports_is_shown_with_the_names_of_functions() {
    let room = room();
    let (program, file) = (built(&room), room.path().join("reports"));
    for _ in 0..2 {
        let mut command = neap();
        command.args(["run", "--guard=all", "--guard-file"]);
        command.arg(&file).arg("--").arg(&program).arg("dies");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    }
    let reports = fs::read_to_string(&file).unwrap();
    assert!(!reports.contains("freed.c:"), "{reports}");
    assert!(
        reports.contains("neap report FILE shows the names"),
        "{reports}"
    );
    let page = room.path().join("page.html");
    let text = printed(neap().arg("report").arg(&file).arg("-o").arg(&page));
    let found = "- Guarded samples found 1 memory error in process ";
    assert_eq!(text.matches(found).count(), 2, "{text}");
    for name in ["serve (freed.c:", "parse (freed.c:"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(
        !text.contains("mapped") && !text.contains("Nothing was recorded"),
        "{text}"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("serve (freed.c:"), "{page}");
}
