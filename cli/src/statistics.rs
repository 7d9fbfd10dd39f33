//! Where the processes of a run leave their statistics for `neap` to print.
//!
//! The library appends one page (text) or one line (JSON) with a single `write` to the file named
//! by `NEAP_STATS_FILE`, so pages of processes that end together stay whole.

use crate::failure::{Failure, shown};
use crate::files::reason;
use bytesize::ByteSize;
use rustix::rand::{GetRandomFlags, getrandom};
use std::cmp::Reverse;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// A private file, removed with its directory when dropped.
///
/// Processes that have changed their user can still append to it: every user may search the
/// directory and write the file, but only this run knows the file's name.
pub struct Inbox {
    _room: TempDir,
    file: PathBuf,
}

impl Inbox {
    /// Makes the file.
    pub fn new() -> Result<Self, Failure> {
        Self::of("statistics", "--stats=FILE")
    }

    /// Makes the file, for the named contents. The option names another file.
    pub fn of(contents: &str, option: &str) -> Result<Self, Failure> {
        Self::create().map_err(|error| {
            let (room, error) = (env::temp_dir(), reason(&error));
            let room = shown(&room);
            failure!("cannot keep {contents} in {room}: {error}; set TMPDIR or use {option}")
        })
    }

    fn create() -> io::Result<Self> {
        let mut room = Builder::new();
        let room = room
            .prefix("neap-stats-")
            .permissions(Permissions::from_mode(0o711));
        let room = room.tempdir()?;
        let file = room.path().join(format!("{:016x}", secret()?));
        File::create_new(&file)?.set_permissions(Permissions::from_mode(0o622))?;
        Ok(Self { _room: room, file })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// What has arrived.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        fs::read(&self.file)
    }

    /// Writes the statistics that have arrived to standard error, shortened if they are of many
    /// processes. `program` is the PID of the program itself. Returns how many bytes have arrived.
    pub fn print(&self, program: u32) -> io::Result<usize> {
        let arrived = self.read()?;
        let text = shortened(&String::from_utf8_lossy(&arrived), program);
        io::stderr().write_all(text.as_bytes())?;
        Ok(arrived.len())
    }
}

/// Most pages in full.
const FULL: usize = 3;
/// Most processes with a line of their own.
const LISTED: usize = 20;

/// The page of a process, as text.
struct Page<'a> {
    name: &'a str,
    pid: u32,
    /// The most bytes that were resident.
    peak: &'a str,
    text: &'a str,
}

impl<'a> Page<'a> {
    /// A part of the text that begins like a page.
    fn of(text: &'a str) -> Option<Self> {
        let (name, pid) = head(text)?;
        let mut lines = text.lines();
        let peak = lines.find_map(|line| line.strip_prefix("  peak_resident "));
        Some(Self {
            name,
            pid,
            peak: peak.unwrap_or_default().trim_start(),
            text,
        })
    }

    /// The peak in bytes.
    fn size(&self) -> u64 {
        let peak = self.bytes().parse::<ByteSize>();
        peak.map_or(0, |peak| peak.as_u64())
    }

    /// The peak without what it means.
    fn bytes(&self) -> &str {
        self.peak.split("  ").next().unwrap_or_default()
    }
}

/// The program and the PID of a page's first line.
fn head(line: &str) -> Option<(&str, u32)> {
    let line = line.lines().next()?.strip_prefix("neap: ")?;
    let (start, _) = line.split_once(") at its end")?;
    let (name, pid) = start.rsplit_once(" (process ")?;
    Some((name, pid.parse().ok()?))
}

/// Where the pages begin.
fn starts(text: &str) -> Vec<usize> {
    let lines = text.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some((*at - line.len(), line))
    });
    let heads = lines.filter(|(_, line)| head(line).is_some());
    heads.map(|(at, _)| at).collect()
}

/// Of more than [`FULL`] pages, those that are [`important`], after a line for each of the
/// others. What is no page stays as it is.
fn shortened(text: &str, program: u32) -> String {
    let starts = starts(text);
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts = starts.iter().zip(ends).map(|(&from, to)| &text[from..to]);
    let pages: Vec<Page> = parts.filter_map(Page::of).collect();
    if pages.len() <= FULL {
        return text.to_owned();
    }
    let full = important(&pages, program);
    let (full, mut others): (Vec<_>, Vec<_>) = (0..pages.len()).partition(|at| full.contains(at));
    others.sort_by_key(|&at| Reverse(pages[at].size()));
    let mut out = text[..starts[0]].to_owned();
    out += &format!(
        "neap: {} pages of statistics, {} below (--stats=FILE has all). The others in short:\n",
        pages.len(),
        full.len()
    );
    out += &list(&others.iter().map(|&at| &pages[at]).collect::<Vec<_>>());
    full.iter().for_each(|&at| out += pages[at].text);
    out
}

/// Which pages are in full: the program's own, and, up to [`FULL`], those of processes at least
/// half as large as the largest.
fn important(pages: &[Page], program: u32) -> Vec<usize> {
    let largest = pages.iter().map(Page::size).max().unwrap_or(0);
    let is_own = |at: usize| pages[at].pid == program;
    let is_large = |at: usize| pages[at].size() >= largest / 2;
    let mut order: Vec<usize> = (0..pages.len())
        .filter(|&at| is_own(at) || is_large(at))
        .collect();
    order.sort_by_key(|&at| (!is_own(at), Reverse(pages[at].size())));
    order.truncate(FULL);
    order
}

/// A line for each of the processes, which come largest first.
fn list(pages: &[&Page]) -> String {
    let mut out = format!("{:>11} {:>14}  program\n", "PID", "peak resident");
    for page in pages.iter().take(LISTED) {
        let (pid, peak, name) = (page.pid, page.bytes(), shown(page.name));
        out += &format!("{pid:>11} {peak:>14}  {name}\n");
    }
    if let Some(next) = pages.get(LISTED) {
        let more = pages.len() - LISTED;
        out += &format!("{more:>11} more, of at most {}\n", next.bytes());
    }
    out + "\n"
}

/// A random number that other users cannot guess.
pub fn secret() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // The kernel never gives a part of so few bytes.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, pid: u32, peak: &str) -> String {
        format!(
            "neap: {name} (process {pid}) at its end\n  live  1 B  usable\n  peak_resident  {peak}  \
             the whole process, the most so far\n\n"
        )
    }

    #[test]
    fn few_pages_stay_as_they_are() {
        let three = [
            page("a", 1, "3.2 MiB"),
            page("b", 2, "0 B"),
            page("c", 3, "7 B"),
        ];
        for text in [&three.concat(), "", "page of 7\n", "{\"pid\":1}\n"] {
            assert_eq!(shortened(text, 1), text);
        }
    }

    #[test]
    fn of_many_the_program_and_the_large_are_in_full() {
        let own = page("sh", 9, "1.0 KiB");
        let (small, tiny) = (page("ls", 2, "3.5 MiB"), page("id", 3, "9 B"));
        let (big, huge) = (page("(a) b", 4, "0.6 GiB"), page("c", 5, "1.0 GiB"));
        let text = ["stray\n", &small, &big, &tiny, &huge, &own].concat();
        let start = "stray\nneap: 5 pages of statistics, 3 below (--stats=FILE has all). The others \
                     in short:\n";
        let rest = "        PID  peak resident  program\n          2        3.5 MiB  ls\n          3 \
                    \u{20}          9 B  id\n\n";
        let shown = [start, rest, &big, &huge, &own].concat();
        assert_eq!(shortened(&text, 9), shown);
        let text = shortened(&text, 77);
        assert!(text.contains(" 2 below ("), "{text}");
        assert!(text.ends_with(&[big, huge].concat()), "{text}");
    }

    #[test]
    fn the_list_has_an_end() {
        let text: String = (1..=33).map(|pid| page("sh", pid, "2.0 MiB")).collect();
        let text = shortened(&text, 1);
        assert!(
            text.contains("\n         10 more, of at most 2.0 MiB\n\nneap: sh ("),
            "{text}"
        );
        assert_eq!(text.matches("at its end").count(), FULL);
    }
}
