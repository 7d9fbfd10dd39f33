//! `neap-lab worker`: what the harness runs under a preload.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::work::{self, count};
use crate::{identity, run, workloads};

/// The arguments of `worker`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Carry out a workload and report
    Run(Named),
    /// Carry out a counted loop, for valgrind
    Count(Named),
}

#[derive(Args)]
struct Named {
    /// The workload or the count
    name: String,
    /// Operations
    #[arg(long)]
    ops: u64,
}

/// Runs one job in this process.
///
/// # Errors
/// When the name is unknown or the job fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // A panicking thread would leave the others waiting at a barrier.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        std::process::abort();
    }));
    match &arguments.job {
        Job::Run(named) => {
            let workload = workloads::find(&named.name).context("no such workload")?;
            run::report(&work::carry_out(workload.shape, named.ops)?)?;
        }
        Job::Count(named) => {
            let counted = count::find(&named.name).context("no such count")?;
            count::carry_out(counted.stretch, named.ops)?;
            println!("heap={}", identity::own_heap()?.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
