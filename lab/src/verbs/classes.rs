//! `neap-lab classes`: what a block takes beyond the requested bytes, and what size classes waste.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};

use super::campaign;
use super::figured::Common;
use crate::classes::campaign::{Part, Plan, Terms, carry_out, go_version};
use crate::classes::recorded::{self, Sizes};
use crate::classes::{Engine, picture, tables};

/// The arguments of `classes`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only these allocators (`neap` includes `neap-rust`, a Rust program with Neap built in)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Seed for the order of the allocators in a round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder whose newest record of sizes is used
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    sizes: PathBuf,
}

/// The rounds of a full run: the fewest that can separate two allocators.
const ROUNDS: u32 = 7;
const FULL: Terms = Terms {
    largest: tables::LARGEST,
    blocks: 2_000,
    boxes: 1_000_000,
    readings: 15,
    go_time: "200000x",
};
const QUICK: Terms = Terms {
    largest: 2_048,
    blocks: 200,
    boxes: 20_000,
    readings: 1,
    go_time: "100x",
};

/// Runs the campaign.
///
/// # Errors
/// If a name is unknown, no allocator is installed, or the record cannot be written. A failure is
/// reported, and the exit code is 1; measured classes that differ from the tables are a failure.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let peers = arguments.common.peers(&arguments.peers)?;
    let mut left_out = Vec::new();
    let programs = programs(&arguments.sizes, &mut left_out);
    let plan = plan(arguments, engines(&peers), programs);
    let head = campaign::head(&options(&plan), &peers);
    let mut results = carry_out(&plan, |what| eprintln!("{what}"));
    results.left_out.extend(left_out);
    arguments.common.keep_picture("classes", &picture::svg())?;
    arguments.common.finish("classes", &head, &results)
}

fn plan(arguments: &Arguments, engines: Vec<Engine>, programs: Vec<Sizes>) -> Plan {
    let quick = arguments.common.quick;
    Plan {
        parts: match arguments.only.is_empty() {
            true => Part::value_variants().to_vec(),
            false => arguments.only.clone(),
        },
        engines,
        programs,
        rounds: arguments.common.rounds(ROUNDS),
        terms: if quick { QUICK } else { FULL },
        seed: arguments.seed,
    }
}

/// The peers, and for Neap's library also the program with Neap built in.
fn engines(peers: &[crate::peers::Ready]) -> Vec<Engine> {
    let mut engines = Vec::new();
    for peer in peers {
        engines.push(Engine::Peer(peer.clone()));
        if peer.name == "neap" {
            match Engine::rust() {
                Ok(rust) => engines.push(rust),
                Err(reason) => eprintln!("neap-rust is absent: {reason:#}"),
            }
        }
    }
    engines
}

fn programs(folder: &Path, left_out: &mut Vec<String>) -> Vec<Sizes> {
    match recorded::newest(folder) {
        Ok((_, programs)) => programs,
        Err(reason) => {
            left_out.push(format!("the sizes of real programs: {reason:#}"));
            Vec::new()
        }
    }
}

fn options(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut options = vec![
        ("rounds", plan.rounds.to_string()),
        ("boxes", plan.terms.boxes.to_string()),
        ("go", go_version().unwrap_or_else(|| "none".into())),
    ];
    let sources = tables::all();
    options.extend(
        sources
            .iter()
            .map(|table| ("classes", format!("{}: {}", table.name, table.source))),
    );
    options
}
