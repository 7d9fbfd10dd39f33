//! One run of one workload under one peer, in a process of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::machine;
use crate::peers::Ready;
use crate::report::{field, needed};
use crate::work::identity;
use crate::work::outcome::Outcome;
use crate::workloads::Workload;

/// A run that takes longer counts as hung.
pub const LONGEST: Duration = Duration::from_secs(180);

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
    })
}

/// Fails unless the worker that wrote `report` used `library`.
///
/// # Errors
/// If its malloc was another, or the report does not name it.
pub fn ensure_heap(report: &str, library: &Path) -> anyhow::Result<()> {
    identity::ensure_same(Path::new(needed(report, "heap")?), library)
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

/// Runs `command` to its end and returns its standard output.
///
/// # Errors
/// If it fails or takes longer than [`LONGEST`].
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    Ok(outputs(command)?.0)
}

/// Runs `command` to its end and returns its standard output and its standard error.
///
/// # Errors
/// If it fails or takes longer than [`LONGEST`].
pub fn outputs(command: &mut Command) -> anyhow::Result<(String, String)> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let reader = |stream: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // If the pipe breaks, the caller judges what arrived before.
            let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(child.stdout.take().map(|s| Box::new(s) as _));
    let stderr = reader(child.stderr.take().map(|s| Box::new(s) as _));
    let status = wait(&mut child, LONGEST)?;
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (stdout, stderr) = (text(stdout), text(stderr));
    if !status.success() {
        let last = stderr
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("");
        bail!("{program} ended with {status}: {last}");
    }
    Ok((stdout, stderr))
}

/// Runs `command` to its end, however long it takes, and returns its standard output.
///
/// # Errors
/// If it fails; the error contains its last lines.
pub fn finished(mut command: impl std::borrow::BorrowMut<Command>) -> anyhow::Result<String> {
    let command = command.borrow_mut();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    // Some report errors on standard output, such as Python's venv.
    let told = text(&output.stdout) + &text(&output.stderr);
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let tail = lines[lines.len().saturating_sub(5)..].join(" / ");
    bail!("{program} ended with {}: {tail}", output.status)
}

/// Waits for a child's end, and kills it after `longest`.
///
/// # Errors
/// If it had to be killed.
pub fn wait(child: &mut Child, longest: Duration) -> anyhow::Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            bail!("killed after {} s", longest.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ns_per_op=12.5\npeak_rss_kib=2048\nminor_faults=300\nmajor_faults=0\n\
                          bytes_per_block=66.5\nheap=/lib/libone.so\n";

    #[test]
    fn a_report_is_read() {
        let sample = parse(REPORT, Path::new("/lib/libone.so")).unwrap();
        let expected = Sample {
            ns_per_op: 12.5,
            peak_rss_kib: 2_048,
            faults: (300, 0),
            bytes_per_block: Some(66.5),
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

    #[test]
    fn a_hung_child_is_killed_and_a_failing_one_is_told() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(20)).is_err());
        let error = output(Command::new("sh").args(["-c", "echo boom >&2; exit 1"])).unwrap_err();
        assert!(error.to_string().contains("boom"), "{error}");
    }

    #[test]
    fn a_failing_command_tells_its_last_lines_of_both_kinds() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo; echo two >&2; exit 4"]);
        let error = finished(&mut shell).unwrap_err().to_string();
        assert!(
            error.contains("one / two") && error.contains('4'),
            "{error}"
        );
    }
}
