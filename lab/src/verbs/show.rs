//! `neap-lab show`: the tables of a record, optionally against another base.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::engine::experiment::{PLAIN, View, write};
use crate::engine::record::{EXPERIMENT, Record};
use crate::experiments;

/// The arguments of `show`.
#[derive(Args)]
pub struct Arguments {
    /// The record, a CSV file that a verb has written
    record: PathBuf,
    /// The allocator to compare the others with; only for records of bench
    #[arg(long, default_value = "mimalloc3", value_name = "NAME")]
    base: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also draw the picture, if the verb has one
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Shows the record.
///
/// # Errors
/// If the file is no record or is damaged, has no such base, or the picture cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.record;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file:?}"))?;
    show(&text, arguments).with_context(|| format!("cannot show {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn show(text: &str, arguments: &Arguments) -> anyhow::Result<()> {
    let record = Record::from_csv(text)?;
    // A record of an experiment that is gone is shown as the plain ones are.
    let experiment = record.said(EXPERIMENT).and_then(experiments::find);
    let experiment = experiment.unwrap_or(&PLAIN);
    let base = &arguments.base;
    ensure!(
        !experiment.has("base") || record.peers().contains(&base.as_str()),
        "the record has no {base:?}"
    );
    let view = View { base: base.clone() };
    if let Some(file) = &arguments.svg {
        let picture = (experiment.picture)(&record, &view);
        write(file, &picture.context("such a record has no picture")?)?;
    }
    match arguments.json {
        true => println!("{:#}", experiment.json(&record, &view)),
        false => println!("{}", (experiment.tables)(&record, &view)),
    }
    Ok(())
}
