//! The reports of guarded allocations, with the names of functions.

use crate::failure::Failure;
use crate::files;
use crate::launch::set_variables;
use crate::profile::{Frame, Origin, Symbols, clean, described, now_ms, without_plumbing};
use crate::statistics::Inbox;
use clap::ArgMatches;
use indexmap::IndexMap;
use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Names the file to the program.
const FILE: &str = "NEAP_GUARD_FILE";
/// What a report begins with.
const START: &str = "neap: ";
/// Most reports of a process. The library writes no more.
const MOST: usize = 16;
/// The line before the mappings begins with this.
const MAPPED: &str = "  mapped";

/// Where the processes of a run leave their reports.
pub struct Reports {
    inbox: Inbox,
    began_ms: u64,
}

impl Reports {
    /// If allocations are guarded, and no file was named for the reports.
    ///
    /// # Errors
    ///
    /// There is no place for the reports, or they cannot be appended to the named file.
    pub fn wanted(matches: &ArgMatches) -> Result<Option<Self>, Failure> {
        let is_guarded = matches.contains_id("guard");
        if let Some(file) = env::var_os(FILE).filter(|file| !file.is_empty()) {
            if is_guarded || matches.contains_id("guard-file") {
                let file = files::appendable(Path::new(&file))?;
                set_variables([(FILE, file.into_os_string())]);
            }
            return Ok(None);
        }
        if !is_guarded {
            return Ok(None);
        }
        let inbox = Inbox::of("reports", "--guard-file FILE")?;
        set_variables([(FILE, inbox.path().as_os_str().to_owned())]);
        let began_ms = now_ms();
        Ok(Some(Self { inbox, began_ms }))
    }

    /// Prints those that have arrived to standard error.
    pub fn print(&self) {
        match self.inbox.read() {
            Ok(reports) => {
                let text = symbolized(&String::from_utf8_lossy(&reports), self.began_ms);
                // If standard error takes no text, the exit status is still the program's.
                _ = io::stderr().write_all(text.as_bytes());
            }
            Err(error) => say!("the reports of guarded allocations cannot be read: {error}"),
        }
    }
}

/// Whether a file that begins with these bytes may be one of reports.
pub fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(START.as_bytes())
}

/// The processes with reports in a file, each with its count.
pub fn processes(text: &str) -> Vec<(u32, u64)> {
    let mut found: IndexMap<u32, u64> = IndexMap::new();
    for pid in each(text).iter().filter_map(|report| of(report)) {
        *found.entry(pid).or_default() += 1;
    }
    found.into_iter().collect()
}

/// The last `most` reports of a process in a file that may have those of others, with the names of
/// functions.
pub fn of_process(text: &str, pid: u32, most: u64, began_ms: u64) -> String {
    let mut found = each(text);
    found.retain(|report| of(report) == Some(pid));
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(MOST);
    let last = &found[found.len().saturating_sub(most)..];
    last.iter().map(|report| one(report, began_ms)).collect()
}

/// The reports of a file, as lines. Lines before the first are one more, which has no process.
fn each(text: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        match found.last_mut() {
            _ if line.starts_with(START) => found.push(vec![line]),
            Some(report) => report.push(line),
            None => found.push(vec![line]),
        }
    }
    found
}

/// The process of a report.
fn of(report: &[&str]) -> Option<u32> {
    report.iter().find_map(|line| process(line))
}

/// Reports with the names of functions instead of addresses, and without mappings.
fn symbolized(reports: &str, began_ms: u64) -> String {
    let reports = each(reports).into_iter();
    reports.map(|report| one(&report, began_ms)).collect()
}

fn one(report: &[&str], began_ms: u64) -> String {
    let mut text = String::new();
    let end = report.iter().position(|line| line.starts_with(MAPPED));
    let (report, maps) = report.split_at(end.unwrap_or(report.len()));
    let maps: Vec<&str> = maps.iter().skip(1).map(|line| line.trim_start()).collect();
    let pid = of(report).unwrap_or(0);
    let mut symbols = Symbols::new(&maps.join("\n"), &[], Origin { pid, began_ms });
    let mut innermost = Innermost::Call;
    let is_frame = |line: &str| address(line).is_some();
    for lines in report.chunk_by(|line, next| is_frame(line) == is_frame(next)) {
        let addresses: Vec<u64> = lines.iter().filter_map(|line| address(line)).collect();
        if !addresses.is_empty() {
            let frames = innermost.frames(addresses, &mut symbols);
            for (number, frame) in frames.iter().enumerate() {
                text += &format!("    #{number} {}\n", described(frame));
            }
            continue;
        }
        for line in lines {
            innermost = Innermost::of(line);
            text += &(clean(line) + "\n");
        }
    }
    text
}

/// The innermost frame of a stack trace.
#[derive(Clone, Copy)]
enum Innermost {
    /// The instruction that made the access. The others are calls, and their addresses those of
    /// the next instruction.
    Instruction,
    /// A call of the allocator, in the allocator.
    Call,
}

impl Innermost {
    /// By the line before the stack trace.
    fn of(line: &str) -> Self {
        if line.starts_with("  the access by") {
            Self::Instruction
        } else {
            Self::Call
        }
    }

    /// The frames at `addresses`. Those of a call begin with the program's code, if it is there.
    fn frames(self, mut addresses: Vec<u64>, symbols: &mut Symbols) -> Vec<Arc<Frame>> {
        if let (Self::Instruction, Some(first)) = (self, addresses.first_mut()) {
            *first = first.saturating_add(1);
        }
        let all = addresses
            .into_iter()
            .flat_map(|address| symbols.frames(address));
        let all: Vec<_> = all.collect();
        match self {
            Self::Instruction => all,
            Self::Call => match without_plumbing(all.clone()) {
                left if left.is_empty() => all,
                left => left,
            },
        }
    }
}

/// The process that a line names.
fn process(line: &str) -> Option<u32> {
    let (_, word) = line.strip_suffix(':')?.rsplit_once(" of process ")?;
    word.parse().ok()
}

/// The address of a frame's line, `    #0 0x1234 FILE+0x12`.
fn address(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("    #")?.split_once(" 0x")?;
    let word = rest.split(' ').next()?;
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_names_and_mappings_go() {
        #[inline(never)]
        fn somewhere() -> usize {
            core::hint::black_box(somewhere as *const () as usize)
        }
        let (pid, pc) = (std::process::id(), somewhere());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = maps.lines().find(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(from)..number(to)).contains(&pc)
        });
        let reports = format!(
            "neap: read of 0x10, byte 0 of a block of 1 bytes\n  the access by thread 1 of process \
             {pid}:\n    #0 {pc:#x} x+0x1\n    #1 0x10\n  mapped:\n    {}\nneap: double free\n",
            own.unwrap()
        );
        let text = symbolized(&reports, now_ms());
        let lines: Vec<&str> = text.lines().collect();
        // A function may have inlined others, whose frames come first.
        let is_named = |line: &&str| line.starts_with("    #") && line.contains(" somewhere (");
        assert!(lines.iter().any(is_named), "{text}");
        let unnamed = format!("    #{} 0x10", lines.len() - 4);
        assert_eq!(
            lines[lines.len() - 2..],
            [unnamed.as_str(), "neap: double free"]
        );
    }

    #[test]
    fn a_process_has_its_own_and_last_reports() {
        let report = |what: &str, pid: u32| {
            format!("neap: {what}\n  the wrong call by thread 1 of process {pid}:\n    #0 0x10\n")
        };
        let text = [
            "stray\n".to_owned(),
            report("a", 7),
            report("b", 8),
            report("c", 7),
        ]
        .concat();
        assert_eq!(of_process(&text, 7, 1, 0), report("c", 7));
        assert_eq!(
            of_process(&text, 7, u64::MAX, 0),
            report("a", 7) + &report("c", 7)
        );
        assert_eq!(of_process(&text, 9, 1, 0), "");
        assert_eq!(processes(&text), [(7, 2), (8, 1)]);
    }

    #[test]
    fn garbage_is_printed_without_control_characters() {
        let text = symbolized("x\u{1b}\n    #y 0xzz\n  mapped:\n    \u{0}\nneap: \n", 0);
        assert_eq!(text, "x\u{fffd}\n    #y 0xzz\nneap: \n");
    }
}
