//! `neap-lab peers` builds what can be built and lists what is available. `neap-lab show` prints
//! the tables of a record, optionally against another base.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::engine::campaign::Progress;
use crate::engine::experiment::{PLAIN, View, write};
use crate::engine::record::{EXPERIMENT, Record};
use crate::engine::table::plain;
use crate::peers::locate::{Places, Ready};
use crate::peers::{self, Peer};

/// The arguments of `peers`.
#[derive(Args)]
pub struct PeersArguments {
    /// Only these peers
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// List what is available, build nothing
    #[arg(long)]
    list: bool,
    /// Neap's library
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
}

/// Builds and lists the peers.
///
/// # Errors
/// If a name is unknown or the folder for the builds cannot be made. An absent peer is no error: it
/// is listed with the reason.
pub fn peers(arguments: &PeersArguments) -> anyhow::Result<ExitCode> {
    let places = Places::new(arguments.neap.clone())?;
    let chosen = peers::select(&arguments.peers)?;
    let found = if arguments.list {
        chosen
            .iter()
            .map(|peer| (peer.name.as_str(), peers::locate::locate(peer, &places)))
            .collect()
    } else {
        fs::create_dir_all(&places.peers)?;
        obtain_all(&chosen, &places)
    };
    println!("{}", table(&found));
    Ok(ExitCode::SUCCESS)
}

fn obtain_all(
    chosen: &[&'static Peer],
    places: &Places,
) -> Vec<(&'static str, anyhow::Result<Ready>)> {
    let progress = Progress::new();
    progress.expect(chosen.len() as u64);
    let obtained = chosen.iter().map(|peer| {
        let ready = peers::obtain::obtain(peer, places, &|what| progress.phase(what));
        progress.step();
        (peer.name.as_str(), ready)
    });
    obtained.collect()
}

/// The peers, each with its version and file or the reason of its absence.
fn table(found: &[(&'static str, anyhow::Result<Ready>)]) -> String {
    let mut table = plain(&["peer", "version", "library, or why absent"]);
    for (name, ready) in found {
        table.add_row(match ready {
            Ok(ready) => {
                [*name, &ready.version, &ready.library.to_string_lossy()].map(String::from)
            }
            Err(reason) => [name.to_string(), "absent".into(), format!("{reason:#}")],
        });
    }
    table.to_string()
}

/// The arguments of `show`.
#[derive(Args)]
pub struct ShowArguments {
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
pub fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.record;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file:?}"))?;
    show_text(&text, arguments).with_context(|| format!("cannot show {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn show_text(text: &str, arguments: &ShowArguments) -> anyhow::Result<()> {
    let record = Record::from_csv(text)?;
    // A record of an experiment that is gone is shown as the plain ones are.
    let experiment = record.said(EXPERIMENT).and_then(crate::experiment);
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
    if arguments.json {
        println!("{:#}", experiment.json(&record, &view))
    } else {
        println!("{}", (experiment.tables)(&record, &view))
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_peer_is_shown_with_the_reason() {
        let text = table(&[("snmalloc", Err(anyhow::anyhow!("no compiler")))]);
        assert!(
            text.contains("snmalloc") && text.contains("no compiler"),
            "{text}"
        );
    }
}
