//! `neap-lab calloc`: calloc and free in a loop, over sizes, touch patterns and allocators.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::campaign::{self, Kept};
use crate::calloc::campaign::{Plan, carry_out};
use crate::calloc::cells::{self, Cell, Chosen, Contender, Reach};
use crate::calloc::record::Record;
use crate::calloc::summary::Summary;
use crate::calloc::{picture, tables};
use crate::machine;
use crate::peers::{Places, Ready};

/// The arguments of `calloc`.
#[derive(Args)]
pub struct Arguments {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Only these allocators: the peers, naive, libmalloc-116
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// Only these sizes (64K 256K 1M 10M 100M 1000M 2000M 4G) and patterns (none first sixteenth
    /// all)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Start no run after this many seconds
    #[arg(long, default_value_t = 3_600)]
    seconds: u64,
    /// Duration of a timed run, in milliseconds; slow pairs take up to one pair beyond four times
    /// that
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
    /// Sizes up to 10 MiB, once and briefly, to show that it works; measures nothing
    #[arg(long)]
    quick: bool,
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
/// If a name is unknown, no allocator is installed, there is no memory for any size, or the record
/// cannot be written. A failed run is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let chosen = cells::choose(
        &arguments.only,
        reach(arguments),
        machine::available_bytes()?,
    )?;
    campaign::ready(arguments.records.as_deref())?;
    let places = Places::new(arguments.neap.clone())?;
    let (contenders, absent) = cells::present(&arguments.peers, &places)?;
    absent.iter().for_each(|reason| eprintln!("{reason}"));
    let plan = plan(arguments, &chosen, contenders);
    let bar = campaign::progress_bar(plan.steps());
    let results = carry_out(&plan, &bar);
    bar.finish_and_clear();
    let record = Record {
        head: head(&plan),
        rows: results.rows,
    };
    show(arguments, &record);
    keep(arguments, &record)?;
    let left_out = [chosen.left_out, results.left_out].concat();
    Ok(campaign::verdict(&left_out, &results.failures))
}

fn reach(arguments: &Arguments) -> Reach {
    if arguments.quick {
        Reach::Quick
    } else {
        Reach::Full
    }
}

fn plan(arguments: &Arguments, chosen: &Chosen, contenders: Vec<Contender>) -> Plan {
    Plan {
        cells: Cell::all(chosen),
        contenders,
        rounds: if arguments.quick { 1 } else { arguments.rounds },
        cell_time: Duration::from_millis(if arguments.quick {
            5
        } else {
            arguments.milliseconds
        }),
        budget: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
    }
}

fn head(plan: &Plan) -> Vec<(String, String)> {
    let options = [
        ("rounds", plan.rounds.to_string()),
        (
            "milliseconds a timed run",
            plan.cell_time.as_millis().to_string(),
        ),
        ("seed", plan.seed.to_string()),
    ];
    let ours = plan.contenders.iter().map(|contender| {
        let library = &contender.peer;
        let over = format!("over {} {}", library.name, library.version);
        match contender.name == library.name {
            true => library.clone(),
            false => Ready {
                name: contender.name,
                version: over,
                ..library.clone()
            },
        }
    });
    campaign::head(&options, &ours.collect::<Vec<_>>())
}

fn show(arguments: &Arguments, record: &Record) {
    if arguments.json {
        println!("{:#}", tables::json(record));
        return;
    }
    for (key, value) in &record.head {
        println!("{key}: {value}");
    }
    println!("\n{}", tables::campaign(record));
}

fn keep(arguments: &Arguments, record: &Record) -> anyhow::Result<()> {
    let kept = if arguments.quick {
        Kept::WhereAsked
    } else {
        Kept::Always
    };
    let picture = picture::svg(&Summary::of(record));
    campaign::keep(
        "calloc",
        &record.to_csv(),
        &picture,
        arguments.records.as_deref(),
        kept,
    )
}
