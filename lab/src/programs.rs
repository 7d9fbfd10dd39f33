//! Workloads that are other projects' programs, under a preload: cases of the lab, each run once
//! from its start to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::cases::case::{Case, Home, Work};
use crate::cases::install;
use crate::cases::party::{in_words, reaped};
use crate::command::{LONGEST, finished};
use crate::engine::record::Figure;
use crate::machine;
use crate::peers::locate::{Places, Ready};
use crate::run::{MAJOR, MINOR, PEAK, TIME};
use crate::work::identity;
use crate::workloads::{Shape, Workload};

/// A program's case and its directories.
///
/// # Errors
/// If the case cannot be read.
pub fn read(folder: &str) -> anyhow::Result<(Case, Home)> {
    let case = Case::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))?;
    let home = Home::of(&case, &Places::new(None)?)?;
    Ok((case, home))
}

/// Why a workload's program cannot run; `None` if it can, or the workload is ours.
///
/// # Errors
/// If the program's case cannot be read.
pub fn absent(workload: &Workload) -> anyhow::Result<Option<String>> {
    let Shape::Program(folder) = &workload.shape else {
        return Ok(None);
    };
    let (case, home) = read(folder)?;
    let program = home.filled(&case.subject[0], None);
    Ok(install::missing(&case, &home)
        .map(|reason| format!("{reason} (neap lab bench --install)"))
        .or_else(|| {
            (!Path::new(&program).is_file()).then(|| format!("{program} is not installed"))
        }))
}

/// Checks, once for each program and peer, that the preload works.
fn ensure_bound(program: &Path, peer: &Ready) -> anyhow::Result<()> {
    static PROVEN: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());
    let case = (program.to_path_buf(), peer.library.clone());
    let mut proven = PROVEN
        .lock()
        .map_err(|_| anyhow::anyhow!("a check panicked"))?;
    if !proven.contains(&case) {
        identity::ensure_bound(Command::new(program).arg("--version"), &peer.library)?;
        proven.push(case);
    }
    Ok(())
}

/// Runs the program in `folder` once under `peer`. Its peak is at least this process's own memory,
/// from which it was started.
///
/// # Errors
/// If the program is not installed, fails, or does not use the peer's malloc.
pub fn once(folder: &str, peer: &Ready) -> anyhow::Result<Vec<Figure>> {
    let ((case, home), work) = (read(folder)?, Work::new()?);
    let program = fs::canonicalize(home.filled(&case.subject[0], None))?;
    ensure_bound(&program, peer)?;
    let errors = work.path().join("errors");
    let mut subject = home.subject(&case, &work, &[("LD_PRELOAD", peer.library.as_os_str())])?;
    subject.envs(peer.settings.iter().cloned());
    subject.stdin(Stdio::null()).stdout(Stdio::null());
    let subject = subject.stderr(File::create(&errors)?).spawn()?;
    let usage = finish(subject, home.driver(&case, &work)?);
    let usage = usage.with_context(|| fs::read_to_string(&errors).unwrap_or_default())?;
    Ok(vec![
        Figure::nanoseconds(TIME, machine::processor_time(&usage).as_nanos() as f64),
        Figure::kib(PEAK, usage.ru_maxrss as u64),
        Figure::count(MINOR, usage.ru_minflt as u64),
        Figure::count(MAJOR, usage.ru_majflt as u64),
    ])
}

/// Lets the driver, if there is one, and the subject end, and returns what the subject used.
fn finish(mut subject: Child, driver: Option<Command>) -> anyhow::Result<libc::rusage> {
    let start = Instant::now();
    let driven = driver.map(|mut it| finished(it.env("CASE_SUBJECT", subject.id().to_string())));
    let mut is_wanted = driven.as_ref().is_none_or(Result::is_ok);
    let (status, usage) = loop {
        if let Some(end) = reaped(&subject) {
            break end;
        }
        if !is_wanted || start.elapsed() > LONGEST {
            is_wanted = false;
            subject.kill()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    driven.transpose()?;
    ensure!(status.success(), "it ended badly: {}", in_words(status));
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;
    use crate::workloads;

    fn glibc() -> Ready {
        peers::locate::locate(peers::find("glibc").unwrap(), &Places::new(None).unwrap()).unwrap()
    }

    #[test]
    fn the_programs_that_are_here_run_under_the_c_library() {
        for name in ["jq", "redis"] {
            let workload = workloads::find(name).unwrap();
            let Shape::Program(folder) = &workload.shape else {
                panic!("{name} is no program")
            };
            if absent(workload).unwrap().is_none() {
                let told = once(folder, &glibc()).unwrap();
                let (time, peak) = (told[0].as_number(), told[1].as_number());
                assert!(time > Some(0.0) && peak > Some(1_000.0), "{told:?}");
            }
        }
    }

    #[test]
    fn a_program_that_fails_or_whose_driver_fails_is_told() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let run = |subject: &str, driver| finish(shell(subject).spawn().unwrap(), driver);
        assert!(run("exit 0", None).is_ok());
        let error = run("exit 3", None).unwrap_err().to_string();
        assert!(error.contains("exit code 3"), "{error}");
        let error = run("sleep 100", Some(shell("echo boom; exit 1"))).unwrap_err();
        assert!(error.to_string().contains("boom"), "{error}");
    }

    #[test]
    fn a_program_under_a_library_that_cannot_be_preloaded_is_refused() {
        let wrong = Ready {
            library: "/nowhere/libx.so".into(),
            ..glibc()
        };
        assert!(ensure_bound(Path::new("/bin/ls"), &wrong).is_err());
    }
}
