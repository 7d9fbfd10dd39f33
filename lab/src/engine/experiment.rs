//! An experiment as data, and what all experiments have in common: settings, a run, tables and a
//! record.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::campaign::Progress;
use super::campaign::{Campaign, Named};
use super::record::{EXPERIMENT, Record, Row};
use super::settings::{self, RECORDS_FOLDER, Settings};
use super::table::by_case;
use crate::machine;
use crate::peers;
use crate::peers::locate::{Places, Ready};

/// An experiment.
pub struct Experiment {
    /// Its verb on the command line.
    pub name: &'static str,
    /// What it shows, for the help.
    pub about: &'static str,
    /// Its settings, besides those of the output.
    pub settings: fn() -> Vec<clap::Arg>,
    /// When its record is kept.
    pub kept: Kept,
    /// Measures.
    pub run: fn(&Settings, &mut Campaign) -> anyhow::Result<Ended>,
    /// The tables of a record.
    pub tables: fn(&Record, &View) -> String,
    /// The picture of a record, as SVG.
    pub picture: fn(&Record, &View) -> Option<String>,
    /// What follows from a record, for programs.
    pub derived: fn(&Record, &View) -> Vec<Row>,
    /// What else the help says.
    pub notes: fn() -> String,
}

/// What most experiments have in common: a table a case, no picture.
pub const PLAIN: Experiment = Experiment {
    name: "",
    about: "",
    settings: Vec::new,
    kept: Kept::OnRequest,
    run: |_, _| Ok(Ended::Measured),
    tables: |record, _| by_case(record),
    picture: |_, _| None,
    derived: |_, _| Vec::new(),
    notes: String::new,
};

/// How a record is looked at.
pub struct View {
    /// The allocator that the others are compared with.
    pub base: String,
}

/// When a record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Unless the run is a short one; in the lab's own folder unless another is set.
    Always,
    /// If the setting `records` says so.
    OnRequest,
    /// It has no such setting.
    Never,
}

/// How a run ended.
pub enum Ended {
    /// With what was measured.
    Measured,
    /// With this exit code, before anything was measured.
    Early(u8),
}

impl Experiment {
    /// Its command.
    pub fn command(&self) -> clap::Command {
        let mut settings = (self.settings)();
        settings.push(settings::json());
        if self.kept != Kept::Never {
            settings.push(settings::records());
        }
        let command = clap::Command::new(self.name).about(self.about);
        command.args(settings).after_help((self.notes)())
    }

    /// Runs it, shows its record, and keeps it.
    ///
    /// # Errors
    /// If a setting is unknown, nothing to compare is installed, or the record cannot be written. A
    /// failed run is reported, and the exit code is 1.
    pub fn carry_out(&self, settings: &Settings) -> anyhow::Result<ExitCode> {
        let folder = self.folder(settings);
        if let Some(folder) = &folder {
            ensure_writable(folder)?;
        }
        let progress = if settings.is_on("quiet") {
            Progress::silent()
        } else {
            Progress::new()
        };
        let mut campaign = Campaign::new(
            self.name,
            progress,
            settings.budget(),
            settings.number("seed"),
        );
        if let Ended::Early(code) = (self.run)(settings, &mut campaign)? {
            return Ok(ExitCode::from(code));
        }
        // The line of the progress gives way to the tables.
        campaign.progress = Progress::silent();
        let view = View {
            base: base_in(&campaign.record, settings),
        };
        if !campaign.record.rows.is_empty() {
            if settings.is_on("json") {
                println!("{:#}", self.json(&campaign.record, &view))
            } else {
                self.print(&campaign.record, &view)
            }
            if let Some(folder) = &folder {
                self.keep(folder, &campaign, &view)?;
            }
        }
        Ok(if campaign.verdict() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// Whether it has that setting.
    pub fn has(&self, setting: &str) -> bool {
        self.command()
            .get_arguments()
            .any(|argument| argument.get_id() == setting)
    }

    /// The record as JSON.
    pub fn json(&self, record: &Record, view: &View) -> serde_json::Value {
        let base = self.has("base").then_some(view.base.as_str());
        record.json(base, &(self.derived)(record, view))
    }

    fn print(&self, record: &Record, view: &View) {
        for (key, value) in record.head.iter().filter(|(key, _)| key != EXPERIMENT) {
            println!("{key}: {value}");
        }
        println!("\n{}", (self.tables)(record, view));
    }

    /// The folder for the record, if it is kept.
    fn folder(&self, settings: &Settings) -> Option<PathBuf> {
        let always = self.kept == Kept::Always && !settings.is_quick();
        let own = always.then(|| PathBuf::from(RECORDS_FOLDER));
        settings.path("records").or(own)
    }

    /// Writes `DATE-NAME.csv` and the picture. Replaces those of an earlier run on the same day.
    fn keep(&self, folder: &Path, campaign: &Campaign, view: &View) -> anyhow::Result<()> {
        let file = folder.join(format!("{}-{}.csv", machine::today(), self.name));
        let record = &campaign.record;
        if file.exists() {
            eprintln!("replacing {}", file.display());
        }
        write(&file, &record.to_csv())?;
        eprintln!("the record is {}", file.display());
        match (self.picture)(record, view) {
            Some(svg) => write(&file.with_extension("svg"), &svg),
            None => Ok(()),
        }
    }
}

/// Writes a file.
///
/// # Errors
/// If it cannot be written.
pub fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {file:?}"))
}

/// Makes the folder of the records before measuring.
fn ensure_writable(folder: &Path) -> anyhow::Result<()> {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .with_context(|| {
            format!("cannot keep records in {folder:?}: name another folder with --records")
        })
}

/// The base that is set, or the first available one.
fn base_in(record: &Record, settings: &Settings) -> String {
    let (asked, peers) = (settings.text("base"), record.peers());
    if asked.is_empty() || peers.contains(&asked.as_str()) {
        return asked;
    }
    // Neap compared with itself shows nothing.
    let other = peers.iter().find(|peer| **peer != "neap").or(peers.first());
    let other = other.map_or(String::new(), ToString::to_string);
    eprintln!("{asked} is not here: {other} is the base");
    other
}

/// Those of `all` that are available; tells why others are not.
///
/// # Errors
/// If there is none.
pub fn available<T: Named, R>(
    all: &[T],
    locate: impl Fn(&T) -> anyhow::Result<R>,
) -> anyhow::Result<Vec<R>> {
    let mut here = Vec::new();
    for one in all {
        match locate(one) {
            Ok(found) => here.push(found),
            Err(reason) => eprintln!("{} is absent: {reason:#}", one.name()),
        }
    }
    anyhow::ensure!(!here.is_empty(), "nothing to measure is here");
    Ok(here)
}

/// The allocators that are set and available, or all that are available.
///
/// # Errors
/// If a name is unknown, or none is available.
pub fn available_peers(settings: &Settings) -> anyhow::Result<Vec<Ready>> {
    let places = Places::new(settings.path("neap"))?;
    let chosen = peers::select(&settings.names("peers"))?;
    available(&chosen, |peer| peers::locate::locate(peer, &places))
}
