//! A case as its directory says it, where its files are, and its programs' variables.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::engine::campaign::by_name;
use crate::engine::settings::Settings;
use crate::peers::locate::Places;

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
    pub complaint: Vec<String>,
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

by_name!(Case);

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

    /// The cases that are set, of the folder that is set, or else of `usual`. The setting `word`
    /// names the folder; `what` is the word for one of them.
    ///
    /// # Errors
    /// As [`Case::all`], and if a name is unknown.
    pub fn chosen(
        settings: &Settings,
        (word, what): (&str, &str),
        usual: &str,
    ) -> anyhow::Result<Vec<Case>> {
        let folder = settings.path(word).unwrap_or_else(|| usual.into());
        settings.chosen(("only", what), Case::all(&folder)?, |case| &case.name)
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
}

const FILE: &str = "case.toml";

/// A case's directories.
#[derive(Clone, Debug)]
pub struct Home {
    case: PathBuf,
    /// Where its packages are.
    pub env: PathBuf,
}

/// How the variables of allocators begin.
const ALLOCATORS: [&[u8]; 6] = [
    b"MALLOC_",
    b"GLIBC_TUNABLES",
    b"MIMALLOC_",
    b"TCMALLOC_",
    b"SNMALLOC_",
    b"NEAP_",
];

impl Home {
    /// The directories of a case. Its packages are below the target directory, beside the peers.
    ///
    /// # Errors
    /// If the working directory cannot be read.
    pub fn of(case: &Case, places: &Places) -> anyhow::Result<Home> {
        let env = places.peers.with_file_name("cases").join(&case.name);
        Ok(Home {
            case: case.folder.clone(),
            env: std::path::absolute(env)?,
        })
    }

    /// A word of a case with its directories. `{work}` stays where there is no run.
    pub fn filled(&self, word: &str, work: Option<&Work>) -> String {
        let word = word
            .replace("{case}", &self.case.to_string_lossy())
            .replace("{env}", &self.env.to_string_lossy());
        match work {
            Some(work) => word.replace("{work}", &work.path().to_string_lossy()),
            None => word,
        }
    }

    /// A line of a case for a shell that has the variables of [`Home::equip`]: no path is split.
    pub fn quoted(&self, line: &str) -> String {
        line.replace("{case}", "\"$CASE_DIR\"")
            .replace("{env}", "\"$CASE_ENV\"")
    }

    /// The command of `words`, which finds the case's packages first.
    ///
    /// # Errors
    /// If there are no words.
    pub fn command(&self, words: &[String], work: Option<&Work>) -> anyhow::Result<Command> {
        let mut words = words.iter().map(|word| self.filled(word, work));
        let mut command = Command::new(words.next().context("a command without a word")?);
        command.args(words);
        self.equip(&mut command);
        if let Some(work) = work {
            command
                .current_dir(work.path())
                .env("CASE_WORK", work.path());
        }
        Ok(command)
    }

    /// The command of a case's subject, with `variables` unless the case's own say otherwise.
    ///
    /// # Errors
    /// If it has no words.
    pub fn subject(
        &self,
        case: &Case,
        work: &Work,
        variables: &[(&str, &OsStr)],
    ) -> anyhow::Result<Command> {
        let mut command = self.command(&case.subject, Some(work))?;
        command.envs(variables.iter().copied());
        for (name, value) in &case.env {
            command.env(name, self.filled(value, Some(work)));
        }
        Ok(command)
    }

    /// The command of a case's driver, if it has one.
    ///
    /// # Errors
    /// None that is known.
    pub fn driver(&self, case: &Case, work: &Work) -> anyhow::Result<Option<Command>> {
        let has_one = !case.driver.is_empty();
        let command = has_one.then(|| self.command(&case.driver, Some(work)));
        command.transpose()
    }

    /// Adds the variables by which the registries' packages are found.
    pub fn equip(&self, command: &mut Command) {
        let gems = self.env.join("gems");
        let own = [
            self.env.join("bin"),
            gems.join("bin"),
            self.env.join("node_modules/.bin"),
        ];
        let old = std::env::var_os("PATH").unwrap_or_default();
        let folders = own.into_iter().chain(std::env::split_paths(&old));
        // Fails only for a folder with a colon, which PATH cannot hold anyway.
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        command
            .env("CASE_DIR", &self.case)
            .env("CASE_ENV", &self.env)
            .env("NODE_PATH", self.env.join("node_modules"))
            .env("GEM_HOME", &gems)
            .env("GEM_PATH", &gems)
            .env_remove("LD_PRELOAD");
        // An allocator has its defaults unless its row or the case says otherwise.
        for (name, _) in std::env::vars_os() {
            if ALLOCATORS
                .iter()
                .any(|start| name.as_encoded_bytes().starts_with(start))
            {
                command.env_remove(name);
            }
        }
    }
}

/// An empty directory of one run, removed with this value.
pub struct Work(TempDir);

impl Work {
    /// Makes one. Its path is short, because a socket's path must be.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> anyhow::Result<Work> {
        let made = tempfile::Builder::new().prefix("neap-case-").tempdir();
        made.map(Work).context("cannot make a folder of a run")
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves the directory for a look.
    pub fn keep(self) -> PathBuf {
        self.0.keep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::campaign::Named as _;

    const LEAST: &str = r#"
title = "A title"
complaint = ["https://example.org/1"]
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
        assert_eq!(case.complaint, ["https://example.org/1"]);
        assert!(case.check && case.driver.is_empty() && case.install == Install::default());
    }

    #[test]
    fn a_full_case_is_read() {
        let text = LEAST.replace("\"https://example.org/1\"", "\"a\", \"b\"")
            + r#"
driver = ["python3", "{case}/driver.py"]
seconds = 20
tuned = { MALLOC_CONF = "dirty_decay_ms:1000,narenas:2" }
[install]
apt = ["memcached"]
build = ["cc -o {env}/subject {case}/subject.c"]
"#;
        let case = parse(&text).unwrap();
        assert_eq!(case.complaint, ["a", "b"]);
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

    #[test]
    fn words_name_directories_and_a_run_has_one_of_its_own() {
        let home = Home {
            case: "/cases/a".into(),
            env: "/env/a".into(),
        };
        let work = Work::new().unwrap();
        let path = work.path().to_path_buf();
        let words = ["{env}/bin/x".to_string(), "{case}/s {work}/t".to_string()];
        let command = home.command(&words, Some(&work)).unwrap();
        assert_eq!(command.get_program(), "/env/a/bin/x");
        let told = format!("/cases/a/s {}/t", path.display());
        assert_eq!(command.get_args().next().unwrap(), told.as_str());
        let mut variables = command.get_envs();
        let found = variables.find(|(name, _)| *name == "PATH").unwrap().1;
        let first = found.unwrap().to_string_lossy().into_owned();
        assert!(first.starts_with("/env/a/bin:/env/a/gems/bin:"), "{first}");
        assert!(home.command(&[], None).is_err() && path.is_dir());
        drop(work);
        assert!(!path.exists());
    }
}
