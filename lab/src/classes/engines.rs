//! The processes to measure: the lab's worker under each peer, and `neap-lab-rust`, whose allocator
//! is the crate.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command;
use crate::engine::campaign::Named;
use crate::peers::Ready;
use crate::run;

/// The name of Neap as a Rust program's own allocator.
pub const RUST: &str = "neap-rust";

/// A heap to measure.
pub enum Engine {
    /// A preloaded library.
    Peer(Ready),
    /// A program with Neap built in.
    Rust(PathBuf),
}

impl Named for Engine {
    fn name(&self) -> String {
        Engine::name(self).to_string()
    }
}

impl Engine {
    /// The Rust program beside this one.
    ///
    /// # Errors
    /// If it does not exist.
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

    /// Its answer to `arguments`.
    ///
    /// # Errors
    /// If it fails, or a peer's worker used another malloc.
    pub fn ask(&self, arguments: &[String]) -> anyhow::Result<String> {
        match self {
            Engine::Peer(peer) => {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .arg("worker")
                    .args(arguments)
                    .env("LD_PRELOAD", &peer.library);
                let report = command::output(&mut command)?;
                run::ensure_heap(&report, &peer.library)?;
                Ok(report)
            }
            Engine::Rust(program) => command::output(Command::new(program).args(arguments))
                .context("the Rust program with Neap inside failed"),
        }
    }
}
