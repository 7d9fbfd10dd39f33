//! The verbs that inspect a process, with real processes under the real library.

use crate::stage::{compile, is_root, neap, room, said};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use tempfile::TempDir;

/// A program under Neap with 32 MiB of live memory.
pub struct Holder {
    child: Child,
    /// The PID of its own child, or 0.
    forked: i32,
    _room: TempDir,
}

impl Holder {
    pub fn start(mode: &str) -> Holder {
        Holder::with(mode, &[])
    }

    fn with(mode: &str, variables: &[(&str, &str)]) -> Holder {
        let room = room();
        let program = room.path().join("holder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/holder.c");
        compile(["-O1", source, "-o"], &program);
        let mut child = neap()
            .args(["run", "--"])
            .arg(&program)
            .arg(mode)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        Holder {
            child,
            forked: line.trim().parse().unwrap(),
            _room: room,
        }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Its child ends when its parent is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    neap().args(arguments).output().unwrap()
}

fn stat(pid: &str) -> Value {
    let output = run(&["stat", pid, "--format=json", "--timeout=60s"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Tries several times, because the process runs on between its answer and the kernel's.
fn assert_adds_up(pid: &str) {
    let apart = || {
        let view = stat(pid);
        let resident = view["ledger"]["resident"].as_u64().unwrap();
        let kernel = view["kernel"]["arenas_resident"].as_u64().unwrap();
        (resident.abs_diff(kernel), (kernel / 100).max(256 << 10))
    };
    let mut looks = Vec::new();
    while looks.len() < 20 {
        let (apart, most) = apart();
        if apart <= most {
            return;
        }
        looks.push((apart, most));
    }
    panic!("{looks:?}");
}

#[test]
fn two_processes_have_ledgers_that_add_up() {
    let holders = [Holder::start("busy"), Holder::start("busy")];
    for holder in &holders {
        assert_adds_up(&holder.pid());
        let view = stat(&holder.pid());
        assert_eq!(view["pid"], holder.child.id());
        assert_eq!(view["program"], "holder");
        let large = view["figures"]["large"].as_u64().unwrap();
        assert!((32 << 20..40 << 20).contains(&large), "{large}");
    }
}

#[test]
fn a_forked_child_has_a_status_page_of_its_own() {
    let holder = Holder::start("fork");
    let child = holder.forked.to_string();
    let (one, other) = (stat(&holder.pid()), stat(&child));
    assert_eq!(one["pid"], holder.child.id());
    assert_eq!(other["pid"], holder.forked);
    assert_adds_up(&child);
}

#[test]
fn a_process_that_closed_our_descriptor_is_reached_through_its_memory() {
    let holder = Holder::start("close");
    let output = run(&["stat", &holder.pid(), "--timeout=60s"]);
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.is_ok_and(|scope| scope.trim() != "0") && !is_root() {
        true => assert!(said(&output).contains("yama"), "{}", said(&output)),
        false => {
            assert_adds_up(&holder.pid());
            let purge = run(&["purge", &holder.pid(), "--timeout=60s"]);
            assert_eq!(purge.status.code(), Some(0), "{}", said(&purge));
        }
    }
}

#[test]
fn a_purge_gives_free_pages_back() {
    let holder = Holder::with("busy", &[("NEAP_DECAY", "600000")]);
    let output = run(&["purge", &holder.pid(), "--format=json", "--timeout=60s"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let purged = object["purged_bytes"].as_u64().unwrap();
    assert!(purged >= 28 << 20, "{object}");
    let [before, after] =
        ["resident_before", "resident_after"].map(|name| object[name].as_u64().unwrap());
    assert!(before >= after + (24 << 20), "{object}");
}

#[test]
fn a_process_that_sleeps_is_told_by_the_kernel() {
    let holder = Holder::with("idle", &[("NEAP_PURGE_THREAD", "never")]);
    let output = run(&["stat", &holder.pid(), "--format=json", "--timeout=100ms"]);
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    // A purge thread may exist and answer.
    assert!(matches!(output.status.code(), Some(0 | 124)));
    assert!(
        view["kernel"]["arenas_resident"].as_u64().unwrap() >= 32 << 20,
        "{view}"
    );
    assert!(
        view["page_heap"]["large"].as_u64().unwrap() >= 32 << 20,
        "{view}"
    );
}

#[test]
fn a_process_without_a_status_page_is_told() {
    let holder = Holder::with("busy", &[("NEAP_STATUS_PAGE", "0")]);
    for verb in ["stat", "top", "purge"] {
        let output = run(&[verb, &holder.pid()]);
        assert_eq!(output.status.code(), Some(125));
        assert!(
            said(&output).contains("NEAP_STATUS_PAGE=0"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn top_sees_a_process_at_work() {
    let holder = Holder::start("busy");
    let mut command = neap();
    command.args(["top", &holder.pid(), "--format=json", "--interval=200ms"]);
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let (mut works, mut fresh) = (false, false);
    // On a busy machine, the process may take a while to reach a slow path.
    for line in lines.take(300) {
        // These would need the file smaps, which takes long to read.
        for name in ["arenas_resident", "not_ours"] {
            assert!(line["kernel"][name].is_null(), "{line}");
        }
        works |= line["rates"]["refills"].as_f64().unwrap() > 0.0;
        fresh |= line["state"] == "fresh";
        if works && fresh {
            break;
        }
    }
    top.kill().unwrap();
    top.wait().unwrap();
    assert!(works && fresh, "works: {works}, fresh: {fresh}");
}
