//! `neap-lab show`: the tables of a record, perhaps against another base.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use crate::record::Record;
use crate::summary::Summary;
use crate::{calloc, plot, report};

/// The arguments of `show`.
#[derive(Args)]
pub struct Arguments {
    /// The record, a CSV file
    record: PathBuf,
    /// The allocator that the others are compared with
    #[arg(long, default_value = "mimalloc3", value_name = "NAME")]
    base: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also draw the picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Shows the record.
///
/// # Errors
/// When the record cannot be read, has no such base, or the picture cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.record;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file:?}"))?;
    if calloc::record::Record::recognises(&text) {
        return show_calloc(arguments, &text);
    }
    let record = Record::from_csv(&text).with_context(|| format!("{file:?} is no record"))?;
    let summary = Summary::of(&record);
    let base = arguments.base.as_str();
    anyhow::ensure!(
        summary.peers().contains(&base),
        "the record has no {base:?}"
    );
    if let Some(picture) = &arguments.svg {
        fs::write(picture, plot::svg(&summary, base))?;
    }
    match arguments.json {
        true => println!("{:#}", report::json(&record, base)),
        false => println!("{}", report::campaign(&record, base)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The base is of no use here: the figures are absolute.
fn show_calloc(arguments: &Arguments, text: &str) -> anyhow::Result<ExitCode> {
    let record = calloc::record::Record::from_csv(text)
        .with_context(|| format!("{:?} is no record", arguments.record))?;
    if let Some(picture) = &arguments.svg {
        let summary = calloc::summary::Summary::of(&record);
        fs::write(picture, calloc::picture::svg(&summary))?;
    }
    match arguments.json {
        true => println!("{:#}", calloc::tables::json(&record)),
        false => println!("{}", calloc::tables::campaign(&record)),
    }
    Ok(ExitCode::SUCCESS)
}
