//! Finds the process that the user means, and lists processes.

use super::memory_file::us;
use super::process::Process;
use super::status_page::{StatusPage, is_under_neap};
use crate::failure::{Failure, shown};
use std::ffi::OsStr;
use std::fs;

/// Most processes listed in a message.
const LISTED: usize = 8;

/// An existing process with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its PID.
    pub pid: i32,
    /// Its name.
    pub name: String,
}

impl Target {
    /// The process that `word` identifies by its PID or its name. For a name, only processes under
    /// Neap count, and of these only the current user's (all, for root).
    ///
    /// # Errors
    ///
    /// There is no such process, none under Neap, or more than one.
    pub fn find(word: &OsStr) -> Result<Target, Failure> {
        match word.to_str().and_then(|text| text.parse::<i32>().ok()) {
            Some(pid) if pid > 0 => Process::open(pid).map(|process| Target::of(&process)),
            Some(pid) => Err(failure!(
                "{pid} is not a process: give a number that ps shows, or a name"
            )),
            None => named(word),
        }
    }

    /// `redis-server (1234)`.
    pub fn title(&self) -> String {
        format!("{} ({})", shown(&self.name), self.pid)
    }

    /// This process.
    pub fn of(process: &Process) -> Target {
        Target {
            pid: process.pid(),
            name: process.name(),
        }
    }
}

/// A process under Neap, with its status page.
#[derive(Debug)]
pub struct Under {
    /// The process.
    pub target: Target,
    /// Its status page.
    pub status_page: StatusPage,
}

impl Under {
    /// The current user's processes under Neap, or all for root.
    ///
    /// # Errors
    ///
    /// There is no /proc.
    pub fn all() -> Result<Vec<Under>, Failure> {
        let open = |process: Process| Under::open(Target::of(&process)).ok();
        Ok(processes()?.into_iter().filter_map(open).collect())
    }

    /// Opens the status page of a process.
    ///
    /// # Errors
    ///
    /// It has none, or none that this user may read.
    pub fn open(target: Target) -> Result<Under, Failure> {
        let status_page = StatusPage::open(target.pid)?;
        Ok(Under {
            target,
            status_page,
        })
    }
}

/// Whether processes of this user are watched: the current user's, or all for root.
pub fn may_watch(user: u32) -> bool {
    let us = us();
    us == 0 || us == user
}

/// Completes "process" in messages: says whose processes were considered.
pub fn of_whom() -> &'static str {
    match us() {
        0 => "",
        _ => " of this user",
    }
}

fn named(word: &OsStr) -> Result<Target, Failure> {
    let called: Vec<Target> = processes()?
        .iter()
        .map(Target::of)
        .filter(|target| *target.name == *word && target.pid.unsigned_abs() != std::process::id())
        .collect();
    let under: Vec<&Target> = called
        .iter()
        .filter(|target| StatusPage::open(target.pid).is_ok())
        .collect();
    match (under.as_slice(), called.as_slice()) {
        ([target], _) => Ok((*target).clone()),
        ([], []) => Err(failure!(
            "there is no process {}{}; neap stat lists those under Neap",
            shown(word),
            of_whom()
        )),
        // The attempt to open it tells why it failed.
        ([], [target]) => Ok(target.clone()),
        ([], several) => without_page(word, several),
        (several, _) => Err(failure!(
            "{} processes under Neap are called {}: give one of their numbers: {}",
            several.len(),
            shown(word),
            numbers(several)
        )),
    }
}

/// The first of several without a readable status page that runs under Neap. The attempt to open it
/// tells why it failed.
fn without_page(word: &OsStr, several: &[Target]) -> Result<Target, Failure> {
    let runs = |target: &&Target| Process::open(target.pid).is_ok_and(|own| is_under_neap(&own));
    several.iter().find(runs).cloned().ok_or_else(|| {
        failure!(
            "none of the {} processes {} runs under Neap: start one with neap run",
            several.len(),
            shown(word)
        )
    })
}

fn numbers(targets: &[&Target]) -> String {
    let numbers = targets.iter().map(|target| target.pid.to_string());
    let mut text = numbers.take(LISTED).collect::<Vec<_>>().join(", ");
    if targets.len() > LISTED {
        text += ", ...";
    }
    text
}

/// The processes whose status pages this user may open, lowest PID first.
pub fn processes() -> Result<Vec<Process>, Failure> {
    let entries = fs::read_dir("/proc")
        .map_err(|error| failure!("cannot list processes: {error} (is /proc mounted?)"))?;
    let mut numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    if !numbers.contains(&std::process::id().cast_signed()) {
        return Err(failure!(
            "/proc does not show processes, not even this one: mount it (mount -t proc proc \
             /proc), \
             or leave the sandbox that hides it"
        ));
    }
    numbers.sort_unstable();
    let ours = |process: &Process| process.user().is_some_and(may_watch);
    let open = |pid: i32| Process::open(pid).ok().filter(ours);
    Ok(numbers.into_iter().filter_map(open).collect())
}
