//! One process: its board, asked and read through its memory, and the kernel's count of its arenas.

use bytemuck::{Pod, Zeroable};
use neap::board::{
    self, Arenas, CONTROL_AT, Control, FIGURES_AT, HEAD_AT, Head, SERVED_AT, Served,
};
use neap::ledger::Ledger;
use neap::stats::Snapshot;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long a process has to answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// How often the kernel is asked meanwhile.
const TICK: Duration = Duration::from_millis(2);

/// What became of a question.
pub enum Answer {
    /// It is no process under the library, or is none any more.
    Nobody,
    /// It did not answer in time.
    Late,
    /// The process's name, and what it said.
    Figures(String, Reading),
}

/// A ledger and what the kernel counted around it, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    ledger: Ledger,
    /// The least that the kernel counted.
    pub low: u64,
    /// The most.
    pub high: u64,
}

impl Reading {
    /// Whether the ledger's lines add up to its sum.
    pub fn adds_up(&self) -> bool {
        self.ledger.sum() == i128::from(self.ledger.resident)
    }

    /// Whether the kernel counted the same all the time.
    pub fn is_at_rest(&self) -> bool {
        self.low == self.high
    }

    /// By how many bytes the ledger lies beside what the kernel counted.
    pub fn difference(&self) -> u64 {
        let resident = self.ledger.resident;
        self.low.saturating_sub(resident) + resident.saturating_sub(self.high)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reading { ledger, low, high } = self;
        let (sum, resident) = (ledger.sum(), ledger.resident);
        write!(
            f,
            "the lines add up to {sum}, the ledger says {resident}, the kernel {low} to {high}: {ledger:?}"
        )
    }
}

/// Asks the process for its figures, and the kernel all the time.
pub fn ask(pid: u32) -> Answer {
    match try_to_ask(pid) {
        Ok(answer) => answer,
        // Gone, or about to be another program: whatever the kernel says of it then.
        Err(_) => Answer::Nobody,
    }
}

fn try_to_ask(pid: u32) -> io::Result<Answer> {
    let Some(board) = Board::open(pid)? else {
        return Ok(Answer::Nobody);
    };
    let first = resident(pid, &board.arenas()?)?;
    let (mut low, mut high) = (first, first);
    let number = board.ask()?;
    let begun = Instant::now();
    let mut served = false;
    while !served && begun.elapsed() < PATIENCE {
        thread::sleep(TICK);
        served = board.served()? == number;
        // After the answer once more.
        let now = resident(pid, &board.arenas()?)?;
        (low, high) = (low.min(now), high.max(now));
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    if !board.is_still_there()? {
        return Ok(Answer::Nobody);
    }
    Ok(match board.ledger()? {
        Some(ledger) if served => Answer::Figures(
            name.trim_end().replace([',', ' '], "_"),
            Reading { ledger, low, high },
        ),
        _ => Answer::Late,
    })
}

/// A board, reached through the memory of its process: a program may have closed its descriptor.
struct Board {
    pid: u32,
    at: u64,
    memory: File,
    made_ms: u64,
}

impl Board {
    /// The board of the process, if it has one of its own.
    fn open(pid: u32) -> io::Result<Option<Board>> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let name = format!("/memfd:{} (deleted)", board::NAME.to_string_lossy());
        let Some(line) = maps.lines().find(|line| line.ends_with(&name)) else {
            return Ok(None);
        };
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let mut board = Board {
            pid,
            at: range_of(line)?.start,
            memory,
            made_ms: 0,
        };
        let head: Head = board.read(HEAD_AT)?;
        board.made_ms = head.made_ms;
        let is_its_own = head.magic == board::MAGIC
            && head.version == board::VERSION
            && head.pid == u64::from(pid);
        Ok(is_its_own.then_some(board))
    }

    /// Whether the process still is what it was: not another program, not about to end.
    fn is_still_there(&self) -> io::Result<bool> {
        let now = Board::open(self.pid)?;
        Ok(now.is_some_and(|now| (now.at, now.made_ms) == (self.at, self.made_ms)))
    }

    fn read<T: Pod + Zeroable>(&self, offset: usize) -> io::Result<T> {
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        self.memory.read_exact_at(bytes, self.at + offset as u64)?;
        Ok(value)
    }

    /// Asks for the figures; gives the number of the question.
    fn ask(&self) -> io::Result<u64> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let number = since.map_err(io::Error::other)?.as_nanos() as u64;
        let at = self.at + (CONTROL_AT + offset_of!(Control, ask)) as u64;
        self.memory.write_all_at(&number.to_ne_bytes(), at)?;
        Ok(number)
    }

    fn served(&self) -> io::Result<u64> {
        self.read(SERVED_AT + offset_of!(Served, ask))
    }

    fn arenas(&self) -> io::Result<Vec<Range<u64>>> {
        let arenas: Arenas = self.read(board::ARENAS_AT)?;
        let ranges = arenas.ranges.iter().take(arenas.count as usize);
        Ok(ranges.map(|[start, bytes]| *start..start + bytes).collect())
    }

    /// The ledger that was written last; `None` while another is being written.
    fn ledger(&self) -> io::Result<Option<Ledger>> {
        for _ in 0..100 {
            let before: u64 = self.read(FIGURES_AT)?;
            let ledger = self.read(FIGURES_AT + 8 + offset_of!(Snapshot, ledger))?;
            let after: u64 = self.read(FIGURES_AT)?;
            if before == after && before.is_multiple_of(2) {
                return Ok(Some(ledger));
            }
            thread::sleep(TICK);
        }
        Ok(None)
    }
}

/// What the kernel counts as resident in the mappings that lie in `arenas`.
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

/// The addresses that a line of maps begins with.
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

    fn reading(resident: u64, low: u64, high: u64) -> Reading {
        let ledger = Ledger {
            requested: resident,
            resident,
            ..Ledger::default()
        };
        Reading { ledger, low, high }
    }

    #[test]
    fn a_difference_is_what_lies_outside() {
        assert_eq!(reading(50, 40, 60).difference(), 0);
        assert_eq!(reading(30, 40, 60).difference(), 10);
        assert_eq!(reading(75, 40, 60).difference(), 15);
        assert!(reading(1, 0, 9).adds_up() && reading(1, 2, 2).is_at_rest());
        let wrong = Ledger {
            tails: 1,
            ..Ledger::default()
        };
        assert!(
            !Reading {
                ledger: wrong,
                low: 0,
                high: 0
            }
            .adds_up()
        );
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
