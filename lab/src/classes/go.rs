//! The write-up's benchmark, run with the installed Go. It needs only the standard library, so
//! nothing is downloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::tables;
use crate::command;
use crate::engine::figure::Figure;
use crate::programs::which;

const BENCHMARK: &str = include_str!("../../classes/sort_test.go");
const MODULE: &str = "module neap.example/classes\n\ngo 1.18\n";

/// An installed Go.
pub struct Go {
    program: PathBuf,
    /// Such as `go1.26.8`.
    pub version: String,
}

impl Go {
    /// The one in `PATH`.
    ///
    /// # Errors
    /// If there is none.
    pub fn here() -> anyhow::Result<Go> {
        let program = which("go").context("go is not installed (Debian: golang-go)")?;
        let version = go_environment(&program, "GOVERSION")?;
        Ok(Go { program, version })
    }

    /// The classes in its own sources.
    ///
    /// # Errors
    /// If its sources are not installed, or list none.
    pub fn classes(&self) -> anyhow::Result<Vec<usize>> {
        let root = PathBuf::from(go_environment(&self.program, "GOROOT")?);
        let places = ["internal/runtime/gc", "runtime"];
        let files = places.map(|place| root.join("src").join(place).join("sizeclasses.go"));
        let file = files
            .iter()
            .find(|file| file.is_file())
            .with_context(|| format!("no sizeclasses.go under {}", root.display()))?;
        let classes = tables::of_go_sources(&std::fs::read_to_string(file)?);
        ensure!(!classes.is_empty(), "{} tells no class", file.display());
        Ok(classes)
    }

    /// Runs the benchmarks `rounds` times. `time` is a value for Go's `-benchtime`.
    ///
    /// # Errors
    /// If they cannot be built, fail, or report nothing.
    pub fn benchmarks(&self, rounds: u32, time: &str) -> anyhow::Result<Vec<Vec<Figure>>> {
        let folder = Scratch::new()?;
        std::fs::write(folder.0.join("go.mod"), MODULE)?;
        std::fs::write(folder.0.join("sort_test.go"), BENCHMARK)?;
        let mut command = Command::new(&self.program);
        let count = format!("-count={rounds}");
        command
            .args(["test", "-run=^$", "-bench=.", "-benchtime", time, &count])
            .current_dir(&folder.0);
        let report = command::output(offline(&mut command, &folder.0))?;
        let rounds = by_round(&report)?;
        ensure!(!rounds.is_empty(), "no benchmark in {report:?}");
        Ok(rounds)
    }
}

/// Go's settings, so that it downloads nothing and writes to none of the user's files.
fn offline<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOWORK", "off")
        .env("GOCACHE", folder.join("cache"))
}

fn go_environment(program: &Path, name: &str) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    let text = command::output(command.env("GOTOOLCHAIN", "local").args(["env", name]))?;
    Ok(text.trim().to_string())
}

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("neap-lab-classes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure only leaves a directory in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The figures of each benchmark's lines; a benchmark's n-th line belongs to round n.
fn by_round(report: &str) -> anyhow::Result<Vec<Vec<Figure>>> {
    let mut rounds: Vec<Vec<Figure>> = Vec::new();
    for line in report.lines() {
        let Some(figures) = figures(line)? else {
            continue;
        };
        let taken = |round: &&mut Vec<Figure>| !round.iter().any(|f| f.name == figures[0].name);
        match rounds.iter_mut().find(taken) {
            Some(round) => round.extend(figures),
            None => rounds.push(figures),
        }
    }
    Ok(rounds)
}

/// The figures in `BenchmarkX-2   100   91.4 ns/op   24 B/op   1 allocs/op`; `None` for other
/// lines.
fn figures(line: &str) -> anyhow::Result<Option<Vec<Figure>>> {
    let Some(rest) = line.strip_prefix("Benchmark") else {
        return Ok(None);
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let name = fields.first().context("a benchmark without a name")?;
    let name = name.split('-').next().unwrap_or(name);
    let value = |unit: &str| {
        let at = fields.iter().position(|field| *field == unit);
        let value = at.and_then(|at| fields.get(at - 1)?.parse::<f64>().ok());
        value.with_context(|| format!("no {unit} in {line:?}"))
    };
    Ok(Some(vec![
        Figure::block_bytes(format!("{name}: B/op"), value("B/op")?),
        Figure::nanoseconds(format!("{name}: ns/op"), value("ns/op")?),
        Figure::number(format!("{name}: allocs/op"), value("allocs/op")?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "goos: linux\nBenchmarkA-2 \t 100 \t 96.4 ns/op \t 32 B/op \t 1 \
        allocs/op\n\
                          BenchmarkB-2 100 91.4 ns/op 24 B/op 1 allocs/op\n\
                          BenchmarkA-2 100 95.0 ns/op 32 B/op 1 allocs/op\nPASS\n";

    #[test]
    fn gos_report_is_read_by_rounds() {
        let rounds = by_round(REPORT).unwrap();
        assert_eq!(rounds.len(), 2);
        assert_eq!(rounds[0].len(), 6);
        assert_eq!(rounds[0][0], Figure::block_bytes("A: B/op", 32.0));
        assert_eq!(rounds[1][1], Figure::nanoseconds("A: ns/op", 95.0));
    }

    #[test]
    fn a_line_without_its_figures_is_refused() {
        assert!(by_round("BenchmarkA-2 100 91.4 ns/op\n").is_err());
        assert!(
            by_round("ok  neap.example/classes 1.2s\n")
                .unwrap()
                .is_empty()
        );
    }
}
