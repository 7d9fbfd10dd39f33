//! A case as its directory says it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::engine::campaign::Named;

/// A case: a program, and what its owner complains about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of its directory.
    #[serde(skip)]
    pub name: String,
    /// Its directory.
    #[serde(skip)]
    pub folder: PathBuf,
    /// A few words.
    pub title: String,
    /// The published threads.
    pub complaint: Links,
    /// What the program does, and what its owner sees.
    pub what: String,
    /// Whose program it is.
    pub kind: Kind,
    /// The program under the allocator.
    pub subject: Vec<String>,
    /// A program beside it that drives it.
    #[serde(default)]
    pub driver: Vec<String>,
    /// The limit of the preparation in seconds.
    #[serde(default = "usual_preparation")]
    pub prepare: u64,
    /// The limit of the measured load in seconds.
    #[serde(default = "usual_load")]
    pub seconds: u64,
    /// How long the idle program is observed, in seconds.
    #[serde(default = "usual_rest")]
    pub rest: u64,
    /// Whether the digest of the work must be the same under every allocator.
    #[serde(default = "yes")]
    pub check: bool,
    /// jemalloc's variables, as the thread sets them.
    #[serde(default)]
    pub tuned: BTreeMap<String, String>,
    /// The program's own variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What it needs.
    #[serde(default)]
    pub install: Install,
}

fn usual_preparation() -> u64 {
    180
}

fn usual_load() -> u64 {
    60
}

fn usual_rest() -> u64 {
    10
}

fn yes() -> bool {
    true
}

/// Whose program a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The software of the complaint.
    Real,
    /// A program of ours with the shape of the complaint.
    Like,
}

/// One link, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Links {
    One(String),
    Many(Vec<String>),
}

/// What a case needs, by the registry that has it.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    pub apt: Vec<String>,
    pub pip: Vec<String>,
    pub npm: Vec<String>,
    pub gem: Vec<String>,
    pub cargo: Vec<String>,
    pub build: Vec<String>,
}

impl Named for Case {
    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Case {
    /// Every case below `folder`, by name.
    ///
    /// # Errors
    /// If the folder cannot be read, or a case is damaged.
    pub fn all(folder: &Path) -> anyhow::Result<Vec<Case>> {
        let entries = fs::read_dir(folder).with_context(|| format!("no cases in {folder:?}"))?;
        let mut folders: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join(FILE).is_file())
            .collect();
        folders.sort();
        folders.iter().map(|folder| Case::read(folder)).collect()
    }

    /// The case in `folder`.
    ///
    /// # Errors
    /// If its file cannot be read, or says something else than a case.
    pub fn read(folder: &Path) -> anyhow::Result<Case> {
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
        let case = Case::parse(&text, folder);
        case.with_context(|| format!("in {}", file.display()))
    }

    fn parse(text: &str, folder: &Path) -> anyhow::Result<Case> {
        let mut case: Case = basic_toml::from_str(text)?;
        let name = folder.file_name().context("the folder has no name")?;
        case.name = name.to_string_lossy().into_owned();
        case.folder = std::path::absolute(folder)?;
        ensure!(!case.name.contains(','), "its name has a comma");
        ensure!(!case.subject.is_empty(), "it has no subject");
        ensure!(case.rest > 0, "its rest has no time");
        Ok(case)
    }

    /// The published threads.
    pub fn complaints(&self) -> Vec<&str> {
        match &self.complaint {
            Links::One(link) => vec![link],
            Links::Many(links) => links.iter().map(String::as_str).collect(),
        }
    }
}

const FILE: &str = "case.toml";

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"
title = "A title"
complaint = "https://example.org/1"
what = "It allocates. Its owner sees it."
kind = "like"
subject = ["{env}/subject", "8"]
"#;

    fn parse(text: &str) -> anyhow::Result<Case> {
        Case::parse(text, Path::new("/cases/few"))
    }

    #[test]
    fn the_least_case_has_the_usual_limits_and_needs_nothing() {
        let case = parse(LEAST).unwrap();
        assert_eq!((case.prepare, case.seconds, case.rest), (180, 60, 10));
        assert_eq!((case.name(), case.kind), ("few".into(), Kind::Like));
        assert_eq!(case.complaints(), ["https://example.org/1"]);
        assert!(case.check && case.driver.is_empty() && case.install == Install::default());
    }

    #[test]
    fn a_full_case_is_read() {
        let text = LEAST.replace("\"https://example.org/1\"", "[\"a\", \"b\"]")
            + r#"
driver = ["python3", "{case}/driver.py"]
seconds = 20
tuned = { MALLOC_CONF = "dirty_decay_ms:1000,narenas:2" }
[install]
apt = ["memcached"]
build = ["cc -o {env}/subject {case}/subject.c"]
"#;
        let case = parse(&text).unwrap();
        assert_eq!(case.complaints(), ["a", "b"]);
        assert_eq!(case.tuned["MALLOC_CONF"], "dirty_decay_ms:1000,narenas:2");
        assert_eq!((case.seconds, case.driver.len()), (20, 2));
        assert_eq!((case.install.apt.len(), case.install.build.len()), (1, 1));
    }

    #[test]
    fn what_no_case_says_is_refused() {
        for wrong in [
            LEAST.replace("\"like\"", "\"alike\""),
            LEAST.replace("[\"{env}/subject\", \"8\"]", "[]"),
            format!("{LEAST}second = 3\n"),
            format!("{LEAST}[install]\nbrew = []\n"),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
    }
}
