//! One process: its status page, which the tests read and write through the process's memory, and
//! the kernel's count of its arenas.

use bytemuck::{Pod, Zeroable};
use neap_shared::ledger::Ledger;
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{
    self, Arenas, CONTROL_AT, Control, FIGURES_AT, HEAD_AT, Head, LEASE_MS, SERVED_AT, Served,
};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long a process has to answer. To limit the cost, a process whose survey takes 5 ms makes one
/// per second.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The shortest interval between two counts of the kernel; and the least pause as a multiple of a
/// count's duration.
const TICK: (Duration, u32) = (Duration::from_millis(2), 3);
/// How often a watched process writes its figures, in ms.
const INTERVAL_MS: u64 = status_page::LEAST_INTERVAL_MS;

/// The result of a request.
pub enum Answer {
    /// No such process runs under the library, or it has ended.
    Absent,
    /// It did not answer in time.
    Late,
    /// The process's name and its figures.
    Figures(String, Reading),
}

/// A ledger and the kernel's counts around it, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    ledger: Ledger,
    /// The least that the kernel counted.
    pub low: u64,
    /// The most.
    pub high: u64,
    /// Distance from the ledger to the nearest count.
    pub nearest: u64,
}

impl Reading {
    /// For a ledger written after `since`: uses the counts from the last one before that on.
    fn new(ledger: Ledger, counts: &[Count], since: Instant) -> Reading {
        let before = counts.iter().rposition(|count| count.ended <= since);
        let bytes = counts[before.unwrap_or(0)..]
            .iter()
            .map(|count| count.bytes);
        let distances = bytes.clone().map(|bytes| bytes.abs_diff(ledger.resident));
        Reading {
            ledger,
            low: bytes.clone().min().unwrap_or(0),
            high: bytes.max().unwrap_or(0),
            nearest: distances.min().unwrap_or(0),
        }
    }

    /// Whether the ledger's lines add up to its sum.
    pub fn adds_up(&self) -> bool {
        self.ledger.sum() == i128::from(self.ledger.resident)
    }

    /// Whether all of the kernel's counts were equal.
    pub fn is_at_rest(&self) -> bool {
        self.low == self.high
    }

    /// By how many bytes the ledger lies outside the kernel's counts.
    pub fn difference(&self) -> u64 {
        let resident = self.ledger.resident;
        self.low.saturating_sub(resident) + resident.saturating_sub(self.high)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reading {
            ledger, low, high, ..
        } = self;
        let (sum, resident) = (ledger.sum(), ledger.resident);
        write!(
            f,
            "the lines add up to {sum}, the ledger says {resident}, the kernel {low} to {high}: {ledger:?}"
        )
    }
}

/// Asks the process for its figures, and the kernel for counts meanwhile.
pub fn ask(pid: u32) -> Answer {
    match try_to_ask(pid) {
        Ok(answer) => answer,
        // It has ended, or is about to become another program.
        Err(_) => Answer::Absent,
    }
}

fn try_to_ask(pid: u32) -> io::Result<Answer> {
    let Some(status_page) = StatusPage::open(pid)? else {
        return Ok(Answer::Absent);
    };
    let mut counts = vec![Count::now(&status_page)?];
    let number = status_page.ask()?;
    let begun = Instant::now();
    let mut unserved = begun;
    let mut served = false;
    while !served && begun.elapsed() < PATIENCE {
        thread::sleep(TICK.0.max(TICK.1 * counts[counts.len() - 1].took()));
        let looked = Instant::now();
        served = status_page.served()? == number;
        if !served {
            unserved = looked;
        }
        // One more after the answer.
        counts.push(Count::now(&status_page)?);
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    if !status_page.is_still_there()? {
        return Ok(Answer::Absent);
    }
    Ok(match status_page.figures()? {
        Some((ledger, cost)) if served => {
            let name = name.trim_end().replace([',', ' '], "_");
            Answer::Figures(name, Reading::new(ledger, &counts, unserved - cost))
        }
        _ => Answer::Late,
    })
}

/// The kernel's count of a process's arenas in bytes, with its time.
struct Count {
    begun: Instant,
    ended: Instant,
    bytes: u64,
}

impl Count {
    fn now(status_page: &StatusPage) -> io::Result<Count> {
        let begun = Instant::now();
        let bytes = resident(status_page.pid, &status_page.arenas()?)?;
        Ok(Count {
            begun,
            ended: Instant::now(),
            bytes,
        })
    }

    fn took(&self) -> Duration {
        self.ended - self.begun
    }
}

/// A status page, read through the memory of its process, because a program may have closed its
/// descriptor.
struct StatusPage {
    pid: u32,
    at: u64,
    memory: File,
    made_ms: u64,
}

impl StatusPage {
    /// The status page of the process, if it has one of its own.
    fn open(pid: u32) -> io::Result<Option<StatusPage>> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let name = format!("/memfd:{} (deleted)", status_page::NAME.to_string_lossy());
        let Some(line) = maps.lines().find(|line| line.ends_with(&name)) else {
            return Ok(None);
        };
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let mut status_page = StatusPage {
            pid,
            at: range_of(line)?.start,
            memory,
            made_ms: 0,
        };
        let head: Head = status_page.read(HEAD_AT)?;
        status_page.made_ms = head.made_ms;
        let is_its_own = head.magic == status_page::MAGIC
            && head.version == status_page::VERSION
            && head.pid == u64::from(pid);
        Ok(is_its_own.then_some(status_page))
    }

    /// Whether the process is still the same program and not about to end.
    fn is_still_there(&self) -> io::Result<bool> {
        let now = StatusPage::open(self.pid)?;
        Ok(now.is_some_and(|now| (now.at, now.made_ms) == (self.at, self.made_ms)))
    }

    fn read<T: Pod + Zeroable>(&self, offset: usize) -> io::Result<T> {
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        self.memory.read_exact_at(bytes, self.at + offset as u64)?;
        Ok(value)
    }

    /// Requests figures once and then at intervals; returns the number of the request.
    fn ask(&self) -> io::Result<u64> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let number = since.map_err(io::Error::other)?.as_nanos() as u64;
        self.write(offset_of!(Control, interval_ms), INTERVAL_MS)?;
        self.write(offset_of!(Control, lease_until_ms), uptime_ms()? + LEASE_MS)?;
        self.write(offset_of!(Control, ask), number)?;
        Ok(number)
    }

    /// Writes a word of [`Control`].
    fn write(&self, offset: usize, word: u64) -> io::Result<()> {
        let at = self.at + (CONTROL_AT + offset) as u64;
        self.memory.write_all_at(&word.to_ne_bytes(), at)
    }

    fn served(&self) -> io::Result<u64> {
        self.read(SERVED_AT + offset_of!(Served, ask))
    }

    fn arenas(&self) -> io::Result<Vec<Range<u64>>> {
        let arenas: Arenas = self.read(status_page::ARENAS_AT)?;
        let ranges = arenas.ranges.iter().take(arenas.count as usize);
        Ok(ranges.map(|[start, bytes]| *start..start + bytes).collect())
    }

    /// The last ledger and what it cost; `None` while another is being written.
    fn figures(&self) -> io::Result<Option<(Ledger, Duration)>> {
        for _ in 0..100 {
            let before: u64 = self.read(FIGURES_AT)?;
            let ledger = self.read(FIGURES_AT + 8 + offset_of!(Snapshot, ledger))?;
            let cost_ns = self.read(FIGURES_AT + 8 + offset_of!(Snapshot, cost_ns))?;
            let after: u64 = self.read(FIGURES_AT)?;
            if before == after && before.is_multiple_of(2) {
                return Ok(Some((ledger, Duration::from_nanos(cost_ns))));
            }
            thread::sleep(TICK.0);
        }
        Ok(None)
    }
}

/// `CLOCK_MONOTONIC`, in ms.
fn uptime_ms() -> io::Result<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure only.
    match unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } {
        0 => Ok(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's resident count for the mappings that lie in `arenas`.
fn resident(pid: u32, arenas: &[Range<u64>]) -> io::Result<u64> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let mut is_ours = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        if let Ok(range) = range_of(line) {
            is_ours = arenas.iter().any(|arena| arena.contains(&range.start));
        } else if let Some(kib) = line.strip_prefix("Rss:").filter(|_| is_ours) {
            let kib = kib.trim().trim_end_matches(" kB").parse::<u64>();
            bytes += kib.map_err(io::Error::other)? << 10;
        }
    }
    Ok(bytes)
}

/// The addresses at the beginning of a line of maps.
fn range_of(line: &str) -> io::Result<Range<u64>> {
    let range = || {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(number(start)?..number(end)?)
    };
    range().ok_or(ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From counts a millisecond apart, with a ledger written after the second.
    fn reading(resident: u64, counts: &[u64]) -> Reading {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let counts: Vec<Count> = (0..)
            .zip(counts)
            .map(|(ms, &bytes)| Count {
                begun: at(ms),
                ended: at(ms),
                bytes,
            })
            .collect();
        let ledger = Ledger {
            requested: resident,
            resident,
            ..Ledger::default()
        };
        Reading::new(ledger, &counts, at(1))
    }

    #[test]
    fn a_difference_is_what_lies_outside_of_the_counts_around_it() {
        assert_eq!(reading(50, &[0, 40, 60]).difference(), 0);
        assert_eq!(reading(30, &[0, 40, 60]).difference(), 10);
        assert_eq!(reading(75, &[90, 60, 40]).difference(), 15);
        assert_eq!(reading(57, &[0, 40, 60]).nearest, 3);
        assert!(reading(1, &[0, 9]).adds_up() && reading(1, &[8, 2, 2]).is_at_rest());
    }

    #[test]
    fn a_sum_that_is_none_is_seen() {
        let mut wrong = reading(7, &[7, 7]);
        wrong.ledger.tails = 1;
        assert!(!wrong.adds_up());
    }

    #[test]
    fn own_mappings_are_counted() {
        let pages = vec![1_u8; 8 << 20];
        let start = pages.as_ptr().addr() as u64;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut ranges = maps.lines().filter_map(|line| range_of(line).ok());
        let mapping = ranges.find(|range| range.contains(&start)).unwrap();
        let counted = resident(std::process::id(), &[mapping]).unwrap();
        assert!(counted >= 8 << 20, "{counted}");
        assert_eq!(resident(std::process::id(), &[]).unwrap(), 0);
    }
}
