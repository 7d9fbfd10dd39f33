//! `neap-lab download`: the published download, under every allocator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::campaign::{self, Kept};
use crate::download::campaign::{Plan, Results, Watch, carry_out};
use crate::download::cell::{Buffers, Sample, Terms};
use crate::download::environment::{self, Environment, Making, Outcome};
use crate::download::record::Record;
use crate::download::{MB, report};
use crate::machine;
use crate::peers::{self, Places, Ready};
use crate::plot::lines;
use crate::report::progress;

/// The exit code if there is no environment and none may be made.
const NO_ENVIRONMENT: u8 = 3;

/// The arguments of `download`.
#[derive(Args)]
pub struct Arguments {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Only these peers
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// The chunk sizes in MB
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000", value_name = "MB",
        value_parser = clap::value_parser!(u64).range(1..=2_000))]
    chunks: Vec<u64>,
    /// The size of a download in MB
    #[arg(long, default_value_t = 64, value_name = "MB",
        value_parser = clap::value_parser!(u64).range(1..=4_096))]
    mb: u64,
    /// Consecutive downloads in one client; after the first, its memory is warm
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    downloads: u32,
    /// Stop a client after this many seconds, and judge what it received
    #[arg(long, default_value_t = 10, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=120))]
    limit: u64,
    /// Interleaved rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Also measure buffers that are not zeroed, as pyOpenSSL makes them today: shows what a large
    /// chunk costs apart from zeroing
    #[arg(long)]
    control: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the record and the picture, in FOLDER or in lab/records
    #[arg(long, value_name = "FOLDER", num_args = 0..=1,
        default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    records: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Seed for the order within a round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only set up the Python packages (with --offline: only check for them)
    #[arg(long)]
    prepare: bool,
    /// Set up nothing; without the Python packages, exit with 3
    #[arg(long)]
    offline: bool,
    /// Folder of the Python packages (default: target/download)
    #[arg(long, value_name = "FOLDER")]
    env: Option<PathBuf>,
}

/// Sets up what is missing, runs the campaign, shows it, and keeps its record on request.
///
/// # Errors
/// If a name is unknown, no peer is installed, the packages are not available, or the record cannot
/// be written. A failed cell is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let places = Places::new(arguments.neap.clone())?;
    let chosen = peers::select(&arguments.peers)?;
    campaign::ready(arguments.records.as_deref())?;
    let folder = environment_folder(arguments, &places)?;
    let Outcome::Ready(environment) = environment(arguments, &folder)? else {
        eprintln!(
            "neap-lab: no Python packages in {} (neap-lab download --prepare sets them up)",
            folder.display()
        );
        return Ok(ExitCode::from(NO_ENVIRONMENT));
    };
    if arguments.prepare {
        println!("{}: {}", folder.display(), environment.versions);
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(arguments, present(&chosen, &places)?);
    let results = watched(arguments, &plan, &environment)?;
    let record = Record {
        head: head(&plan, &environment),
        runs: results.runs,
    };
    if !record.runs.is_empty() {
        show(arguments, &record);
        keep(arguments, &record)?;
    }
    Ok(campaign::verdict(&[], &results.failures))
}

/// An absolute path, because the client and the server open files in it.
fn environment_folder(arguments: &Arguments, places: &Places) -> anyhow::Result<PathBuf> {
    let default = || environment::default_folder(places);
    let folder = arguments.env.clone().unwrap_or_else(default);
    Ok(std::path::absolute(folder)?)
}

fn environment(arguments: &Arguments, folder: &Path) -> anyhow::Result<Outcome> {
    let making = match arguments.offline {
        true => Making::Forbidden,
        false => Making::Allowed,
    };
    // Announced even without progress, because something is downloaded and written.
    Environment::get(folder, making, &|what| eprintln!("{what}"))
}

fn present(chosen: &[&'static peers::Peer], places: &Places) -> anyhow::Result<Vec<Ready>> {
    let mut ready = Vec::new();
    for peer in chosen {
        match peers::locate(peer, places) {
            Ok(found) => ready.push(found),
            Err(reason) => eprintln!("{} is absent: {reason:#}", peer.name),
        }
    }
    anyhow::ensure!(!ready.is_empty(), "no peer is here");
    Ok(ready)
}

fn plan(arguments: &Arguments, peers: Vec<Ready>) -> Plan {
    Plan {
        terms: Terms {
            body: arguments.mb * MB,
            downloads: arguments.downloads,
            limit: Duration::from_secs(arguments.limit),
        },
        buffers: match arguments.control {
            true => vec![Buffers::Zeroed, Buffers::Unzeroed],
            false => vec![Buffers::Zeroed],
        },
        chunks_mb: arguments.chunks.clone(),
        peers,
        rounds: arguments.rounds,
        seed: arguments.seed,
    }
}

fn watched(
    arguments: &Arguments,
    plan: &Plan,
    environment: &Environment,
) -> anyhow::Result<Results> {
    if arguments.quiet {
        return carry_out(plan, environment, &Silence);
    }
    let shown = Shown::new(plan);
    let results = carry_out(plan, environment, &shown);
    shown.0.finish_and_clear();
    results
}

/// Reports nothing.
struct Silence;

impl Watch for Silence {
    fn begin(&self, _: &str) {}
    fn end(&self, _: &anyhow::Result<Sample>) {}
}

/// A bar on a terminal, else a line or two per client.
struct Shown(ProgressBar);

impl Shown {
    fn new(plan: &Plan) -> Shown {
        let (cells, limit) = (plan.cells(), plan.terms.limit.as_secs());
        eprintln!("{cells} clients of at most {limit} s each");
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} ({elapsed})");
        let bar = ProgressBar::new(cells);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Shown(bar)
    }
}

impl Watch for Shown {
    fn begin(&self, what: &str) {
        progress(&self.0, what);
    }

    fn end(&self, result: &anyhow::Result<Sample>) {
        self.0.inc(1);
        if self.0.is_hidden() {
            match result {
                Ok(sample) => eprintln!("  {:.2} MB/s", sample.rate()),
                Err(error) => eprintln!("  failed: {error:#}"),
            }
        }
    }
}

fn head(plan: &Plan, environment: &Environment) -> Vec<(String, String)> {
    let terms = &plan.terms;
    let mut head = vec![
        ("date".to_string(), machine::today()),
        ("revision".to_string(), machine::revision()),
        ("rounds".to_string(), plan.rounds.to_string()),
        ("seed".to_string(), plan.seed.to_string()),
        (
            "download".to_string(),
            format!("{} times {} MB", terms.downloads, terms.body / MB),
        ),
        ("limit".to_string(), format!("{} s", terms.limit.as_secs())),
        ("packages".to_string(), environment.versions.clone()),
    ];
    let machine = machine::describe().into_iter();
    head.extend(machine.map(|(key, value)| (key.to_string(), value)));
    let version = |peer: &Ready| (format!("version of {}", peer.name), peer.version.clone());
    head.extend(plan.peers.iter().map(version));
    head
}

fn show(arguments: &Arguments, record: &Record) {
    if arguments.json {
        println!("{:#}", report::json(&record.head, &record.runs));
        return;
    }
    for (key, value) in &record.head {
        println!("{key}: {value}");
    }
    println!("\n{}", report::campaign(&record.runs));
}

fn keep(arguments: &Arguments, record: &Record) -> anyhow::Result<()> {
    let picture = lines::svg(&report::picture(&record.runs));
    campaign::keep(
        "download",
        &record.to_csv(),
        &picture,
        arguments.records.as_deref(),
        Kept::WhereAsked,
    )
}
