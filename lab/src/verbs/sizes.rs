//! `neap-lab sizes`: records the sizes that real programs request.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

use super::campaign;
use crate::classes::recorded::{self, Sizes, Step};
use crate::classes::sizes::{PROGRAMS, Program};
use crate::classes::tables::LARGEST;
use crate::peers::{self, Places};
use crate::{machine, report};

/// The arguments of `sizes`.
#[derive(Args)]
pub struct Arguments {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Keep the record, in FOLDER or in lab/records
    #[arg(long, value_name = "FOLDER", num_args = 0..=1,
        default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    records: Option<PathBuf>,
}

/// Runs the programs, shows what they requested, and keeps the record on request.
///
/// # Errors
/// If a name is unknown, Neap's library is not installed, or the record cannot be written. A
/// program that is not installed is left out. One that fails is reported, and the exit code is 1.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    campaign::ready(arguments.records.as_deref())?;
    let neap = peers::find("neap").context("no peer is called neap")?;
    let neap = peers::locate(neap, &Places::new(arguments.neap.clone())?)?;
    let (mut recorded, mut failures) = (Vec::new(), Vec::new());
    for program in programs(&arguments.only)? {
        eprintln!("{}", program.name);
        match program.sizes(&neap.library) {
            Ok(sizes) => recorded.push(sizes),
            Err(reason) => failures.push(format!("{}: {reason:#}", program.name)),
        }
    }
    println!("{}", table(&recorded));
    let head = campaign::head(&[], &[neap]);
    keep(arguments, &head, &recorded)?;
    Ok(campaign::verdict(&[], &failures))
}

fn programs(only: &[String]) -> anyhow::Result<Vec<&'static Program>> {
    let find = |name: &String| match PROGRAMS.iter().find(|program| program.name == name) {
        Some(program) => Ok(program),
        None => {
            let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
            bail!("no program {name:?}; there are {}", known.join(", "))
        }
    };
    match only.is_empty() {
        true => Ok(PROGRAMS.iter().collect()),
        false => only.iter().map(find).collect(),
    }
}

fn table(programs: &[Sizes]) -> comfy_table::Table {
    let mut table = report::table(&[
        "program",
        "allocations",
        "up to 32 KiB",
        "mean of these",
        "most often",
    ]);
    for Sizes { program, steps } in programs {
        let count = |largest: usize| -> u64 {
            let within = steps.iter().filter(|step| step.up_to <= largest);
            within.map(|step| step.count).sum()
        };
        let small = count(LARGEST);
        let bytes: u64 = steps
            .iter()
            .filter(|s| s.up_to <= LARGEST)
            .map(|s| s.bytes)
            .sum();
        let most = steps.iter().max_by_key(|step| step.count);
        table.add_row([
            program.clone(),
            count(usize::MAX).to_string(),
            small.to_string(),
            format!("{:.1} B", bytes as f64 / small.max(1) as f64),
            most.map_or(String::new(), most_often),
        ]);
    }
    table
}

fn most_often(step: &Step) -> String {
    match step.up_to {
        usize::MAX => "larger".into(),
        bytes => format!("up to {bytes} B"),
    }
}

fn keep(
    arguments: &Arguments,
    head: &[(String, String)],
    programs: &[Sizes],
) -> anyhow::Result<()> {
    let Some(folder) = &arguments.records else {
        return Ok(());
    };
    let file = folder.join(format!("{}-sizes.csv", machine::today()));
    fs::write(&file, recorded::csv(head, programs))
        .with_context(|| format!("cannot write {file:?}"))?;
    eprintln!("the record is {}", file.display());
    Ok(())
}
