//! The lab: the experiments, the peers, the workloads and the records.
//!
//! | file or directory | contents |
//! |---|---|
//! | `engine/` | what all experiments share: settings, rounds, records, tables, pictures |
//! | `bench` | allocators compared: time, memory, faults, instructions, system calls |
//! | `calloc/` | the published calloc and free in a loop |
//! | `tide/` | the published five steps: the heap, the stacks and the system |
//! | `latency` | the slowest calls of a thread while another frees memory in bursts |
//! | `retention`, `fragmentation` | what freed memory still costs |
//! | `classes/` | the published size classes, and the sizes that programs request |
//! | `profile` | the accuracy of the sampling profiler |
//! | `cases/` | published complaints, reproduced by real programs |
//! | `compare/` | a program of the user's under every allocator of this machine |
//! | `security/` | memory errors: which ones an allocator stops before they do harm |
//! | `guard/` | errors planted in real programs: after how many requests Neap reports them |
//! | `soak/` | half an hour of mixed real load, under which memory must not grow |
//! | `golden`, `verbs` | the verbs that are no experiments |
//! | `workloads`, `peers/` | what is run and under which allocators, as data |
//! | `work/` | the work of a worker process; the only part that runs under a preload |
//! | `programs` | workloads that are other projects' programs |
//! | `run` | one measurement: time, memory and faults; instructions and system calls |
//! | `machine`, `pagemap`, `status` | what the kernel and Neap say about a process |
//! | `command`, `stats`, `names` | commands and dialogues; statistics; choice by name |

mod bench;
mod calloc;
mod cases;
mod classes;
mod command;
mod compare;
mod engine;
mod fragmentation;
mod golden;
mod guard;
mod latency;
mod machine;
mod names;
mod pagemap;
mod peers;
mod profile;
mod programs;
mod retention;
mod run;
mod security;
mod soak;
mod stats;
mod status;
mod tide;
mod verbs;
mod work;
mod workloads;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use engine::experiment::Experiment;
use engine::settings::Settings;

/// The experiments, in the order of the help.
const EXPERIMENTS: [&Experiment; 14] = [
    &bench::EXPERIMENT,
    &latency::EXPERIMENT,
    &calloc::EXPERIMENT,
    &tide::EXPERIMENT,
    &retention::EXPERIMENT,
    &fragmentation::EXPERIMENT,
    &classes::EXPERIMENT,
    &classes::sizes::EXPERIMENT,
    &profile::EXPERIMENT,
    &cases::EXPERIMENT,
    &compare::EXPERIMENT,
    &security::EXPERIMENT,
    &guard::EXPERIMENT,
    &soak::EXPERIMENT,
];

/// The experiment with that name.
fn experiment(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS
        .into_iter()
        .find(|experiment| experiment.name == name)
}

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
    Peers(verbs::PeersArguments),
    /// Compare the shipped library's instruction counts with the golden file
    Golden(golden::Arguments),
    /// Show the tables of a record
    Show(verbs::ShowArguments),
    /// Carry out one workload in this process and report (used by the other verbs)
    #[command(hide = true)]
    Worker(work::Arguments),
}

fn main() -> ExitCode {
    // The heap of a worker is measured, so it does not depend on how many experiments there are.
    let is_worker = std::env::args().nth(1).is_some_and(|verb| verb == "worker");
    let experiments = EXPERIMENTS.iter().filter(|_| !is_worker);
    let matches = CommandLine::command()
        .subcommands(experiments.map(|experiment| experiment.command()))
        .get_matches();
    let found = matches
        .subcommand()
        .and_then(|(name, set)| Some((experiment(name)?, set)));
    let result = match found {
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
        Verb::Peers(arguments) => verbs::peers(&arguments),
        Verb::Golden(arguments) => golden::run(&arguments),
        Verb::Show(arguments) => verbs::show(&arguments),
        Verb::Worker(arguments) => work::run(&arguments),
    }
}
