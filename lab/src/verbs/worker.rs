//! `neap-lab worker`: the process that the harness runs under a preload.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::calloc::{report_account, report_timed};
use crate::work::calloc::{self, Touch, Work};
use crate::work::heap::Questioned;
use crate::work::identity;
use crate::work::retention::Pattern;
use crate::work::tide::sizes::{Blocks, Sizes};
use crate::work::tide::stacks::StackKind;
use crate::work::{boxed, count, fragmentation, retention, shapes, sites, tide, usable};
use crate::{machine, run, workloads};

/// The arguments of `worker`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Carry out a workload and report
    Run {
        name: String,
        /// Number of operations
        #[arg(long)]
        ops: u64,
    },
    /// Carry out a counted loop, for valgrind
    Count {
        name: String,
        /// Number of operations
        #[arg(long)]
        ops: u64,
    },
    /// Time or account pairs of calloc and free
    Calloc {
        touch: Touch,
        bytes: usize,
        /// How long to time pairs
        #[arg(long, default_value_t = 300)]
        milliseconds: u64,
        /// Account for this many pairs instead
        #[arg(long)]
        account: Option<u64>,
    },
    /// Fill, free and sleep, one step per line of standard input
    Retention { pattern: Pattern, bytes: usize },
    /// Free at random, then fill the holes
    Fragmentation {
        blocks: usize,
        sleep: u64,
        seed: u64,
    },
    /// Allocate and drop memory, one action per line of standard input
    Tide {
        stacks: StackKind,
        heap_bytes: usize,
        blocks: Blocks,
        coroutines: usize,
        stack_bytes: usize,
    },
    /// Make known allocations, and report the profile's figures for them
    Sites { bytes: usize },
    /// Report the usable bytes of every size
    Usable { largest: usize },
    /// Report the distance between blocks
    Distances { count: usize, sizes: Vec<usize> },
    /// Keep values of 24 bytes in boxes
    Boxed { count: usize, readings: usize },
}

/// Runs one job in this process.
///
/// # Errors
/// If the name is unknown or the job fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // A panicking thread would leave the others waiting at a barrier.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        std::process::abort();
    }));
    match arguments.job {
        Job::Run { ref name, ops } => {
            let workload = workloads::find(name).context("no such workload")?;
            run::report(&shapes::carry_out(workload.shape, ops)?)?;
        }
        Job::Count { ref name, ops } => {
            let counted = count::find(name).context("no such count")?;
            count::carry_out(counted.stretch, ops)?;
        }
        Job::Calloc {
            touch,
            bytes,
            milliseconds,
            account,
        } => {
            let work = Work { size: bytes, touch };
            let time = Duration::from_millis(milliseconds);
            match account {
                Some(pairs) => report_account(&calloc::account(work, pairs)?),
                None => report_timed(&calloc::time(work, time)),
            }
        }
        Job::Retention { pattern, bytes } => retention::carry_out(pattern, bytes),
        Job::Fragmentation {
            blocks,
            sleep,
            seed,
        } => {
            let sleep = Duration::from_millis(sleep);
            fragmentation::carry_out(fragmentation::Terms {
                blocks,
                sleep,
                seed,
            })?;
        }
        Job::Tide {
            stacks,
            heap_bytes,
            blocks,
            coroutines,
            stack_bytes,
        } => {
            // It tells its heap first, because the harness talks to it from then on.
            tide::serve(
                stacks,
                &Sizes {
                    heap_bytes,
                    blocks,
                    coroutines,
                    stack_bytes,
                },
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        Job::Sites { bytes } => print!("{}", sites::tell(bytes)?),
        Job::Usable { largest } => print!("{}", usable::steps(&Questioned, largest)),
        Job::Distances { count, ref sizes } => {
            for &size in sizes {
                let distance = usable::distance(&Questioned, size, count);
                println!("distance_{size}={distance}");
            }
        }
        Job::Boxed { count, readings } => {
            // An unreadable size shows as no growth.
            let resident = || machine::resident_bytes().unwrap_or(0);
            print!(
                "{}",
                boxed::report(&mut boxed::measure(count, readings, resident))
            );
        }
    }
    println!("heap={}", identity::own_heap()?.display());
    Ok(ExitCode::SUCCESS)
}
