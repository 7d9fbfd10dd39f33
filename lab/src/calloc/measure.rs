//! Runs one cell in a process of its own, with a clock or with accounting.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::cells::Cell;
use crate::engine::record::{Figure, Unit};
use crate::peers::Ready;
use crate::programs::which;
use crate::work::calloc::{Account, MARK, Timed};
use crate::{command, report, run};

/// The names of the figures: of the timed process, and of the accounts.
const PAIRS: &str = "pairs";
pub const TIME: &str = "time of a pair";
const LEAST: &str = "least time";
pub const MINOR: &str = "minor faults";
pub const MAJOR: &str = "major faults";
pub const ZEROED: &str = "zeroed";
pub const CALLS: &str = "system calls";
/// In place of a figure that this machine cannot tell.
const UNKNOWN: &str = "unknown";

/// Prints, in the worker, what [`timed`] reads in the harness.
pub fn report_timed(timed: &Timed) {
    let Timed {
        pairs,
        ns_median,
        ns_least,
        minor_faults,
        major_faults,
    } = timed;
    println!("pairs={pairs}\nns_median={ns_median:.1}\nns_least={ns_least:.1}");
    println!("minor_faults={minor_faults:.4}\nmajor_faults={major_faults:.4}");
}

/// Prints, in the worker, what [`accounted`] reads in the harness.
pub fn report_account(account: &Account) {
    match &account.zeroed {
        Ok(bytes) => println!("zeroed={bytes}"),
        Err(reason) => eprintln!("the zeroed bytes are unknown: {reason:#}"),
    }
    println!("pairs={}", account.pairs);
}

/// The arguments of a cell's worker.
fn job(cell: &Cell, kind: &str, number: impl ToString) -> [String; 5] {
    let (touch, bytes) = (cell.touch.name().to_string(), cell.size.bytes.to_string());
    [
        "calloc".into(),
        touch,
        bytes,
        kind.into(),
        number.to_string(),
    ]
}

/// Runs pairs for about `time` under `peer`.
///
/// # Errors
/// If the worker fails, hangs, or used another malloc.
pub fn timed(cell: &Cell, peer: &Ready, time: Duration) -> anyhow::Result<Vec<Figure>> {
    parse_timed(&run::ask(
        job(cell, "--milliseconds", time.as_millis()),
        peer,
    )?)
}

fn parse_timed(report: &str) -> anyhow::Result<Vec<Figure>> {
    let number = |key| anyhow::Ok(report::needed(report, key)?.parse::<f64>()?);
    Ok(vec![
        Figure::new(PAIRS, Unit::Count, number("pairs")?),
        Figure::nanoseconds(TIME, number("ns_median")?),
        Figure::nanoseconds(LEAST, number("ns_least")?),
        Figure::number(MINOR, number("minor_faults")?),
        Figure::number(MAJOR, number("major_faults")?),
    ])
}

/// Runs `pairs` pairs under `peer` with accounting, under strace if that is installed.
///
/// # Errors
/// If the worker fails, hangs, found a byte that is not zero, or used another malloc.
pub fn accounted(cell: &Cell, peer: &Ready, pairs: u64) -> anyhow::Result<Vec<Figure>> {
    let job = job(cell, "--account", pairs);
    let (report, trace) = match which("strace") {
        Some(_) => {
            let (report, errors) = command::outputs(&mut under_strace(&job, peer)?)?;
            run::ensure_heap(&report, &peer.library)?;
            (report, Some(errors))
        }
        None => (run::ask(job, peer)?, None),
    };
    let zeroed = report::field(&report, "zeroed")
        .map(str::parse)
        .transpose()?;
    let calls = trace.as_deref().map(calls_between_marks).transpose()?;
    let calls = calls.map(|calls| (100.0 * calls as f64 / pairs as f64).round() / 100.0);
    let unknown = |name| Figure::text(name, UNKNOWN);
    Ok(vec![
        zeroed.map_or(unknown(ZEROED), |bytes| Figure::block_bytes(ZEROED, bytes)),
        calls.map_or(unknown(CALLS), |calls| Figure::number(CALLS, calls)),
    ])
}

fn under_strace(job: &[String], peer: &Ready) -> anyhow::Result<Command> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "--signal=none", "-s", "0", "-E"]);
    strace.arg(format!("LD_PRELOAD={}", peer.library.display()));
    // Count only the calls that a pair makes. A purge thread makes its own, and splits the log's
    // lines for other threads in two.
    strace.args(["-E", "NEAP_PURGE_THREAD=0"]);
    strace.arg(std::env::current_exe()?).arg("worker").args(job);
    Ok(strace)
}

/// The calls of all threads in strace's log between the worker's two marks.
fn calls_between_marks(log: &str) -> anyhow::Result<u64> {
    let mark = format!("close({MARK})");
    let parts: Vec<&str> = log.split(&mark).collect();
    let [_, between, _] = parts[..] else {
        anyhow::bail!("{} marks in the system call trace", parts.len() - 1);
    };
    // Skip the rest of the first mark's line, and the start of the second mark's line.
    let (_, calls) = between.split_once('\n').context("a mark without an end")?;
    let (calls, _) = calls.rsplit_once('\n').unwrap_or(("", calls));
    let is_call = |line: &&str| line.contains('(') && !line.contains(" resumed>");
    Ok(calls.lines().filter(is_call).count() as u64)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The figures of a cell whose pair takes that long, for tests.
    pub fn figures(ns: f64) -> Vec<Figure> {
        let report =
            format!("pairs=12\nns_median={ns}\nns_least=800\nminor_faults=1.25\nmajor_faults=0\n");
        let mut figures = parse_timed(&report).unwrap();
        figures.extend([
            Figure::block_bytes(ZEROED, 4_096.0),
            Figure::text(CALLS, UNKNOWN),
        ]);
        figures
    }

    #[test]
    fn a_timed_report_is_read() {
        let figures = figures(900.5);
        assert_eq!(figures[0], Figure::count(PAIRS, 12));
        assert_eq!(figures[1], Figure::nanoseconds(TIME, 900.5));
        assert!(parse_timed("pairs=12\n").is_err());
    }

    #[test]
    fn calls_are_counted_between_the_marks_only() {
        let log = "mmap(NULL, 1) = 0x1\n\
                   close(-7116) = -1 EBADF (Bad file descriptor)\n\
                   [pid 7] munmap(0x1, 1) = 0\n[pid 8] futex(0x2 <unfinished ...>\n\
                   [pid 7] mmap(NULL, 1) = 0x1\n[pid 8] <... futex resumed>) = 0\n\
                   [pid 7] close(-7116) = -1 EBADF (Bad file descriptor)\nexit_group(0) = ?\n";
        assert_eq!(calls_between_marks(log).unwrap(), 3);
        let none = "close(-7116) = -1 EBADF (Bad)\nclose(-7116) = -1 EBADF (Bad)\n";
        assert_eq!(calls_between_marks(none).unwrap(), 0);
        assert!(calls_between_marks("mmap(NULL, 1) = 0x1\n").is_err());
    }
}
