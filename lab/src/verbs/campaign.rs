//! Shared by the verbs that measure: the head of a record, its place, the verdict.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use crate::machine;
use crate::peers::Ready;

/// How the workers' own loops were compiled.
const HARNESS: &str = if cfg!(debug_assertions) {
    "debug build"
} else {
    "optimised"
};

/// A progress bar of `steps`.
pub fn progress_bar(steps: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} ({elapsed} of {eta} left)");
    let bar = ProgressBar::new(steps);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The head of a record: the date, the sources, the options, the machine, the versions.
pub fn head(options: &[(&str, String)], peers: &[Ready]) -> Vec<(String, String)> {
    let first = [
        ("date", machine::today()),
        ("revision", machine::revision()),
    ];
    let mut head: Vec<(String, String)> = first
        .into_iter()
        .chain(options.iter().cloned())
        .chain([("harness", HARNESS.to_string())])
        .chain(machine::describe())
        .map(|(key, value)| (key.to_string(), value))
        .collect();
    head.extend(
        peers
            .iter()
            .map(|p| (format!("version of {}", p.name), p.version.clone())),
    );
    head
}

/// Whether to keep a record if no folder is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In the lab's own folder.
    Always,
    /// Only if a folder was requested.
    WhereAsked,
}

/// Makes the folder of the records before measuring.
///
/// # Errors
/// If it cannot be made, or no file can be made in it.
pub fn ready(folder: Option<&Path>) -> anyhow::Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .with_context(|| format!("cannot keep records in {folder:?}: name a folder that can be written with --records"))
}

/// The folder for a record, if it is kept.
fn place(folder: Option<&Path>, kept: Kept) -> Option<PathBuf> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
    match folder {
        Some(folder) => Some(folder.to_path_buf()),
        None if kept == Kept::WhereAsked => None,
        None => Some(own()),
    }
}

/// Writes `DATE-NAME.csv` and `DATE-NAME.svg`. Replaces those of an earlier run on the same day.
///
/// # Errors
/// If the folder cannot be made or a file cannot be written.
pub fn keep(
    name: &str,
    csv: &str,
    svg: &str,
    folder: Option<&Path>,
    kept: Kept,
) -> anyhow::Result<()> {
    let Some(folder) = place(folder, kept) else {
        return Ok(());
    };
    ready(Some(&folder))?;
    let file = folder.join(format!("{}-{name}.csv", machine::today()));
    if file.exists() {
        eprintln!("replacing {}", file.display());
    }
    fs::write(&file, csv).with_context(|| format!("cannot write {file:?}"))?;
    let picture = file.with_extension("svg");
    fs::write(&picture, svg).with_context(|| format!("cannot write {picture:?}"))?;
    eprintln!("the record is {}, the picture beside it", file.display());
    Ok(())
}

/// The file of a second picture beside `picture`: `a-arrows.svg` for `a.svg`.
pub fn beside(picture: &Path, name: &str) -> PathBuf {
    let stem = picture.file_stem().unwrap_or_default().to_string_lossy();
    picture.with_file_name(format!("{stem}-{name}.svg"))
}

/// Reports what was left out and what failed; a failure makes the exit code 1.
pub fn verdict(left_out: &[String], failures: &[String]) -> ExitCode {
    for what in left_out {
        eprintln!("left out: {what}");
    }
    for failure in failures {
        eprintln!("failed: {failure}");
    }
    match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
