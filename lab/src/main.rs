//! The lab: the experiments, the peers, the workloads and the records.
//!
//! | file or directory | contents |
//! |---|---|
//! | `engine/` | what all experiments share: settings, rounds, records, tables, pictures |
//! | `experiments` | the list of the experiments |
//! | `bench` | allocators compared: time, memory, faults, instructions, system calls |
//! | `calloc/` | the published calloc and free in a loop |
//! | `download/` | the published download through pyOpenSSL |
//! | `tide/` | the published five steps: the heap, the stacks and the system |
//! | `retention`, `fragmentation` | what freed memory still costs |
//! | `classes/` | the published size classes, and the sizes that programs request |
//! | `profile/` | the accuracy of the sampling profiler |
//! | `cases/` | published complaints, reproduced by real programs |
//! | `security/` | memory errors: which ones an allocator stops before they do harm |
//! | `guard/` | errors planted in real programs: after how many requests Neap reports them |
//! | `soak/` | half an hour of mixed real load, under which memory must not grow |
//! | `verbs/` | the verbs that are no experiments |
//! | `workloads`, `peers/` | what is run and under which allocators, as data |
//! | `work/` | the work of a worker process; the only part that runs under a preload |
//! | `programs` | workloads that are other projects' programs |
//! | `run`, `counts` | one measurement: time, memory and faults; instructions and system calls |
//! | `report` | what a worker reports |
//! | `machine`, `pagemap`, `memory_file` | what the kernel and Neap say about a process |
//! | `stats`, `names`, `rng` | statistics; choice by name; numbers from a seed |

mod bench;
mod calloc;
mod cases;
mod classes;
mod command;
mod counts;
mod download;
mod engine;
mod experiments;
mod fragmentation;
mod guard;
mod machine;
mod memory_file;
mod names;
mod pagemap;
mod peers;
mod profile;
mod programs;
mod purges;
mod report;
mod retention;
mod rng;
mod run;
mod security;
mod soak;
mod stats;
mod tide;
mod verbs;
mod work;
mod workloads;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use engine::settings::Settings;

/// The published experiments, the peers, the workloads and the records
#[derive(Parser)]
#[command(name = "neap-lab", version)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the peers that are not installed, and list all
    Peers(verbs::peers::Arguments),
    /// Compare the shipped library's instruction counts with the golden file
    Golden(verbs::golden::Arguments),
    /// Show the tables of a record
    Show(verbs::show::Arguments),
    /// Carry out one workload in this process and report (used by the other verbs)
    #[command(hide = true)]
    Worker(verbs::worker::Arguments),
}

fn main() -> ExitCode {
    let experiments = experiments::ALL.map(|experiment| experiment.command());
    let matches = CommandLine::command()
        .subcommands(experiments)
        .get_matches();
    let experiment = matches
        .subcommand()
        .and_then(|(name, set)| Some((experiments::find(name)?, set)));
    let result = match experiment {
        Some((experiment, set)) => experiment.carry_out(&Settings::of(set)),
        None => other(CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())),
    };
    result.unwrap_or_else(|error| {
        eprintln!("neap-lab: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a verb that is no experiment.
fn other(line: CommandLine) -> anyhow::Result<ExitCode> {
    match line.verb {
        Verb::Peers(arguments) => verbs::peers::run(&arguments),
        Verb::Golden(arguments) => verbs::golden::run(&arguments),
        Verb::Show(arguments) => verbs::show::run(&arguments),
        Verb::Worker(arguments) => verbs::worker::run(&arguments),
    }
}
