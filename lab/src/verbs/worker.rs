//! `neap-lab worker`: the process that the harness runs under a preload.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::calloc::measure;
use crate::tide::campaign;
use crate::tide::sizes::{Blocks, Sizes};
use crate::work::calloc::{self, PolicyName, Touch, Work};
use crate::work::heap::Questioned;
use crate::work::retention::Pattern;
use crate::work::tide::prices::{self, Times};
use crate::work::tide::stacks::StackKind;
use crate::work::{self, boxed, count, fragmentation, retention, sites, tide, tour, usable};
use crate::{identity, machine, run, workloads};

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
    /// Time or account pairs of calloc and free
    Calloc(Calloc),
    /// Take the tour of virtual memory
    Memory(Memory),
    /// Fill, free and sleep, one step per line of standard input
    Retention(Retention),
    /// Free at random, then fill the holes
    Fragmentation(Fragmentation),
    /// Allocate and drop memory, one action per line of standard input
    Tide(Tide),
    /// Make known allocations, and report the profile's figures for them
    Sites(Sites),
    /// Report the usable bytes of every size
    Usable(Usable),
    /// Report the distance between blocks
    Distances(Distances),
    /// Keep values of 24 bytes in boxes
    Boxed(Boxed),
    /// Time coroutines
    TidePrices(TidePrices),
}

#[derive(Args)]
struct Tide {
    /// The kind of stacks
    stacks: StackKind,
    /// Bytes that the heap allocates and drops
    heap_bytes: usize,
    /// The size of the blocks
    blocks: Blocks,
    /// Number of coroutines
    coroutines: usize,
    /// Address space of a stack
    stack_bytes: usize,
}

#[derive(Args)]
struct Sites {
    /// Bytes that each place allocates
    bytes: usize,
}

#[derive(Args)]
struct Usable {
    /// The largest size
    largest: usize,
}

#[derive(Args)]
struct Distances {
    /// Live blocks per size
    count: usize,
    /// The sizes
    sizes: Vec<usize>,
}

#[derive(Args)]
struct Boxed {
    /// Number of live boxes
    count: usize,
    /// Readings of the clock
    readings: usize,
}

#[derive(Args)]
struct TidePrices {
    /// The kind of stacks
    stacks: StackKind,
    /// Address space of a stack
    stack_bytes: usize,
    /// Coroutines per burst
    burst: u64,
}

#[derive(Args)]
struct Calloc {
    /// The policy that serves calloc and free
    policy: PolicyName,
    /// The pages of a block to write
    touch: Touch,
    /// Bytes of a block
    bytes: usize,
    /// How long to time pairs
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
    /// Account for this many pairs instead
    #[arg(long)]
    account: Option<u64>,
}

#[derive(Args)]
struct Memory {
    /// Bytes of the block
    bytes: usize,
    /// Bytes of the file
    file_bytes: usize,
}

#[derive(Args)]
struct Retention {
    /// Which threads allocate and free
    pattern: Pattern,
    /// Bytes of all blocks
    bytes: usize,
}

#[derive(Args)]
struct Fragmentation {
    /// Number of small blocks
    blocks: usize,
    /// Milliseconds of sleep after the frees
    sleep: u64,
    /// Seed for everything random
    seed: u64,
}

#[derive(Args)]
struct Named {
    /// The workload or the count
    name: String,
    /// Number of operations
    #[arg(long)]
    ops: u64,
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
        Job::Calloc(arguments) => run_calloc(arguments)?,
        Job::Memory(sizes) => {
            tour::take(sizes.bytes, sizes.file_bytes)?;
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Retention(arguments) => {
            retention::carry_out(arguments.pattern, arguments.bytes);
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Fragmentation(arguments) => {
            fragmentation::carry_out(fragmentation::Terms {
                blocks: arguments.blocks,
                sleep: Duration::from_millis(arguments.sleep),
                seed: arguments.seed,
            })?;
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Sites(Sites { bytes }) => {
            print!("{}", sites::tell(*bytes)?);
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Usable(Usable { largest }) => {
            print!("{}", usable::steps(&Questioned, *largest));
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Distances(Distances { count, sizes }) => {
            for &size in sizes {
                let distance = usable::distance(&Questioned, size, *count);
                println!("distance_{size}={distance}");
            }
            println!("heap={}", identity::own_heap()?.display());
        }
        Job::Boxed(arguments) => run_boxed(arguments)?,
        Job::Tide(arguments) => run_tide(arguments)?,
        Job::TidePrices(arguments) => run_tide_prices(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_boxed(arguments: &Boxed) -> anyhow::Result<()> {
    // An unreadable size shows as no growth.
    let resident = || machine::resident_bytes().unwrap_or(0);
    let mut cost = boxed::measure(arguments.count, arguments.readings, resident);
    print!("{}", boxed::report(&mut cost));
    println!("heap={}", identity::own_heap()?.display());
    Ok(())
}

fn run_tide(arguments: &Tide) -> anyhow::Result<()> {
    let &Tide {
        stacks,
        heap_bytes,
        blocks,
        coroutines,
        stack_bytes,
    } = arguments;
    let sizes = Sizes {
        heap_bytes,
        blocks,
        coroutines,
        stack_bytes,
    };
    tide::serve(stacks, &sizes)
}

fn run_tide_prices(arguments: &TidePrices) -> anyhow::Result<()> {
    let burst = arguments.burst;
    let times = Times {
        burst,
        ends: 4 * burst,
        switches: 4_000 * burst,
    };
    campaign::print(&prices::measure(
        arguments.stacks,
        arguments.stack_bytes,
        times,
    )?);
    println!("heap={}", identity::own_heap()?.display());
    Ok(())
}

fn run_calloc(arguments: &Calloc) -> anyhow::Result<()> {
    let &Calloc {
        policy,
        touch,
        bytes,
        milliseconds,
        account,
    } = arguments;
    let work = Work {
        policy,
        size: bytes,
        touch,
    };
    match account {
        Some(pairs) => measure::report_account(&calloc::account(work, pairs)?),
        None => measure::report_timed(&calloc::time(work, Duration::from_millis(milliseconds))),
    }
}
