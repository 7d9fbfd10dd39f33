//! The witness's report: the processes that a command started, and how each ended.
//!
//! It has one tab-separated line per process, written at its end while its maps still exist: the
//! library's presence, how the process ended, and which file it ran.

use crate::outcome::Outcome;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// The library's presence in a process at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The library is mapped.
    Carried,
    /// The program was loaded by the dynamic loader, and the library is not mapped.
    Absent,
    /// The program is static: no preload can reach it.
    Static,
}

impl Presence {
    /// Determines it from the text of a process's maps.
    pub fn from_maps(maps: &str, library: &str) -> Self {
        let mut files = maps.lines().filter_map(|line| line.split_once('/'));
        if maps.lines().any(|line| line.ends_with(library)) {
            Self::Carried
        } else if files.any(|(_, file)| file.contains("/ld-linux") || file.contains("/ld-musl")) {
            Self::Absent
        } else {
            Self::Static
        }
    }

    /// Its word in the report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Carried => "carried",
            Self::Absent => "absent",
            Self::Static => "static",
        }
    }
}

impl FromStr for Presence {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Carried, Self::Absent, Self::Static];
        let found = all.into_iter().find(|presence| presence.word() == word);
        found.ok_or_else(|| format!("{word:?} is no presence"))
    }
}

/// One process at its end.
#[derive(Clone, Debug)]
pub struct Process {
    /// The library's presence.
    pub presence: Presence,
    /// Its status as `wait` returns it.
    pub status: i32,
    /// The file it ran.
    pub file: String,
}

/// Signals that indicate a crash.
const CRASHES: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

impl Process {
    /// Whether it crashed.
    pub fn crashed(&self) -> bool {
        libc::WIFSIGNALED(self.status) && CRASHES.contains(&libc::WTERMSIG(self.status))
    }

    /// The name of the file it ran, without directories.
    pub fn name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or_default()
    }

    /// The process as a line of the report.
    pub fn to_line(&self) -> String {
        format!("{}\t{}\t{}\n", self.presence.word(), self.status, self.file)
    }

    fn from_line(line: &str) -> Outcome<Self> {
        let mut fields = line.splitn(3, '\t');
        let mut field = || {
            fields
                .next()
                .ok_or(format!("a broken report line: {line:?}"))
        };
        Ok(Self {
            presence: field()?.parse()?,
            status: field()?.parse()?,
            file: field()?.to_owned(),
        })
    }
}

/// Reads a report.
///
/// # Errors
/// If the file is missing, malformed or empty: the witness then followed no process.
pub fn read(report: &Path) -> Outcome<Vec<Process>> {
    let text = fs::read_to_string(report)?;
    let processes: Vec<_> = text
        .lines()
        .map(Process::from_line)
        .collect::<Outcome<_>>()?;
    if processes.is_empty() {
        return Err("the witness saw no process end".into());
    }
    Ok(processes)
}

/// Fails if a process crashed, or if the library's presence in a process differs from `expected`;
/// static programs are exempt.
///
/// # Errors
/// The unexpected processes, one per line.
pub fn judge(processes: &[Process], expected: Presence) -> Outcome<()> {
    let out_of_place =
        |p: &&Process| p.crashed() || (p.presence != Presence::Static && p.presence != expected);
    let complaints: String = processes
        .iter()
        .filter(out_of_place)
        .map(Process::to_line)
        .collect();
    match complaints.as_str() {
        "" => Ok(()),
        _ => Err(format!("expected {} and no crash:\n{complaints}", expected.word()).into()),
    }
}
