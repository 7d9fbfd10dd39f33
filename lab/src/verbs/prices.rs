//! `neap-lab prices`: what it costs on this machine to detect and to make zeroed memory.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::campaign;
use crate::machine;
use crate::prices::campaign::{Plan, carry_out, contradictions};
use crate::prices::record::{self, Row};
use crate::prices::{tables, ways};

/// The arguments of `prices`.
#[derive(Args)]
pub struct Arguments {
    /// Only these sizes (64K 128K 256K 1M 10M 100M 1000M)
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    only: Vec<String>,
    /// Time per price, in milliseconds; slow ones take longer
    #[arg(long, default_value_t = 100)]
    milliseconds: u64,
    /// Begin no price after this many seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Sizes up to 1 MiB unless named, one millisecond each, to show that it works; measures little
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the record, in FOLDER or in lab/records
    #[arg(long, value_name = "FOLDER", num_args = 0..=1,
        default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    records: Option<PathBuf>,
}

/// The largest size of a quick run.
const LARGEST_QUICK: usize = 1 << 20;

/// Measures, shows, and keeps the record on request.
///
/// # Errors
/// If a size is unknown or the record cannot be written. The cell of an unavailable price says so.
/// Impossible counts of pages are reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let plan = plan(arguments)?;
    campaign::ready(arguments.records.as_deref())?;
    let bar = campaign::progress_bar(plan.steps());
    let rows = carry_out(&plan, |_| bar.inc(1));
    bar.finish_and_clear();
    let head = head(&plan);
    show(arguments, &plan, &head, &rows);
    keep(arguments, &head, &rows)?;
    Ok(campaign::verdict(&[], &contradictions(&rows)))
}

fn plan(arguments: &Arguments) -> anyhow::Result<Plan> {
    let mut sizes = ways::sizes(&arguments.only)?;
    let mut milliseconds = arguments.milliseconds;
    if arguments.quick {
        sizes.retain(|size| !arguments.only.is_empty() || size.bytes <= LARGEST_QUICK);
        milliseconds = 1;
    }
    Ok(Plan {
        sizes,
        each: Duration::from_millis(milliseconds),
        budget: Duration::from_secs(arguments.seconds),
    })
}

fn head(plan: &Plan) -> Vec<(String, String)> {
    let options = [
        ("milliseconds a price", plan.each.as_millis().to_string()),
        ("seconds at most", plan.budget.as_secs().to_string()),
    ];
    campaign::head(&options, &[])
}

fn show(arguments: &Arguments, plan: &Plan, head: &[(String, String)], rows: &[Row]) {
    if arguments.json {
        println!("{:#}", tables::json(head, rows));
        return;
    }
    for (key, value) in head {
        println!("{key}: {value}");
    }
    println!("\n{}", tables::prices(rows, &plan.sizes));
}

/// Writes `DATE-prices.csv`.
fn keep(arguments: &Arguments, head: &[(String, String)], rows: &[Row]) -> anyhow::Result<()> {
    let Some(folder) = &arguments.records else {
        return Ok(());
    };
    let file = folder.join(format!("{}-prices.csv", machine::today()));
    fs::write(&file, record::csv(head, rows)).with_context(|| format!("cannot write {file:?}"))?;
    eprintln!("the record is {}", file.display());
    Ok(())
}
