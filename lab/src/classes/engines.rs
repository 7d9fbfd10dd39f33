//! The processes that are asked: the lab's worker under each peer, and `neap-lab-rust`, whose allocator is the crate.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::peers::Ready;
use crate::run;

/// The name of Neap as a Rust program's own allocator.
pub const RUST: &str = "neap-rust";

/// Whose heap is asked.
pub enum Engine {
    /// A preloaded library.
    Peer(Ready),
    /// This program, which has Neap inside.
    Rust(PathBuf),
}

impl Engine {
    /// The Rust program beside this one.
    ///
    /// # Errors
    /// When it is not there.
    pub fn rust() -> anyhow::Result<Engine> {
        let mut program = std::env::current_exe()?;
        program.pop();
        if program.ends_with("deps") {
            program.pop();
        }
        program.push("neap-lab-rust");
        ensure!(
            program.is_file(),
            "no neap-lab-rust beside neap-lab (cargo build --release -p neap-lab builds both)"
        );
        Ok(Engine::Rust(program))
    }

    /// Its name in the tables.
    pub fn name(&self) -> &'static str {
        match self {
            Engine::Peer(peer) => peer.name,
            Engine::Rust(_) => RUST,
        }
    }

    /// What it answers to `arguments`.
    ///
    /// # Errors
    /// When it fails, or a peer's worker used another malloc.
    pub fn ask(&self, arguments: &[String]) -> anyhow::Result<String> {
        match self {
            Engine::Peer(peer) => {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .arg("worker")
                    .args(arguments)
                    .env("LD_PRELOAD", &peer.library);
                let report = run::output(&mut command)?;
                run::ensure_heap(&report, &peer.library)?;
                Ok(report)
            }
            Engine::Rust(program) => run::output(Command::new(program).args(arguments))
                .context("the Rust program with Neap inside failed"),
        }
    }
}
