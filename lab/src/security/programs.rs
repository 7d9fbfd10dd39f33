//! Compiles the two programs, runs one situation under one allocator, and judges what became of the
//! wrong step.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{bail, ensure};

use super::situations::{Program, Situation};
use crate::cases::case::Work;
use crate::command::{finished, piped, wait};
use crate::names::named;
use crate::peers::locate::Ready;
use crate::run;

/// Without optimisation, so that the compiler does not remove what is undefined.
const FLAGS: [&str; 3] = ["-O0", "-w", "-fno-builtin"];

/// A run that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(120);

/// The programs, compiled into a folder that goes with them.
pub struct Programs {
    _folder: Work,
    c: PathBuf,
    /// `None` without a C++ compiler, or why there is none.
    cxx: Result<PathBuf, String>,
}

impl Programs {
    /// Compiles both.
    ///
    /// # Errors
    /// If there is no C compiler, or no folder for temporary files.
    pub fn compile() -> anyhow::Result<Programs> {
        let folder = Work::new()?;
        let c = compile("cc", "situation.c", &[], &folder.path().join("situation"))?;
        let sized: &[&str] = &["-std=c++17", "-fsized-deallocation"];
        let cxx = compile("c++", "mismatch.cc", sized, &folder.path().join("mismatch"));
        Ok(Programs {
            _folder: folder,
            c,
            cxx: cxx.map_err(|reason| format!("{reason:#}")),
        })
    }

    /// Why a situation cannot be carried out.
    pub fn lacks(&self, situation: &Situation) -> Option<&str> {
        match (situation.program(), &self.cxx) {
            (Program::Cxx, Err(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Carries out a situation in a process of its own.
    ///
    /// # Errors
    /// If it does not start, or does not end.
    pub fn run(&self, situation: &Situation, ready: &Ready) -> anyhow::Result<Output> {
        let program = match (situation.program(), &self.cxx) {
            (Program::C, _) => &self.c,
            (Program::Cxx, Ok(path)) => path,
            (Program::Cxx, Err(reason)) => anyhow::bail!("{reason}"),
        };
        let mut command = Command::new(program);
        command.args([situation.kind, situation.size]);
        command.env("LD_PRELOAD", &ready.library);
        command.envs(ready.settings.iter().map(|(name, value)| (name, value)));
        let mut child = piped(&mut command, Stdio::null())?;
        // A few lines, which a pipe holds.
        wait(&mut child, LONGEST)?;
        Ok(child.wait_with_output()?)
    }
}

fn compile(
    compiler: &str,
    source: &str,
    flags: &[&str],
    program: &Path,
) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("security");
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(flags).arg("-o").arg(program);
    finished(command.arg(folder.join(source)).arg("-ldl"))?;
    Ok(program.to_path_buf())
}

named! {
    /// What became of a wrong step.
    pub enum Outcome {
        /// A signal ended the process before the harm.
        Stopped = "stopped",
        /// The step found nothing to misuse.
        Prevented = "prevented",
        /// The step went through, and no harm showed.
        Unnoticed = "unnoticed",
        /// The process did what it must not be able to do, and said so.
        Harm = "harm",
    }
}

impl Outcome {
    /// Whether the allocator withstood the step.
    pub fn is_withstood(self) -> bool {
        matches!(self, Outcome::Stopped | Outcome::Prevented)
    }

    /// What a program's exit code says, and how its last line begins.
    fn said_by(code: i32) -> Option<Outcome> {
        match code {
            0 => Some(Outcome::Harm),
            10 => Some(Outcome::Prevented),
            11 => Some(Outcome::Unnoticed),
            _ => None,
        }
    }
}

/// The line that a program writes before the wrong step.
const STEP: &str = "step";

/// The outcome of a finished run, and what shows it: the signal and the last error, or the
/// program's own last line.
///
/// # Errors
/// If the process has not the malloc of `library`, did not reach the wrong step, or its exit code
/// and its words disagree: then the run shows nothing.
pub fn judge(output: &Output, library: &Path) -> anyhow::Result<(Outcome, String)> {
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut lines = told.lines();
    run::ensure_heap(lines.next().unwrap_or_default(), library)?;
    ensure!(
        lines.next() == Some(STEP),
        "it ended before the wrong step, with {}: {errors}",
        output.status
    );
    let proof = lines.next();
    if let Some(signal) = output.status.signal() {
        ensure!(proof.is_none(), "signal {signal} came after {proof:?}");
        let last = errors.lines().last().unwrap_or_default();
        return Ok((
            Outcome::Stopped,
            format!("signal {signal} {}", without_addresses(last)),
        ));
    }
    let code = output.status.code().unwrap_or(-1);
    let Some(outcome) = Outcome::said_by(code) else {
        bail!("it ended with {}: {errors}", output.status);
    };
    let shown = proof.and_then(|line| line.strip_prefix(outcome.name())?.strip_prefix(": "));
    match shown {
        Some(shown) => Ok((outcome, shown.to_string())),
        None => bail!("it ended with {} after {proof:?}", output.status),
    }
}

/// Addresses differ between runs.
fn without_addresses(line: &str) -> String {
    let word = |word: &str| {
        if word.starts_with("0x") {
            "ADDR".to_string()
        } else {
            word.to_string()
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    fn ended(status: i32, told: &str, errors: &str) -> anyhow::Result<(Outcome, String)> {
        let output = Output {
            status: ExitStatus::from_raw(status),
            stdout: format!("heap=/x.so\n{told}").into(),
            stderr: errors.into(),
        };
        assert!(judge(&output, Path::new("/y.so")).is_err());
        judge(&output, Path::new("/x.so"))
    }

    /// The status of a process that ended with that code.
    fn code(code: i32) -> i32 {
        code << 8
    }

    #[test]
    fn a_signal_after_the_step_stops_and_words_prove_harm() {
        let stopped = ended(6, "step\n", "neap: double free of 0x7f00 (a block)\n").unwrap();
        assert_eq!(stopped.0, Outcome::Stopped);
        assert_eq!(stopped.1, "signal 6 neap: double free of ADDR (a block)");
        let harm = ended(code(0), "step\nharm: two owners\n", "").unwrap();
        assert_eq!(harm, (Outcome::Harm, "two owners".into()));
        for (exit, word) in [(10, "prevented"), (11, "unnoticed")] {
            let told = format!("step\n{word}: so\n");
            let outcome = ended(code(exit), &told, "").unwrap().0;
            assert_eq!(outcome.name(), word);
            assert_eq!(outcome.is_withstood(), exit == 10);
        }
    }

    #[test]
    fn a_run_that_shows_nothing_is_an_error() {
        let before = ended(11, "", "").unwrap_err().to_string();
        assert!(before.contains("before the wrong step"), "{before}");
        for (status, told) in [
            (code(0), ""),
            (code(0), "step\n"),
            (code(0), "step\nprevented: so\n"),
            (code(20), "step\n"),
            (6, "step\nharm: two owners\n"),
        ] {
            assert!(ended(status, told, "").is_err(), "{status} {told}");
        }
    }
}
