//! The lab: the peers, the workloads, the measurements and their records.
//!
//! | file or directory | contents |
//! |---|---|
//! | `verbs/` | one file per verb of the command line |
//! | `workloads`, `peers` | what is run and under which allocators, as data |
//! | `work/` | the work of a worker process; the only part that runs under a preload |
//! | `programs` | workloads that are other projects' programs |
//! | `run`, `counts` | one measurement: time, memory and faults; instructions and system calls |
//! | `memory_file` | the memory files that Neap shows to other processes |
//! | `identity` | which malloc a process really uses |
//! | `classes/` | the published class of 24 bytes: the cost of blocks and size classes, and the sizes that programs request |
//! | `calloc/` | the campaign of calloc and free |
//! | `memory` | the steps of the tour of virtual memory |
//! | `prices/` | the cost of detecting and making zeroed memory on this machine |
//! | `retention`, `fragmentation` | what freed memory still costs: in a sleeping process, and between live blocks |
//! | `profile/` | the accuracy and the cost of the sampling profiler |
//! | `figures/` | bytes and counts by case: their record and tables |
//! | `bench`, `stats`, `summary` | interleaved rounds and their statistics |
//! | `download/` | the published download: its environment, its server, its cells and their report |
//! | `tide/` | the published five steps: the heap, the stacks and the system |
//! | `record`, `report`, `plot` | the CSV file, the tables, the SVG picture |

mod bench;
mod calloc;
mod classes;
mod counts;
mod download;
mod figures;
mod fragmentation;
mod identity;
mod machine;
mod memory;
mod memory_file;
mod peers;
mod plot;
mod prices;
mod profile;
mod programs;
mod record;
mod report;
mod retention;
mod rng;
mod run;
mod stats;
mod summary;
mod tide;
mod verbs;
mod work;
mod workloads;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The published experiments, the peers, the workloads and the records
#[derive(Parser)]
#[command(name = "neap-lab", version)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compare allocators: time, memory, faults, instructions and system calls
    Bench(verbs::bench::Arguments),
    /// The write-up's calloc and free in a loop: time, faults, zeroed bytes, system calls
    Calloc(verbs::calloc::Arguments),
    /// A tour of virtual memory in a live process, step by step
    Memory(verbs::memory::Arguments),
    /// What it costs on this machine to detect and to make zeroed memory
    Prices(verbs::prices::Arguments),
    /// Build the peers that are not installed, and list all
    Peers(verbs::peers::Arguments),
    /// Compare the shipped library's instruction counts with the golden file
    Golden(verbs::golden::Arguments),
    /// Show the tables of a record
    Show(verbs::show::Arguments),
    /// Measure an HTTPS download with buffers of the chunk's size, as PyOpenSSL made them in 2016
    Download(verbs::download::Arguments),
    /// How much of its freed memory a sleeping process keeps, and whether any of its threads wakes
    Retention(verbs::retention::Arguments),
    /// The cost of holes between live blocks: 90 % freed, then the same bytes in larger blocks
    Fragmentation(verbs::fragmentation::Arguments),
    /// The write-up's five steps: what heap and coroutine stacks take, share and give back
    Tide(verbs::tide::Arguments),
    /// The write-up's size classes: what a block takes beyond the requested bytes, and what classes
    /// waste
    Classes(verbs::classes::Arguments),
    /// Record the sizes that real programs request, in Neap's counting mode
    Sizes(verbs::sizes::Arguments),
    /// Check the accuracy of the sampling profiler, and what it and `neap top` cost
    Profile(verbs::profile::Arguments),
    /// Carry out one workload in this process and report (used by the other verbs)
    #[command(hide = true)]
    Worker(verbs::worker::Arguments),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().verb {
        Verb::Bench(arguments) => verbs::bench::run(&arguments),
        Verb::Calloc(arguments) => verbs::calloc::run(&arguments),
        Verb::Memory(arguments) => verbs::memory::run(&arguments),
        Verb::Prices(arguments) => verbs::prices::run(&arguments),
        Verb::Peers(arguments) => verbs::peers::run(&arguments),
        Verb::Golden(arguments) => verbs::golden::run(&arguments),
        Verb::Show(arguments) => verbs::show::run(&arguments),
        Verb::Download(arguments) => verbs::download::run(&arguments),
        Verb::Retention(arguments) => verbs::retention::run(&arguments),
        Verb::Fragmentation(arguments) => verbs::fragmentation::run(&arguments),
        Verb::Tide(arguments) => verbs::tide::run(&arguments),
        Verb::Classes(arguments) => verbs::classes::run(&arguments),
        Verb::Sizes(arguments) => verbs::sizes::run(&arguments),
        Verb::Profile(arguments) => verbs::profile::run(&arguments),
        Verb::Worker(arguments) => verbs::worker::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("neap-lab: {error:#}");
        ExitCode::FAILURE
    })
}
