//! `neap-lab show`: the tables of a record, optionally against another base.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use super::campaign::beside;
use crate::record::Record;
use crate::summary::Summary;
use crate::{calloc, download, figures, plot, report, tide};

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
    /// Also draw the picture, if the verb has one; the second picture of tide goes beside it, as
    /// FILE-arrows
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A record's tables, JSON and picture.
struct Shown {
    tables: String,
    json: serde_json::Value,
    picture: Option<String>,
    /// A second picture and its name.
    second: Option<(&'static str, String)>,
}

/// Shows the record.
///
/// # Errors
/// If the file is no record or is damaged, has no such base, or the picture cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.record;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file:?}"))?;
    let shown =
        shown(&text, &arguments.base).with_context(|| format!("cannot show {}", file.display()))?;
    if let Some(picture) = &arguments.svg {
        let write = |file: &Path, svg| {
            fs::write(file, svg).with_context(|| format!("cannot write {file:?}"))
        };
        let svg = shown.picture.as_ref();
        write(picture, svg.context("such a record has no picture")?)?;
        if let Some((name, svg)) = &shown.second {
            write(&beside(picture, name), svg)?;
        }
    }
    match arguments.json {
        true => println!("{:#}", shown.json),
        false => println!("{}", shown.tables),
    }
    Ok(ExitCode::SUCCESS)
}

/// The line of columns tells which verb wrote the record.
fn shown(text: &str, base: &str) -> anyhow::Result<Shown> {
    if Record::recognises(text) {
        return of_bench(&Record::from_csv(text)?, base);
    }
    // Their figures are absolute, so there is no base.
    if calloc::record::Record::recognises(text) {
        return Ok(of_calloc(&calloc::record::Record::from_csv(text)?));
    }
    if download::record::Record::recognises(text) {
        return Ok(of_download(&download::record::Record::from_csv(text)?));
    }
    if tide::record::Record::recognises(text) {
        return Ok(of_tide(&tide::record::Record::from_csv(text)?));
    }
    if figures::recognises(text) {
        return of_figures(text);
    }
    bail!("it does not have the columns of a record")
}

fn of_bench(record: &Record, base: &str) -> anyhow::Result<Shown> {
    let summary = Summary::of(record);
    ensure!(
        summary.peers().contains(&base),
        "the record has no {base:?}"
    );
    Ok(Shown {
        tables: report::campaign(record, base),
        json: report::json(record, base),
        picture: Some(plot::svg(&summary, base)),
        second: None,
    })
}

fn of_calloc(record: &calloc::record::Record) -> Shown {
    let summary = calloc::summary::Summary::of(record);
    Shown {
        tables: calloc::tables::campaign(record),
        json: calloc::tables::json(record),
        picture: Some(calloc::picture::svg(&summary)),
        second: None,
    }
}

fn of_download(record: &download::record::Record) -> Shown {
    let runs = &record.runs;
    Shown {
        tables: download::report::campaign(runs),
        json: download::report::json(&record.head, runs),
        picture: Some(plot::lines::svg(&download::report::picture(runs))),
        second: None,
    }
}

fn of_tide(record: &tide::record::Record) -> Shown {
    Shown {
        tables: tide::tables::campaign(record),
        json: tide::json::campaign(record),
        picture: Some(tide::curves::svg(record)),
        second: Some(("arrows", tide::diagram::svg(record))),
    }
}

fn of_figures(text: &str) -> anyhow::Result<Shown> {
    let (head, rows) = figures::from_csv(text)?;
    Ok(Shown {
        tables: figures::tables::by_case(&rows),
        json: figures::tables::json(&head, &rows),
        picture: None,
        second: None,
    })
}
