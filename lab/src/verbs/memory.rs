//! `neap-lab memory`: a tour of virtual memory in a live process under one allocator.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::memory::{self, Sizes, Told};
use crate::peers::{self, Places, Ready};
use crate::{command, run, work};

/// The arguments of `memory`.
#[derive(Args)]
pub struct Arguments {
    /// The allocator of the process
    #[arg(long, default_value = "neap", value_name = "NAME")]
    peer: String,
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Size of the block in MiB; the mapped file has at most 64
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    mib: u32,
    /// Print JSON at the end
    #[arg(long)]
    json: bool,
}

/// The largest mapped file; a larger one shows nothing new.
const LARGEST_FILE: usize = 64 << 20;

/// Takes the tour.
///
/// # Errors
/// If the allocator is not installed, the machine has too little memory, or the process fails or
/// used another malloc.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let block = (arguments.mib as usize) << 20;
    let sizes = Sizes {
        block,
        file: block.min(LARGEST_FILE),
    };
    work::tour::ensure_room(sizes.block as u64, sizes.file as u64)?;
    let peer = peers::select(std::slice::from_ref(&arguments.peer))?;
    let peer = peers::locate(peer[0], &Places::new(arguments.neap.clone())?)?;
    let mut steps = Vec::new();
    if !arguments.json {
        println!(
            "allocator: {} {} ({})",
            peer.name,
            peer.version,
            peer.library.display()
        );
        println!("\n{}", memory::heading());
    }
    follow(&peer, &sizes, |told| match arguments.json {
        true => steps.push(told.json()),
        false => println!("{}", told.text(&sizes)),
    })?;
    if arguments.json {
        let json = serde_json::json!({ "peer": peer.name, "version": peer.version,
            "mib": arguments.mib, "steps": steps });
        println!("{json:#}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the worker and passes on each step as it arrives.
fn follow(peer: &Ready, sizes: &Sizes, mut tell: impl FnMut(Told)) -> anyhow::Result<()> {
    let mut child = worker(peer, sizes)
        .spawn()
        .context("cannot start the process")?;
    let stdout = child.stdout.take().context("no pipe from the process")?;
    let mut rest = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        match Told::parse(&line)? {
            Some(told) => tell(told),
            None => rest = line,
        }
    }
    ensure_good_end(&mut child)?;
    run::ensure_heap(&rest, &peer.library)
}

fn ensure_good_end(child: &mut Child) -> anyhow::Result<()> {
    let mut errors = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut errors)?;
    }
    let status = command::wait(child, command::LONGEST)?;
    let last = errors
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("");
    ensure!(status.success(), "the process ended with {status}: {last}");
    Ok(())
}

fn worker(peer: &Ready, sizes: &Sizes) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "neap-lab".into());
    let mut command = Command::new(program);
    command
        .args(["worker", "memory"])
        .args([sizes.block.to_string(), sizes.file.to_string()]);
    command.env("LD_PRELOAD", &peer.library);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
