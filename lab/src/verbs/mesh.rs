//! `neap-lab mesh`: what sharing physical pages among half-empty ones would save.

use std::process::ExitCode;

use clap::{Args, ValueEnum as _};

use super::campaign;
use super::figured::Common;
use crate::mesh::workload::Workload;
use crate::mesh::{Plan, carry_out};

/// The arguments of `mesh`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only these workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<Workload>,
    /// Blocks per workload
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,
    /// Seed for everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Most blocks of a quick run.
const QUICK_BLOCKS: u32 = 20_000;

/// Runs the study.
///
/// # Errors
/// If a name is unknown, Neap is not installed, or the record cannot be written. A failed run is
/// reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let plan = plan(arguments)?;
    let options = [
        ("rounds", plan.rounds.to_string()),
        ("blocks", plan.blocks.to_string()),
        ("seed", plan.seed.to_string()),
    ];
    let head = campaign::head(&options, std::slice::from_ref(&plan.neap));
    let bar = campaign::progress_bar(u64::from(plan.rounds) * plan.workloads.len() as u64);
    let results = carry_out(&plan, || bar.inc(1));
    bar.finish_and_clear();
    arguments.common.finish("mesh", &head, &results)
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let mut neap = arguments.common.peers(&["neap".to_string()])?;
    let workloads = match arguments.only.is_empty() {
        true => Workload::value_variants().to_vec(),
        false => arguments.only.clone(),
    };
    let blocks = match arguments.common.quick {
        true => arguments.blocks.min(QUICK_BLOCKS),
        false => arguments.blocks,
    };
    Ok(Plan {
        workloads,
        neap: neap.remove(0),
        rounds: arguments.common.rounds(1),
        blocks: blocks as usize,
        seed: arguments.seed,
    })
}
