//! `neap-lab retention`: how much of its freed memory a sleeping process keeps.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::campaign;
use super::figured::Common;
use crate::retention::{Plan, Terms, carry_out};
use crate::work::retention::{PATTERNS, Pattern};

/// The arguments of `retention`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only these allocators
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Only these patterns
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<Pattern>,
    /// MiB to allocate and free
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    mib: u32,
}

/// When resident memory is read, in milliseconds after the frees.
const MOMENTS: [u64; 5] = [500, 1_000, 2_000, 5_000, 12_000];
const IDLE: Duration = Duration::from_secs(5);
/// The moments of a quick run; below, the most MiB that it allocates.
const QUICK_MOMENTS: [u64; 1] = [100];
const QUICK_IDLE: Duration = Duration::from_millis(100);
const QUICK_MIB: u32 = 4;

/// Runs the campaign.
///
/// # Errors
/// If a name is unknown, no allocator is installed, or the record cannot be written. A failed run
/// is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let peers = arguments.common.peers(&arguments.peers)?;
    let patterns = match arguments.only.is_empty() {
        true => PATTERNS.to_vec(),
        false => arguments.only.clone(),
    };
    let mib = mib(arguments);
    let plan = Plan {
        patterns,
        peers,
        rounds: arguments.common.rounds(1),
        terms: terms(arguments, mib),
    };
    let options = [
        ("rounds", plan.rounds.to_string()),
        ("MiB", mib.to_string()),
    ];
    let head = campaign::head(&options, &plan.peers);
    let runs = plan.patterns.len() * plan.peers.len();
    let bar = campaign::progress_bar(u64::from(plan.rounds) * runs as u64);
    let results = carry_out(&plan, || bar.inc(1));
    bar.finish_and_clear();
    arguments.common.finish("retention", &head, &results)
}

fn mib(arguments: &Arguments) -> u32 {
    match arguments.common.quick {
        true => arguments.mib.min(QUICK_MIB),
        false => arguments.mib,
    }
}

fn terms(arguments: &Arguments, mib: u32) -> Terms {
    let (moments, idle): (&[u64], _) = match arguments.common.quick {
        true => (&QUICK_MOMENTS, QUICK_IDLE),
        false => (&MOMENTS, IDLE),
    };
    Terms {
        bytes: (mib as usize) << 20,
        moments: moments.iter().copied().map(Duration::from_millis).collect(),
        idle,
    }
}
