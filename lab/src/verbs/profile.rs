//! `neap-lab profile`: the accuracy and the cost of the sampling profiler.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::campaign;
use super::figured::Common;
use crate::figures::Results;
use crate::peers::Ready;
use crate::profile::{price, truth};

/// The arguments of `profile`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Mean bytes between two samples
    #[arg(long, default_value_t = 512 << 10, value_parser = clap::value_parser!(u64).range(FINEST..))]
    rate: u64,
    /// The command neap, whose top is attached (default: the one in target/dist, or beside this
    /// program)
    #[arg(long, value_name = "PATH")]
    command: Option<PathBuf>,
    /// Seed for the order within a round
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Compare known allocations with their profiles.
    Truth,
    /// Paired runs with sampling off and on, and with top attached.
    Price,
}

const RUNS: u32 = 200;
const PAIRS: u32 = 20;
/// Bytes that each place allocates.
const BYTES: usize = 16 << 20;
/// The lowest rate that the library accepts, in bytes.
const FINEST: u64 = 4096;
/// A quick run divides its amounts by this.
const QUICK: usize = 16;

/// Runs the campaign.
///
/// # Errors
/// If Neap's library is not installed or the record cannot be written. A place whose mean is far
/// off, and a price over its limit, are failures: they are reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let peers = arguments.common.peers(&["neap".into()])?;
    let neap = peers.first().context("no Neap")?;
    let parts = match arguments.only.is_empty() {
        true => Part::value_variants(),
        false => &arguments.only,
    };
    let mut results = Results::default();
    for part in parts {
        match part {
            Part::Truth => truth::carry_out(&truth_plan(arguments, neap), tell, &mut results),
            Part::Price => price::carry_out(&price_plan(arguments, neap), tell, &mut results),
        }
    }
    let options = [
        ("runs", arguments.common.rounds(RUNS).to_string()),
        ("pairs", arguments.common.rounds(PAIRS).to_string()),
        ("rate", arguments.rate.to_string()),
        ("seed", arguments.seed.to_string()),
    ];
    let head = campaign::head(&options, &peers);
    arguments.common.finish("profile", &head, &results)
}

fn tell(what: &str) {
    eprintln!("{what}");
}

fn truth_plan(arguments: &Arguments, neap: &Ready) -> truth::Plan {
    truth::Plan {
        neap: neap.clone(),
        runs: arguments.common.rounds(RUNS),
        bytes: BYTES / divisor(arguments),
        // A quick run takes the same number of samples: with only one or two per place, errors are
        // not normally distributed.
        rate: (arguments.rate / divisor(arguments) as u64).max(FINEST),
    }
}

fn price_plan(arguments: &Arguments, neap: &Ready) -> price::Plan {
    price::Plan {
        neap: neap.clone(),
        command: arguments.command.clone().or_else(price::command),
        rounds: arguments.common.rounds(PAIRS),
        divisor: divisor(arguments) as u64,
        rate: arguments.rate,
        seed: arguments.seed,
    }
}

fn divisor(arguments: &Arguments) -> usize {
    if arguments.common.quick { QUICK } else { 1 }
}
