//! The tour of virtual memory: its steps, the lesson of each, and its line of output.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use crate::machine;

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    Malloc,
    FreeUntouched,
    Calloc,
    Read,
    Write,
    Free,
    Idle,
    MapFile,
    WriteFile,
    ReadFile,
    UnmapFile,
}

impl Step {
    /// What the step does; `{block}` and `{file}` stand for sizes.
    fn title(self) -> &'static str {
        match self {
            Step::Malloc => "malloc {block}",
            Step::FreeUntouched => "free it, untouched",
            Step::Calloc => "calloc {block}",
            Step::Read => "read one byte of every page",
            Step::Write => "write one byte of every page",
            Step::Free => "free it",
            Step::Idle => "do nothing for 2 s",
            Step::MapFile => "map a file of {file}",
            Step::WriteFile => "write a byte a page of it",
            Step::ReadFile => "read(2) the file",
            Step::UnmapFile => "unmap it",
        }
    }

    /// The step's lesson, whatever the figures.
    fn lesson(self) -> &'static str {
        match self {
            Step::Malloc => {
                "A malloc of this size is a promise of addresses: no page is there until it is \
                    touched."
            }
            Step::FreeUntouched => {
                "Pages that never were cannot be given back: a free costs what was used, not what \
                    was asked for."
            }
            Step::Calloc => {
                "Pages fresh from the kernel are zero already: an allocator that knows, or asks, \
                    writes nothing here."
            }
            Step::Read => {
                "A page that was never written reads as the kernel's one zero page: faults and \
                    page tables, no memory."
            }
            Step::Write => {
                "The first write to a page is when memory is really taken, one fault a page (or a \
                    huge page)."
            }
            Step::Free => {
                "What stays resident now is kept by the allocator for the next caller; what fell \
                    went to the kernel."
            }
            Step::Idle => {
                "What fell here came back without a call from the program; what did not is still \
                    the process's."
            }
            Step::MapFile => "A mapped file takes only addresses at first: nothing is read yet.",
            Step::WriteFile => {
                "Its pages belong to the page cache: they count as file (or shared) pages, not as \
                    the process's own."
            }
            Step::ReadFile => {
                "read(2) sees what was written through the mapping, with no msync: both are the \
                    same page."
            }
            Step::UnmapFile => {
                "The addresses are gone from the process, the bytes are still in the file."
            }
        }
    }
}

/// The kernel's figures for this process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Resident private memory in KiB.
    pub anonymous: u64,
    /// Resident pages of files in KiB.
    pub file: u64,
    /// Resident shared memory in KiB.
    pub shared: u64,
    /// The address space in KiB.
    pub virtual_size: u64,
    /// Page tables in KiB.
    pub tables: u64,
    /// Minor and major faults so far.
    pub faults: (u64, u64),
}

impl Snapshot {
    /// The process now.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn now() -> anyhow::Result<Snapshot> {
        let status =
            std::fs::read_to_string("/proc/self/status").context("no /proc/self/status")?;
        Snapshot::of(&status, machine::own_faults())
    }

    fn of(status: &str, faults: (u64, u64)) -> anyhow::Result<Snapshot> {
        let kib = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
            number.with_context(|| format!("no {name} in /proc/self/status"))
        };
        Ok(Snapshot {
            anonymous: kib("RssAnon")?,
            file: kib("RssFile")?,
            shared: kib("RssShmem")?,
            virtual_size: kib("VmSize")?,
            tables: kib("VmPTE")?,
            faults,
        })
    }

    fn numbers(&self) -> [u64; 7] {
        let Snapshot {
            anonymous,
            file,
            shared,
            virtual_size,
            tables,
            faults,
        } = *self;
        [
            anonymous,
            file,
            shared,
            virtual_size,
            tables,
            faults.0,
            faults.1,
        ]
    }

    fn from_numbers(numbers: &[u64]) -> Option<Snapshot> {
        let &[anonymous, file, shared, virtual_size, tables, minor, major] = numbers else {
            return None;
        };
        let faults = (minor, major);
        Some(Snapshot {
            anonymous,
            file,
            shared,
            virtual_size,
            tables,
            faults,
        })
    }
}

/// A completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The step.
    pub step: Step,
    /// How long it took.
    pub elapsed: Duration,
    /// The process before it.
    pub before: Snapshot,
    /// The process after it.
    pub after: Snapshot,
}

impl Told {
    /// The line that a worker prints.
    pub fn line(&self) -> String {
        let name = self
            .step
            .to_possible_value()
            .map_or(String::new(), |v| v.get_name().into());
        let mut line = format!("step={name} {}", self.elapsed.as_nanos());
        for number in self
            .before
            .numbers()
            .into_iter()
            .chain(self.after.numbers())
        {
            // Writing into a string cannot fail.
            let _ = write!(line, " {number}");
        }
        line
    }

    /// Reads what [`Told::line`] wrote; `None` for other lines.
    ///
    /// # Errors
    /// If the line is of a step but damaged.
    pub fn parse(line: &str) -> anyhow::Result<Option<Told>> {
        let Some(rest) = line.strip_prefix("step=") else {
            return Ok(None);
        };
        let (name, numbers) = rest.split_once(' ').context("a step without numbers")?;
        let step = Step::from_str(name, false).map_err(anyhow::Error::msg)?;
        let numbers: Vec<u64> = numbers
            .split(' ')
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        ensure!(numbers.len() == 15, "{} numbers in a step", numbers.len());
        let half = |part: &[u64]| Snapshot::from_numbers(part).context("a short step");
        Ok(Some(Told {
            step,
            elapsed: Duration::from_nanos(numbers[0]),
            before: half(&numbers[1..8])?,
            after: half(&numbers[8..])?,
        }))
    }

    /// The step for people: figures before and after, and its lesson.
    pub fn text(&self, sizes: &Sizes) -> String {
        let (a, b) = (&self.before, &self.after);
        let block = sizes.block >> 20;
        let file = sizes.file >> 20;
        let title = self
            .step
            .title()
            .replace("{block}", &format!("{block} MiB"));
        let title = title.replace("{file}", &format!("{file} MiB"));
        format!(
            "{title:<30}{:>9} {:>17} {:>13} {:>11} {:>17} {:>8} {:>6} {:>13}\n    {}",
            took(self.elapsed),
            change(mib(a.anonymous), mib(b.anonymous)),
            change(mib(a.file), mib(b.file)),
            change(mib(a.shared), mib(b.shared)),
            change(mib(a.virtual_size), mib(b.virtual_size)),
            format!("+{}", b.faults.0 - a.faults.0),
            format!("+{}", b.faults.1 - a.faults.1),
            change(a.tables.to_string(), b.tables.to_string()),
            self.step.lesson()
        )
    }

    /// The step as JSON.
    pub fn json(&self) -> serde_json::Value {
        let side = |s: &Snapshot| {
            serde_json::json!({ "rss_anon_kib": s.anonymous, "rss_file_kib": s.file,
                "rss_shmem_kib": s.shared, "virtual_kib": s.virtual_size,
                "page_tables_kib": s.tables, "minor_faults": s.faults.0,
                "major_faults": s.faults.1 })
        };
        let name = self
            .step
            .to_possible_value()
            .map(|v| v.get_name().to_string());
        serde_json::json!({ "step": name, "ns": self.elapsed.as_nanos() as u64,
            "before": side(&self.before), "after": side(&self.after),
            "teaches": self.step.lesson() })
    }
}

/// The sizes of the tour, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of the block.
    pub block: usize,
    /// Of the mapped file.
    pub file: usize,
}

/// The heading above the steps.
pub fn heading() -> String {
    format!(
        "{:<30}{:>9} {:>17} {:>13} {:>11} {:>17} {:>8} {:>6} {:>13}\n\
         {:<30}{:>9} {:>17} {:>13} {:>11} {:>17} {:>8} {:>6} {:>13}",
        "",
        "time",
        "RSS: anonymous",
        "file",
        "shared",
        "address space",
        "minor",
        "major",
        "page tables",
        "",
        "",
        "MiB",
        "MiB",
        "MiB",
        "MiB",
        "faults",
        "faults",
        "KiB"
    )
}

fn mib(kib: u64) -> String {
    format!("{:.1}", kib as f64 / 1_024.0)
}

/// Two figures, or one if they are equal.
fn change(before: String, after: String) -> String {
    if before == after {
        after
    } else {
        format!("{before} → {after}")
    }
}

fn took(elapsed: Duration) -> String {
    match elapsed.as_nanos() {
        ns if ns < 10_000 => format!("{ns} ns"),
        ns if ns < 1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        ns => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        let before = Snapshot {
            anonymous: 1_024,
            tables: 60,
            virtual_size: 9_000,
            ..Snapshot::default()
        };
        let after = Snapshot {
            anonymous: 2_048,
            faults: (256, 1),
            ..before
        };
        Told {
            step: Step::Write,
            elapsed: Duration::from_micros(1_500),
            before,
            after,
        }
    }

    #[test]
    fn a_step_comes_back_as_it_was() {
        assert_eq!(Told::parse(&told().line()).unwrap(), Some(told()));
        assert_eq!(Told::parse("heap=/lib/libc.so.6").unwrap(), None);
        assert!(Told::parse("step=write 1 2 3").is_err());
        assert!(Told::parse(&told().line().replace("write", "sing")).is_err());
    }

    #[test]
    fn the_line_has_the_figures_before_and_after() {
        let text = told().text(&Sizes {
            block: 1 << 30,
            file: 1 << 20,
        });
        for part in [
            "1.0 → 2.0",
            "1.5 ms",
            "+256",
            "+1 ",
            " 60\n",
            "memory is really taken",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn status_is_read_and_this_process_has_one() {
        let status =
            "VmSize:\t 10 kB\nVmPTE:\t 2 kB\nRssAnon:\t 3 kB\nRssFile:\t 4 kB\nRssShmem:\t 5 kB\n";
        let read = Snapshot::of(status, (6, 7)).unwrap();
        assert_eq!(read.numbers(), [3, 4, 5, 10, 2, 6, 7]);
        assert!(Snapshot::of("VmSize: 10 kB\n", (0, 0)).is_err());
        assert!(Snapshot::now().unwrap().virtual_size > 1_000);
    }
}
