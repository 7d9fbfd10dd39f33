//! `neap-lab worker`: the process that the harness runs under a preload. It carries out one job,
//! checks every block's contents, and reports the cost. Only the workload allocates between the two
//! clock readings.

pub mod calloc;
pub mod classes;
pub mod count;
pub mod fragmentation;
pub mod heap;
pub mod identity;
pub mod latency;
pub mod retention;
mod single;
pub mod sites;
mod threads;
pub mod tide;
mod written;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::machine;
use crate::status::{self, Purges};
use crate::workloads::{self, Shape};
use calloc::Work;
use heap::Questioned;
use retention::Pattern;
use tide::protocol::Sizes;
use tide::stacks::StackKind;

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
        #[command(flatten)]
        work: Work,
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
    Fragmentation(fragmentation::Terms),
    /// Time single calls while another thread frees memory in bursts
    Latency { calls: usize },
    /// Allocate and drop memory, one action per line of standard input
    Tide {
        stacks: StackKind,
        #[command(flatten)]
        sizes: Sizes,
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
            carry_out(&workload.shape, ops)?.report()?;
        }
        Job::Count { ref name, ops } => {
            let counted = count::find(name).context("no such count")?;
            count::carry_out(counted.stretch, ops)?;
        }
        Job::Calloc {
            work,
            account: Some(pairs),
            ..
        } => calloc::account(work, pairs)?,
        Job::Calloc {
            work, milliseconds, ..
        } => calloc::time(work, Duration::from_millis(milliseconds)),
        Job::Retention { pattern, bytes } => retention::carry_out(pattern, bytes),
        Job::Fragmentation(ref terms) => fragmentation::carry_out(terms)?,
        Job::Latency { calls } => latency::carry_out(calls),
        Job::Tide { stacks, ref sizes } => {
            // It tells its heap first, because the harness talks to it from then on.
            tide::serve(stacks, sizes)?;
            return Ok(ExitCode::SUCCESS);
        }
        Job::Sites { bytes } => print!("{}", sites::tell(bytes)?),
        Job::Usable { largest } => print!("{}", classes::steps(&Questioned, largest)),
        Job::Distances { count, ref sizes } => {
            for &size in sizes {
                let distance = classes::distance(&Questioned, size, count);
                println!("distance_{size}={distance}");
            }
        }
        Job::Boxed { count, readings } => {
            // An unreadable size shows as no growth.
            let resident = || machine::resident_bytes("self").unwrap_or(0);
            print!(
                "{}",
                classes::report(&mut classes::measure(count, readings, resident))
            );
        }
    }
    println!("heap={}", identity::own_heap()?.display());
    Ok(ExitCode::SUCCESS)
}

/// Carries out about `ops` operations of `shape` in this process.
///
/// # Errors
/// If the shape is another project's program, or the process cannot read its own resident size.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn carry_out(shape: &Shape, ops: u64) -> anyhow::Result<Outcome> {
    match *shape {
        Shape::Pair { size } => Ok(single::pair(size, ops)),
        Shape::Batch { size, count, order } => Ok(single::batch(size, count, order, ops)),
        Shape::List { size, length } => Ok(single::list(size, length, ops)),
        Shape::Churn {
            sizes,
            live,
            threads,
            order,
        } => Ok(threads::churn((sizes, live, order), threads, ops)),
        Shape::Server {
            live,
            threads,
            life,
        } => Ok(threads::server(live, threads, life, ops)),
        Shape::Handoff { sizes, pairs } => Ok(threads::handoff(sizes, pairs, ops)),
        Shape::FalseSharing(sharing) => Ok(threads::false_sharing(sharing, ops)),
        Shape::Grow { limit, growth } => Ok(single::grow(limit, growth, ops)),
        Shape::Live { size } => single::live(size, ops),
        Shape::Burst { sizes, bytes } => single::burst(sizes, bytes, ops),
        Shape::Fork { bytes } => Ok(single::fork(bytes, ops)),
        Shape::Program(ref folder) => anyhow::bail!("{folder} is run by the harness"),
    }
}

/// The report of a shape.
#[derive(Debug)]
pub struct Outcome {
    /// Operations carried out; at least one, and about as many as requested.
    pub ops: u64,
    /// Wall time of these operations, or their processor time.
    pub elapsed: Duration,
    /// Further lines of the report.
    pub also: Vec<(&'static str, f64)>,
}

impl Outcome {
    /// A time and nothing else.
    pub fn timed(ops: u64, elapsed: Duration) -> Outcome {
        Outcome {
            ops,
            elapsed,
            also: Vec::new(),
        }
    }

    /// Prints, in the worker, what the harness reads.
    ///
    /// # Errors
    /// If /proc cannot be read, or malloc and free are from two libraries.
    fn report(&self) -> anyhow::Result<()> {
        let me = std::process::id();
        let faults = machine::faults(me)?;
        let peak = machine::peak_resident_kib(me)?;
        println!(
            "ns_per_op={}",
            self.elapsed.as_nanos() as f64 / self.ops.max(1) as f64
        );
        println!(
            "peak_rss_kib={peak}\nminor_faults={}\nmajor_faults={}",
            faults.0, faults.1
        );
        for (key, value) in &self.also {
            println!("{key}={value}");
        }
        if let Some(Purges { purged, regretted }) = status::own() {
            println!("purged={purged}\nregretted={regretted}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_ours_runs_and_counts_its_operations() {
        for workload in workloads::ALL.iter().filter(|w| w.is_ours()) {
            // The bursts of the table take seconds.
            let small = |sizes| Shape::Burst {
                sizes,
                bytes: 1_000_000,
            };
            let shape = match workload.shape {
                Shape::Burst { sizes, .. } => small(sizes),
                ref shape => shape.clone(),
            };
            let outcome = carry_out(&shape, workload.quick).unwrap();
            let ratio = outcome.ops as f64 / workload.quick as f64;
            assert!(
                (0.9..=1.1).contains(&ratio),
                "{}: {outcome:?}",
                workload.name
            );
            assert!(outcome.elapsed > Duration::ZERO, "{}", workload.name);
        }
    }

    #[test]
    fn programs_of_others_are_refused() {
        assert!(carry_out(&Shape::Program("sizes/10-redis".into()), 1).is_err());
    }

    #[test]
    #[should_panic(expected = "overwritten")]
    fn an_overwritten_block_is_noticed() {
        let block = heap::Block::take(64, 1);
        // SAFETY: the block is live and has 64 bytes.
        unsafe { block.start().add(63).write(0xff) };
        // SAFETY: the block was taken above and not given.
        unsafe { block.give(1) };
    }
}
