//! Reproducible counts: instructions by valgrind, system calls by strace.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command;
use crate::peers::Ready;
use crate::programs::which;
use crate::run;
use crate::work::count::Counted;
use crate::work::identity;
use crate::workloads::Workload;

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
    let heap = stdout.lines().find_map(|line| line.strip_prefix("heap="));
    identity::ensure_same(
        heap.context("the worker did not tell its heap")?.as_ref(),
        &peer.counted,
    )?;
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
    let worker = run::worker(workload, ops)?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "calls,name"]);
    strace
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", peer.library.display()));
    for (name, value) in &peer.settings {
        strace.arg("-E").arg(format!("{name}={value}"));
    }
    strace.arg(worker.get_program()).args(worker.get_args());
    let (stdout, stderr) = command::outputs(&mut strace)?;
    run::parse(&stdout, &peer.library)?;
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
