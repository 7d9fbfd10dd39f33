//! One run of one workload under one peer, in a process of its own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::command::output;
use crate::machine;
use crate::peers::Ready;
use crate::purges::{self, Purges};
use crate::report::{field, needed};
use crate::work::identity;
use crate::work::outcome::Outcome;
use crate::workloads::Workload;

/// The measurements of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Wall time per operation in nanoseconds.
    pub ns_per_op: f64,
    /// Peak resident KiB.
    pub peak_rss_kib: u64,
    /// Minor and major page faults.
    pub faults: (u64, u64),
    /// Resident bytes per block, for workloads that measure it.
    pub bytes_per_block: Option<f64>,
    /// What Neap gave back to the kernel.
    pub purges: Option<Purges>,
}

/// Prints, in the worker, what [`parse`] reads in the harness.
///
/// # Errors
/// If /proc cannot be read, or malloc and free are from two libraries.
pub fn report(outcome: &Outcome) -> anyhow::Result<()> {
    let me = std::process::id();
    let faults = machine::faults(me)?;
    let peak = machine::peak_resident_kib(me)?;
    println!(
        "ns_per_op={}",
        outcome.elapsed.as_nanos() as f64 / outcome.ops.max(1) as f64
    );
    println!(
        "peak_rss_kib={peak}\nminor_faults={}\nmajor_faults={}",
        faults.0, faults.1
    );
    if let Some(bytes) = outcome.bytes_per_block {
        println!("bytes_per_block={bytes}");
    }
    if let Some(Purges { purged, regretted }) = purges::own() {
        println!("purged={purged}\nregretted={regretted}");
    }
    Ok(())
}

/// Reads a worker's report and checks that it used `library`.
///
/// # Errors
/// If a number is missing, or the worker's malloc was another.
pub fn parse(report: &str, library: &Path) -> anyhow::Result<Sample> {
    ensure_heap(report, library)?;
    Ok(Sample {
        ns_per_op: needed(report, "ns_per_op")?.parse()?,
        peak_rss_kib: needed(report, "peak_rss_kib")?.parse()?,
        faults: (
            needed(report, "minor_faults")?.parse()?,
            needed(report, "major_faults")?.parse()?,
        ),
        bytes_per_block: field(report, "bytes_per_block")
            .map(str::parse)
            .transpose()?,
        purges: match (field(report, "purged"), field(report, "regretted")) {
            (Some(purged), Some(regretted)) => Some(Purges {
                purged: purged.parse()?,
                regretted: regretted.parse()?,
            }),
            _ => None,
        },
    })
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

/// The command of a worker process for `ops` operations of `workload`, without its preload.
///
/// # Errors
/// If this program's own path cannot be read.
pub fn worker(workload: &Workload, ops: u64) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "run", workload.name, "--ops", &ops.to_string()]);
    Ok(command)
}

/// Runs one of the lab's own workloads once under `peer`.
///
/// # Errors
/// If the worker fails, hangs, or used another malloc.
pub fn once(workload: &Workload, peer: &Ready, ops: u64) -> anyhow::Result<Sample> {
    let mut command = worker(workload, ops)?;
    command
        .env("LD_PRELOAD", &peer.library)
        .envs(peer.settings.iter().cloned());
    parse(&output(&mut command)?, &peer.library)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ns_per_op=12.5\npeak_rss_kib=2048\nminor_faults=300\nmajor_faults=0\n\
                          bytes_per_block=66.5\npurged=4096\nregretted=8\nheap=/lib/libone.so\n";

    #[test]
    fn a_report_is_read() {
        let sample = parse(REPORT, Path::new("/lib/libone.so")).unwrap();
        let expected = Sample {
            ns_per_op: 12.5,
            peak_rss_kib: 2_048,
            faults: (300, 0),
            bytes_per_block: Some(66.5),
            purges: Some(Purges {
                purged: 4_096,
                regretted: 8,
            }),
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn a_report_of_another_heap_is_refused() {
        let error = parse(REPORT, Path::new("/lib/libtwo.so"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("libone") && error.contains("libtwo"),
            "{error}"
        );
    }
}
