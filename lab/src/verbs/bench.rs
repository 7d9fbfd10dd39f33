//! `neap-lab bench`: runs a campaign, shows the results and keeps the record.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::campaign::{self, Kept};
use crate::bench::{self, Counts, Extent, Plan};
use crate::peers::{self, Places, Ready};
use crate::record::Record;
use crate::summary::Summary;
use crate::workloads::Workload;
use crate::{plot, report, workloads};

/// The arguments of `bench`.
#[derive(Args)]
pub struct Arguments {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Only these peers
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Only these workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Paired rounds; fewer than six cannot reach significance
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Start no run after this many seconds
    #[arg(long, default_value_t = 2_400)]
    seconds: u64,
    /// The allocator to compare the others with
    #[arg(long, default_value = "mimalloc3", value_name = "NAME")]
    base: String,
    /// Run each workload once and briefly, to show that it works; measures nothing
    #[arg(long)]
    quick: bool,
    /// Skip the counts of instructions and system calls
    #[arg(long)]
    no_counts: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Folder for the record and the picture (default: lab/records; a quick run keeps none)
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Seed for the order of the runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the campaign.
///
/// # Errors
/// If a name is unknown, no peer is installed, or the record cannot be written. A failed run is
/// reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workloads = workloads::select(&arguments.only)?;
    peers::find(&arguments.base).with_context(|| format!("no peer {:?}", arguments.base))?;
    campaign::ready(arguments.records.as_deref())?;
    let ready = present_peers(arguments)?;
    let base = base_name(&arguments.base, &ready);
    let plan = plan(arguments, workloads, ready);
    let bar = campaign::progress_bar(bench::steps(&plan));
    let results = bench::carry_out(&plan, &bar);
    bar.finish_and_clear();
    let record = Record {
        head: head(&plan, arguments),
        rows: results.rows.clone(),
    };
    show(arguments, &record, &base);
    keep(arguments, &record, &base)?;
    Ok(campaign::verdict(&results.left_out, &results.failures))
}

fn present_peers(arguments: &Arguments) -> anyhow::Result<Vec<Ready>> {
    let places = Places::new(arguments.neap.clone())?;
    let mut ready = Vec::new();
    for peer in peers::select(&arguments.peers)? {
        match peers::locate(peer, &places) {
            Ok(found) => ready.push(found),
            Err(reason) => eprintln!("{} is absent: {reason:#}", peer.name),
        }
    }
    anyhow::ensure!(!ready.is_empty(), "no peer is here");
    Ok(ready)
}

/// The requested base, or the first available peer.
fn base_name(asked: &str, ready: &[Ready]) -> String {
    if ready.iter().any(|peer| peer.name == asked) {
        return asked.to_string();
    }
    // Neap compared with itself shows nothing.
    let other = ready
        .iter()
        .find(|peer| peer.name != "neap")
        .unwrap_or(&ready[0]);
    eprintln!("{asked} is not here: {} is the base", other.name);
    other.name.to_string()
}

fn plan(arguments: &Arguments, workloads: Vec<&'static Workload>, peers: Vec<Ready>) -> Plan {
    Plan {
        workloads,
        peers,
        rounds: if arguments.quick { 1 } else { arguments.rounds },
        extent: if arguments.quick {
            Extent::Quick
        } else {
            Extent::Full
        },
        counts: if arguments.no_counts {
            Counts::Skipped
        } else {
            Counts::Taken
        },
        budget: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
    }
}

fn head(plan: &Plan, arguments: &Arguments) -> Vec<(String, String)> {
    let extent = format!("{:?}", plan.extent).to_lowercase();
    let options = [
        ("rounds", plan.rounds.to_string()),
        ("extent", extent),
        ("seed", arguments.seed.to_string()),
    ];
    campaign::head(&options, &plan.peers)
}

fn show(arguments: &Arguments, record: &Record, base: &str) {
    if arguments.json {
        println!("{:#}", report::json(record, base));
        return;
    }
    for (key, value) in &record.head {
        println!("{key}: {value}");
    }
    println!("{}", report::campaign(record, base));
}

fn keep(arguments: &Arguments, record: &Record, base: &str) -> anyhow::Result<()> {
    let kept = match arguments.quick {
        true => Kept::WhereAsked,
        false => Kept::Always,
    };
    let picture = plot::svg(&Summary::of(record), base);
    campaign::keep(
        "bench",
        &record.to_csv(),
        &picture,
        arguments.records.as_deref(),
        kept,
    )
}
