//! Compiles the two programs, and runs one situation under one allocator.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Context as _;

use super::situations::{Program, Situation};
use crate::command::{finished, piped, wait};
use crate::peers::Ready;

/// Without optimisation, so that the compiler does not remove what is undefined.
const FLAGS: [&str; 3] = ["-O0", "-w", "-fno-builtin"];

/// A run that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(120);

/// The programs, compiled into a folder that goes with them.
pub struct Programs {
    folder: PathBuf,
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
        let name = format!("neap-lab-security-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        let c = compile("cc", "situation.c", &[], &folder.join("situation"))?;
        let sized: &[&str] = &["-std=c++17", "-fsized-deallocation"];
        let cxx = compile("c++", "mismatch.cc", sized, &folder.join("mismatch"));
        Ok(Programs {
            folder,
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
        let mut child = piped(&mut command)?;
        // A few lines, which a pipe holds.
        wait(&mut child, LONGEST)?;
        Ok(child.wait_with_output()?)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What is left of it harms nothing.
        let _ = std::fs::remove_dir_all(&self.folder);
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
