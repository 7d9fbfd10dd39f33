//! Where a case's files are, and its programs' variables.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;

use super::case::Case;
use crate::peers::Places;

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
            Some(work) => word.replace("{work}", &work.0.to_string_lossy()),
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
            command.current_dir(&work.0).env("CASE_WORK", &work.0);
        }
        Ok(command)
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
pub struct Work(PathBuf);

impl Work {
    /// Makes one. Its path is short, because a socket's path must be.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> anyhow::Result<Work> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let me = std::process::id();
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("neap-case-{me}-{count}"));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Work(folder)),
                // Left by an earlier process of the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {folder:?}"));
                }
            }
        }
    }

    /// Leaves the directory for a look.
    pub fn keep(self) -> PathBuf {
        std::mem::ManuallyDrop::new(self).0.clone()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_directories_and_a_run_has_one_of_its_own() {
        let home = Home {
            case: "/cases/a".into(),
            env: "/env/a".into(),
        };
        let work = Work::new().unwrap();
        let path = work.0.clone();
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
