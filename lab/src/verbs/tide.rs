//! `neap-lab tide`: the write-up's five steps, under every heap and on both kinds of stacks.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use super::campaign::{self, Kept};
use crate::machine;
use crate::peers::{self, Places, Ready};
use crate::tide::campaign::{Plan, Prices, carry_out};
use crate::tide::engines::{self, Present};
use crate::tide::record::Record;
use crate::tide::sizes::{Blocks, MB, Sizes};
use crate::tide::steps::Run;
use crate::tide::{curves, diagram, json, tables};
use crate::work::pagemap::page_size;

/// The arguments of `tide`.
#[derive(Args)]
pub struct Arguments {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Only these engines: go, go-freed, a peer (coroutines on corosensei's stacks), neap-heap (the
    /// same under Neap), neap (heap and stacks)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Only these runs: waited, at-once, stacks-first
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only the runs without a wait between the steps
    #[arg(long, conflicts_with = "only")]
    at_once: bool,
    /// Number of coroutines
    #[arg(long, default_value_t = 50_000, value_name = "NUMBER")]
    coroutines: usize,
    /// Address space per stack in KiB, including its guard page
    #[arg(long, default_value_t = 64, value_name = "KIB",
        value_parser = clap::value_parser!(u64).range(8..=8_192))]
    stack_kib: u64,
    /// What the heap allocates and drops, in MB
    #[arg(long, default_value_t = 100, value_name = "MB",
        value_parser = clap::value_parser!(u64).range(1..=65_536))]
    mb: u64,
    /// The size of the heap's blocks (1K is 1,024), or `one` for a single block; Go always uses one
    #[arg(long, default_value = "4K", value_name = "BYTES")]
    blocks: Blocks,
    /// The wait after a step, in milliseconds
    #[arg(long, default_value_t = 2_000, value_name = "MS",
        value_parser = clap::value_parser!(u64).range(0..=60_000))]
    wait: u64,
    /// Only the prices: creating, ending and switching coroutines on both kinds of stacks
    #[arg(long, conflicts_with_all = ["peers", "only", "at_once", "no_prices"])]
    prices: bool,
    /// Skip the prices
    #[arg(long)]
    no_prices: bool,
    /// Interleaved rounds of the prices
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Coroutines per burst of the prices
    #[arg(long, default_value_t = 5_000, value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(1..=30_000))]
    burst: u64,
    /// Start no run after this many seconds
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the record and the pictures, in FOLDER or in lab/records
    #[arg(long, value_name = "FOLDER", num_args = 0..=1,
        default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    records: Option<PathBuf>,
    /// Seed for the order of the prices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the campaign.
///
/// # Errors
/// If a name is unknown, no engine is available, there is too little memory, or the record cannot
/// be written. A failed run is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let sizes = sizes(arguments)?;
    let runs = runs(arguments)?;
    campaign::ready(arguments.records.as_deref())?;
    let places = Places::new(arguments.neap.clone())?;
    let plan = plan(arguments, sizes, runs, &places)?;
    let bar = campaign::progress_bar(plan.steps());
    let results = carry_out(&plan, &bar);
    bar.finish_and_clear();
    let record = Record {
        head: head(&plan),
        rows: results.rows,
    };
    if !record.rows.is_empty() {
        show(arguments, &record);
        keep(arguments, &record)?;
    }
    Ok(campaign::verdict(&results.left_out, &results.failures))
}

fn sizes(arguments: &Arguments) -> anyhow::Result<Sizes> {
    let sizes = Sizes {
        heap_bytes: (arguments.mb * MB) as usize,
        blocks: arguments.blocks,
        coroutines: arguments.coroutines,
        stack_bytes: (arguments.stack_kib << 10) as usize,
    };
    ensure!(sizes.coroutines > 0, "no coroutines");
    let pages = (sizes.stack_bytes as u64).is_multiple_of(page_size());
    ensure!(pages, "a stack is whole pages of {} KiB", page_size() >> 10);
    sizes.ensure_room()?;
    Ok(sizes)
}

fn runs(arguments: &Arguments) -> anyhow::Result<Vec<Run>> {
    if arguments.prices {
        return Ok(Vec::new());
    }
    let named = |name: &String| {
        let known = Run::ALL.map(Run::name).join(", ");
        Run::find(name).with_context(|| format!("no run {name:?}; there are {known}"))
    };
    let mut runs: Vec<Run> = match arguments.only.is_empty() {
        true => Run::ALL.to_vec(),
        false => arguments
            .only
            .iter()
            .map(named)
            .collect::<anyhow::Result<_>>()?,
    };
    runs.retain(|run| !arguments.at_once || *run != Run::Waited);
    Ok(runs)
}

fn plan(
    arguments: &Arguments,
    sizes: Sizes,
    runs: Vec<Run>,
    places: &Places,
) -> anyhow::Result<Plan> {
    let engines = match arguments.prices {
        true => Vec::new(),
        false => present(&arguments.peers, places)?,
    };
    Ok(Plan {
        engines,
        runs,
        sizes,
        wait: Duration::from_millis(arguments.wait),
        prices: prices(arguments, places)?,
        budget: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
    })
}

fn present(only: &[String], places: &Places) -> anyhow::Result<Vec<Present>> {
    let mut present = Vec::new();
    for engine in engines::select(only)? {
        match engines::locate(engine, places) {
            Ok(found) => present.push(found),
            Err(reason) => eprintln!("{} is absent: {reason:#}", engine.name),
        }
    }
    ensure!(!present.is_empty(), "no engine is here");
    Ok(present)
}

/// The prices need Neap's stacks. Without them they are left out, unless only prices were
/// requested.
fn prices(arguments: &Arguments, places: &Places) -> anyhow::Result<Option<Prices>> {
    let wanted = arguments.prices || (arguments.peers.is_empty() && !arguments.no_prices);
    if !wanted {
        return Ok(None);
    }
    match with_stacks(places) {
        Ok(neap) => Ok(Some(Prices {
            neap,
            rounds: arguments.rounds,
            burst: arguments.burst,
        })),
        Err(reason) if arguments.prices => Err(reason),
        Err(reason) => {
            eprintln!("the prices are left out: {reason:#}");
            Ok(None)
        }
    }
}

fn with_stacks(places: &Places) -> anyhow::Result<Ready> {
    let neap = peers::find("neap").context("no peer neap")?;
    let neap = peers::locate(neap, places)?;
    engines::ensure_stacks(&neap.library)?;
    Ok(neap)
}

fn head(plan: &Plan) -> Vec<(String, String)> {
    let sizes = &plan.sizes;
    let options = [
        ("heap MB", (sizes.heap_bytes as u64 / MB).to_string()),
        ("blocks", sizes.blocks.to_string()),
        ("coroutines", sizes.coroutines.to_string()),
        ("stack KiB", (sizes.stack_bytes >> 10).to_string()),
        ("wait ms", plan.wait.as_millis().to_string()),
        ("seed", plan.seed.to_string()),
        (
            "max_map_count",
            machine::first_line("/proc/sys/vm/max_map_count"),
        ),
    ];
    let mut head = campaign::head(&options, &[]);
    let version = |name: &str, version: String| (format!("version of {name}"), version);
    let engines = plan.engines.iter();
    head.extend(engines.map(|engine| version(engine.name, engine.version())));
    if let Some(prices) = &plan.prices {
        let neap = format!("{} (heap under the prices)", prices.neap.version);
        head.push(version("the prices", neap));
    }
    head
}

fn show(arguments: &Arguments, record: &Record) {
    if arguments.json {
        println!("{:#}", json::campaign(record));
        return;
    }
    for (key, value) in &record.head {
        println!("{key}: {value}");
    }
    println!("\n{}", tables::campaign(record));
}

/// Writes `DATE-tide.csv`, `DATE-tide.svg` and `DATE-tide-arrows.svg`; for prices alone,
/// `DATE-tide-prices.csv`.
fn keep(arguments: &Arguments, record: &Record) -> anyhow::Result<()> {
    let Some(folder) = &arguments.records else {
        return Ok(());
    };
    if arguments.prices {
        let file = folder.join(format!("{}-tide-prices.csv", machine::today()));
        fs::write(&file, record.to_csv()).with_context(|| format!("cannot write {file:?}"))?;
        eprintln!("the record is {}", file.display());
        return Ok(());
    }
    campaign::keep(
        "tide",
        &record.to_csv(),
        &curves::svg(record),
        Some(folder),
        Kept::Always,
    )?;
    let first = folder.join(format!("{}-tide.svg", machine::today()));
    let second = campaign::beside(&first, "arrows");
    fs::write(&second, diagram::svg(record)).with_context(|| format!("cannot write {second:?}"))
}
