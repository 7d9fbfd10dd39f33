//! One measurement in a process of its own: of one workload under one peer, its time, memory and
//! faults; and reproducible counts, instructions by valgrind and system calls by strace.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::{self, output, which};
use crate::engine::record::{Figure, Unit};
use crate::peers::locate::Ready;
use crate::status::{PURGED, REGRETTED};
use crate::work::count::Counted;
use crate::work::identity;
use crate::workloads::{HUGE_KEY, IDLE_KEY, PER_BLOCK_KEY, Workload};

/// The names of a run's figures.
pub const TIME: &str = "time of an operation";
pub const PEAK: &str = "peak RSS";
pub const MINOR: &str = "minor faults";
pub const MAJOR: &str = "major faults";
pub const PER_BLOCK: &str = "resident a live block";
pub const IDLE: &str = "resident after a pause";
pub const HUGE: &str = "in huge pages";

/// A line of a worker's report: its key, and the figure that it is. Every report has the first
/// four.
const LINES: [(&str, &str, Unit); 9] = [
    ("ns_per_op", TIME, Unit::Nanoseconds),
    ("peak_rss_kib", PEAK, Unit::Kib),
    ("minor_faults", MINOR, Unit::Count),
    ("major_faults", MAJOR, Unit::Count),
    (PER_BLOCK_KEY, PER_BLOCK, Unit::BlockBytes),
    (IDLE_KEY, IDLE, Unit::Kib),
    (HUGE_KEY, HUGE, Unit::Kib),
    ("purged", PURGED, Unit::Bytes),
    ("regretted", REGRETTED, Unit::Bytes),
];
const REQUIRED: usize = 4;

/// The figures of a worker's report, if it used `library`.
///
/// # Errors
/// If a number is missing, or the worker's malloc was another.
pub fn figures(report: &str, library: &Path) -> anyhow::Result<Vec<Figure>> {
    ensure_heap(report, library)?;
    let mut figures = Vec::new();
    for (place, (key, name, unit)) in LINES.into_iter().enumerate() {
        match field(report, key) {
            Some(value) => figures.push(Figure::new(name, unit, value.parse()?)),
            None => ensure!(place >= REQUIRED, "the worker did not tell {key}"),
        }
    }
    Ok(figures)
}

/// Fails unless the worker that wrote `report` used `library`.
///
/// # Errors
/// If its malloc was another, or the report does not name it.
pub fn ensure_heap(report: &str, library: &Path) -> anyhow::Result<()> {
    identity::ensure_same(Path::new(needed(report, "heap")?), library)
}

/// The report of a worker that carries out `job` under `peer`.
///
/// # Errors
/// If the worker fails, hangs, or used another malloc.
pub fn ask<J: AsRef<OsStr>>(
    job: impl IntoIterator<Item = J>,
    peer: &Ready,
) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").args(job);
    command.env("LD_PRELOAD", &peer.library);
    let report = output(command.envs(peer.settings.iter().cloned()))?;
    ensure_heap(&report, &peer.library)?;
    Ok(report)
}

/// The command of such a worker under strace, with these options of strace's own.
///
/// # Errors
/// If this program's own path cannot be read.
pub fn under_strace<J: AsRef<OsStr>>(
    options: &[&str],
    job: impl IntoIterator<Item = J>,
    peer: &Ready,
) -> anyhow::Result<Command> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-E"]);
    strace.arg(format!("LD_PRELOAD={}", peer.library.display()));
    for (name, value) in &peer.settings {
        strace.arg("-E").arg(format!("{name}={value}"));
    }
    strace
        .args(options)
        .arg(std::env::current_exe()?)
        .arg("worker");
    strace.args(job);
    Ok(strace)
}

/// Runs one of the lab's own workloads once under `peer`.
///
/// # Errors
/// If the worker fails, hangs, or used another malloc.
pub fn once(workload: &Workload, peer: &Ready, ops: u64) -> anyhow::Result<Vec<Figure>> {
    let job = ["run", &workload.name, "--ops", &ops.to_string()];
    figures(&ask(job, peer)?, &peer.library)
}

/// The value of the line `key=value` in a report.
pub fn field<'a>(report: &'a str, key: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    report.lines().find_map(of).map(str::trim)
}

/// Like [`field`], but the line is required.
///
/// # Errors
/// If there is no such line.
pub fn needed<'a>(report: &'a str, key: &str) -> anyhow::Result<&'a str> {
    field(report, key).with_context(|| format!("the worker did not tell {key}"))
}

/// Why instructions cannot be counted here; `None` if they can.
pub fn no_instructions() -> Option<&'static str> {
    if which("valgrind").is_none() {
        return Some("valgrind is not installed");
    }
    (!cfg!(target_arch = "x86_64")).then_some("the counted stretch is marked on x86-64 only")
}

/// Why system calls cannot be counted here; `None` if they can.
pub fn no_system_calls() -> Option<&'static str> {
    which("strace")
        .is_none()
        .then_some("strace is not installed")
}

/// Instructions per pair or call: the difference between two loop lengths, divided by the
/// difference of their operations, so that one-time costs cancel.
///
/// # Errors
/// If valgrind or the worker fails, or the worker used another malloc.
pub fn instructions(counted: &Counted, peer: &Ready) -> anyhow::Result<f64> {
    let (short, long) = counted.lengths;
    let few = collected(counted, peer, short)?;
    let many = collected(counted, peer, long)?;
    ensure!(
        many >= few,
        "{} counted less in the longer loop",
        counted.name
    );
    Ok((many - few) as f64 / (long - short) as f64)
}

/// Instructions between the toggles of `ops` operations.
fn collected(counted: &Counted, peer: &Ready, ops: u64) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--collect-atstart=no",
        "--callgrind-out-file=/dev/null",
    ]);
    valgrind.arg(std::env::current_exe()?);
    valgrind.args(["worker", "count", counted.name, "--ops", &ops.to_string()]);
    valgrind
        .env("LD_PRELOAD", &peer.counted)
        .envs(peer.settings.iter().cloned());
    let (stdout, stderr) = command::outputs(&mut valgrind)?;
    ensure_heap(&stdout, &peer.counted)?;
    collected_in(&stderr).context("callgrind did not tell what it collected")
}

/// The number in callgrind's line `==PID== Collected : N`.
fn collected_in(log: &str) -> Option<u64> {
    let number = |line: &str| line.split_once("Collected :")?.1.trim().parse().ok();
    log.lines().find_map(number)
}

/// System calls of a whole run, including the start and end of the process.
///
/// # Errors
/// If strace or the worker fails, or the worker used another malloc.
pub fn system_calls(workload: &Workload, peer: &Ready, ops: u64) -> anyhow::Result<u64> {
    let job = ["run", &workload.name, "--ops", &ops.to_string()];
    let mut strace = under_strace(&["-c", "-U", "calls,name"], job, peer)?;
    let (stdout, stderr) = command::outputs(&mut strace)?;
    ensure_heap(&stdout, &peer.library)?;
    total_calls(&stderr).context("strace did not tell a total")
}

/// The number before `total` in strace's table of two columns.
fn total_calls(table: &str) -> Option<u64> {
    table
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_suffix("total")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ns_per_op=12.5\npeak_rss_kib=2048\nminor_faults=300\nmajor_faults=0\n\
                          bytes_per_block=66.5\npurged=4096\nregretted=8\nheap=/lib/libone.so\n";

    #[test]
    fn a_report_is_read() {
        let library = Path::new("/lib/libone.so");
        let told = figures(REPORT, library).unwrap();
        let expected = [
            Figure::nanoseconds(TIME, 12.5),
            Figure::kib(PEAK, 2_048),
            Figure::count(MINOR, 300),
            Figure::count(MAJOR, 0),
            Figure::block_bytes(PER_BLOCK, 66.5),
            Figure::bytes(PURGED, 4_096.0),
            Figure::bytes(REGRETTED, 8.0),
        ];
        assert_eq!(told, expected);
        let without = |line| figures(&REPORT.replace(line, ""), library);
        assert_eq!(without("bytes_per_block=66.5\n").unwrap().len(), 6);
        assert!(without("minor_faults=300\n").is_err());
    }

    #[test]
    fn a_report_of_another_heap_is_refused() {
        let error = figures(REPORT, Path::new("/lib/libtwo.so"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("libone") && error.contains("libtwo"),
            "{error}"
        );
    }

    #[test]
    fn callgrinds_line_is_read() {
        assert_eq!(
            collected_in("==1== Events    : Ir\n==1== Collected : 6405\n"),
            Some(6_405)
        );
        assert_eq!(collected_in("==1== Events    : Ir\n"), None);
    }

    #[test]
    fn straces_total_is_read() {
        let table = "    calls syscall\n--------- -------\n       23 mmap\n\
                     --------- -------\n      103 total\n";
        assert_eq!(total_calls(table), Some(103));
        assert_eq!(total_calls("nothing"), None);
    }
}
