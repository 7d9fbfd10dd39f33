//! Shared by the verbs that record figures by case: arguments, peers, tables, the record.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::campaign;
use crate::figures::{self, Results, tables};
use crate::machine;
use crate::peers::{self, Places, Ready};

/// The arguments of each of these verbs.
#[derive(Args)]
pub struct Common {
    /// Neap's library (default: target/dist/libneap.so, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// Rounds (default: as many as the verb needs)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Small and short, to show that it works; measures little
    #[arg(long)]
    pub quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the record, in FOLDER or in lab/records
    #[arg(long, value_name = "FOLDER", num_args = 0..=1,
        default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    records: Option<PathBuf>,
}

impl Common {
    /// The requested rounds; else one for a quick run, and `full` for a full one.
    pub fn rounds(&self, full: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { full })
    }

    /// The peers with these names that are installed, or all of them; reports those that are not.
    ///
    /// # Errors
    /// If a name is unknown, none is installed, or no record can be kept.
    pub fn peers(&self, only: &[String]) -> anyhow::Result<Vec<Ready>> {
        campaign::ready(self.records.as_deref())?;
        let places = Places::new(self.neap.clone())?;
        let mut ready = Vec::new();
        for peer in peers::select(only)? {
            match peers::locate(peer, &places) {
                Ok(found) => ready.push(found),
                Err(reason) => eprintln!("{} is absent: {reason:#}", peer.name),
            }
        }
        anyhow::ensure!(!ready.is_empty(), "no peer is here");
        Ok(ready)
    }

    /// Shows the results, keeps `DATE-NAME.csv` on request, and reports failures.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn finish(
        &self,
        name: &str,
        head: &[(String, String)],
        results: &Results,
    ) -> anyhow::Result<ExitCode> {
        if self.json {
            println!("{:#}", tables::json(head, &results.rows));
        } else {
            for (key, value) in head {
                println!("{key}: {value}");
            }
            println!("{}", tables::by_case(&results.rows));
        }
        if let Some(folder) = &self.records {
            let file = folder.join(format!("{}-{name}.csv", machine::today()));
            fs::write(&file, figures::csv(head, &results.rows))
                .with_context(|| format!("cannot write {file:?}"))?;
            eprintln!("the record is {}", file.display());
        }
        Ok(campaign::verdict(&results.left_out, &results.failures))
    }

    /// Keeps `DATE-NAME.svg` if a record is kept.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_picture(&self, name: &str, svg: &str) -> anyhow::Result<()> {
        let Some(folder) = &self.records else {
            return Ok(());
        };
        let file = folder.join(format!("{}-{name}.svg", machine::today()));
        fs::write(&file, svg).with_context(|| format!("cannot write {file:?}"))
    }
}
