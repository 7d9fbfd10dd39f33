//! Resident and swapped bytes as the kernel counts them.

use super::process::{Process, range};
use super::status_page::StatusPage;
use crate::failure::Failure;
use std::ops::Range;

/// A process's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelView {
    /// Resident in Neap's arenas.
    pub arenas_rss: u64,
    /// Swapped out of Neap's arenas.
    pub arenas_swap: u64,
    /// Resident, in total.
    pub process_rss: u64,
    /// Swapped out, in total.
    pub process_swap: u64,
}

impl KernelView {
    /// Resident outside Neap's arenas.
    pub fn foreign_rss(&self) -> u64 {
        self.process_rss.saturating_sub(self.arenas_rss)
    }
}

/// The kernel's figures for a status page's process.
pub fn of_status_page(status_page: &StatusPage) -> Result<KernelView, Failure> {
    of_process(process(status_page)?, &status_page.arenas())
}

/// The cheap part: figures of the whole process only, none of the arenas.
pub fn whole_of_status_page(status_page: &StatusPage) -> Result<KernelView, Failure> {
    whole(process(status_page)?)
}

fn process(status_page: &StatusPage) -> Result<&Process, Failure> {
    let process = status_page.process();
    process.ok_or_else(|| failure!("{} has ended", status_page.title()))
}

/// Like [`whole_of_status_page`].
pub fn whole(process: &Process) -> Result<KernelView, Failure> {
    let text = process.text("status").unwrap_or_default();
    let find = |name| text.lines().find_map(|line| field(line, name));
    match find("VmRSS:") {
        Some(process_rss) => Ok(KernelView {
            process_rss,
            process_swap: find("VmSwap:").unwrap_or(0),
            ..KernelView::default()
        }),
        None => Err(super::reach::ended(process)),
    }
}

fn of_process(process: &Process, arenas: &[Range<u64>]) -> Result<KernelView, Failure> {
    match process.text("smaps") {
        // For a process that has ended, the file is empty.
        Ok(text) if !text.is_empty() => Ok(parse(&text, arenas)),
        _ if process.has_ended() => Err(super::reach::ended(process)),
        Ok(_) => Ok(KernelView::default()),
        Err(error) => Err(failure!(
            "cannot read what the kernel counts for {}: {error}",
            process.title()
        )),
    }
}

/// Sums over the text of smaps.
fn parse(text: &str, arenas: &[Range<u64>]) -> KernelView {
    let mut view = KernelView::default();
    let mut ours = 0;
    for line in text.lines() {
        if let Some(mapping) = range(line) {
            ours = common(&mapping, arenas);
        } else if let Some(bytes) = field(line, "Rss:") {
            view.process_rss = view.process_rss.saturating_add(bytes);
            view.arenas_rss = view.arenas_rss.saturating_add(bytes.min(ours));
        } else if let Some(bytes) = field(line, "Swap:") {
            view.process_swap = view.process_swap.saturating_add(bytes);
            view.arenas_swap = view.arenas_swap.saturating_add(bytes.min(ours));
        }
    }
    view
}

/// `Rss:                 128 kB`, in bytes.
pub fn field(line: &str, name: &str) -> Option<u64> {
    let kib: u64 = line
        .strip_prefix(name)?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

/// Bytes of a mapping that lie in arenas. The kernel may have merged an arena with a foreign
/// neighbour.
fn common(mapping: &Range<u64>, arenas: &[Range<u64>]) -> u64 {
    let common = |arena: &Range<u64>| {
        let end = arena.end.min(mapping.end);
        end.saturating_sub(arena.start.max(mapping.start))
    };
    arenas
        .iter()
        .map(common)
        .fold(0, |sum, bytes| sum.saturating_add(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-5000 rw-p 00000000 00:00 0 \nSize:  16 kB\nRss:  8 kB\nPss:  8 kB\nSwap:  4 kB\nSwapPss: 4 \
kB\nVmFlags: rd wr\n\
8000-9000 r-xp 00000000 08:01 77   /usr/lib/a b.so\nRss:  4 kB\nSwap:  0 kB\n";

    #[test]
    fn mappings_in_arenas_are_told_from_the_rest() {
        let view = parse(SMAPS, std::slice::from_ref(&(0x1000..0x5000)));
        let expected = KernelView {
            arenas_rss: 8192,
            arenas_swap: 4096,
            process_rss: 12288,
            process_swap: 4096,
        };
        assert_eq!(view, expected);
        assert_eq!(view.foreign_rss(), 4096);
        assert_eq!(parse(SMAPS, &[]).arenas_rss, 0);
    }

    #[test]
    fn arenas_that_make_no_sense_count_as_little_as_they_overlap() {
        let backwards = Range {
            start: u64::MAX,
            end: 0,
        };
        assert_eq!(parse(SMAPS, &[backwards, 0x4fff..0x5000]).arenas_rss, 1);
        let all = parse(SMAPS, &[0..u64::MAX, 0..u64::MAX]);
        assert_eq!(all.arenas_rss, all.process_rss);
    }
}
