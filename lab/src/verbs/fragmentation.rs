//! `neap-lab fragmentation`: the cost of holes between live blocks.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::campaign;
use super::figured::Common;
use crate::fragmentation::{Plan, carry_out};

/// The arguments of `fragmentation`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only these allocators
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Number of small blocks, of which 90 % are freed
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,
    /// Seed for everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const SLEEP: Duration = Duration::from_secs(2);
/// The sleep of a quick run; below, its largest number of blocks.
const QUICK_SLEEP: Duration = Duration::from_millis(50);
const QUICK_BLOCKS: u32 = 20_000;

/// Runs the campaign.
///
/// # Errors
/// If a name is unknown, no allocator is installed, or the record cannot be written. A failed run
/// is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let plan = plan(arguments)?;
    let options = [
        ("rounds", plan.rounds.to_string()),
        ("blocks", plan.blocks.to_string()),
        ("milliseconds of sleep", plan.sleep.as_millis().to_string()),
        ("seed", plan.seed.to_string()),
    ];
    let head = campaign::head(&options, &plan.peers);
    let bar = campaign::progress_bar(u64::from(plan.rounds) * plan.peers.len() as u64);
    let results = carry_out(&plan, || bar.inc(1));
    bar.finish_and_clear();
    arguments.common.finish("fragmentation", &head, &results)
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let (blocks, sleep) = match arguments.common.quick {
        true => (arguments.blocks.min(QUICK_BLOCKS), QUICK_SLEEP),
        false => (arguments.blocks, SLEEP),
    };
    Ok(Plan {
        peers: arguments.common.peers(&arguments.peers)?,
        rounds: arguments.common.rounds(1),
        blocks: blocks as usize,
        sleep,
        seed: arguments.seed,
    })
}
