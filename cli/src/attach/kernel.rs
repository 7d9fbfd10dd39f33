//! Resident and swapped bytes as the kernel counts them.

use super::process::Process;
use super::status_page::StatusPage;
use crate::failure::Failure;
use neap_shared::areas::{field, mappings};
use rustix::fs::OFlags;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// A process's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelView {
    /// Resident in Neap's arenas.
    pub arenas_rss: u64,
    /// Swapped out of Neap's arenas.
    pub arenas_swap: u64,
    /// Resident, in total.
    pub process_rss: u64,
    /// Resident in mappings of files and of shared memory.
    pub files_rss: u64,
    /// Swapped out, in total.
    pub process_swap: u64,
    /// Whether the kernel counted the arenas' parts.
    pub extent: Extent,
}

/// What the kernel was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Only the whole process.
    #[default]
    Process,
    /// The arenas as well.
    Arenas,
}

impl KernelView {
    /// A count of the arenas, if they were counted.
    pub fn of_arenas(&self, count: u64) -> Option<u64> {
        (self.extent == Extent::Arenas).then_some(count)
    }

    /// Resident outside Neap's arenas.
    pub fn foreign_rss(&self) -> u64 {
        self.process_rss.saturating_sub(self.arenas_rss)
    }

    /// Whether more than a quarter of the process is resident outside Neap's arenas.
    pub fn is_elsewhere(&self) -> bool {
        self.foreign_rss() > self.process_rss / 4
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
        None => Err(super::memory_file::ended(process)),
    }
}

fn of_process(process: &Process, arenas: &[Range<u64>]) -> Result<KernelView, Failure> {
    match process.text("smaps") {
        // For a process that has ended, the file is empty.
        Ok(text) if !text.is_empty() => {
            Ok(parse(&text, arenas, |shared| pages_in(process, shared)))
        }
        _ if process.has_ended() => Err(super::memory_file::ended(process)),
        Ok(_) => Ok(KernelView::default()),
        Err(error) => Err(failure!(
            "cannot read what the kernel counts for {}: {error}",
            process.title()
        )),
    }
}

/// Sums over the text of smaps. The kernel may have merged an arena with a foreign neighbour.
/// `count` says how much of the common part is resident, and swapped out, if it can.
pub fn parse(
    text: &str,
    arenas: &[Range<u64>],
    count: impl Fn(&[Range<u64>]) -> Option<[u64; 2]>,
) -> KernelView {
    let mut view = KernelView {
        extent: Extent::Arenas,
        ..KernelView::default()
    };
    for mapping in mappings(text) {
        let parts: Vec<_> = common(&mapping.range, arenas).collect();
        let bytes = parts.iter().map(|part| part.end - part.start);
        let bytes = bytes.fold(0, u64::saturating_add);
        let length = mapping.range.end.saturating_sub(mapping.range.start);
        let counted = (0 < bytes && bytes < length)
            .then(|| count(&parts))
            .flatten();
        // The most bytes of the mapping that can be ours, resident and swapped out.
        let ours = counted.unwrap_or([bytes; 2]);
        let of_file = mapping.resident * u64::from(mapping.name.starts_with('/'));
        for (sum, bytes) in [
            (&mut view.process_rss, mapping.resident),
            (&mut view.arenas_rss, mapping.resident.min(ours[0])),
            (&mut view.files_rss, of_file),
            (&mut view.process_swap, mapping.swapped),
            (&mut view.arenas_swap, mapping.swapped.min(ours[1])),
        ] {
            *sum = sum.saturating_add(bytes);
        }
    }
    view
}

/// Bytes of pages in `parts` that are resident, and that are swapped out, by the process's pagemap.
pub fn pages_in(process: &Process, parts: &[Range<u64>]) -> Option<[u64; 2]> {
    let file = process.file("pagemap", OFlags::RDONLY).ok()?;
    let page = rustix::param::page_size() as u64;
    let mut bytes = [0; 2];
    let chunks = |part: &Range<u64>| {
        let end = part.end;
        part.clone().step_by(CHUNK).map(move |first| (first, end))
    };
    for (first, end) in parts.iter().flat_map(chunks) {
        let pages = end.min(first + CHUNK as u64).div_ceil(page) - first / page;
        let mut entries = vec![0; pages as usize * 8];
        file.read_exact_at(&mut entries, first / page * 8).ok()?;
        for entry in entries.chunks_exact(8) {
            // The highest bits of an entry: present, and swapped out.
            bytes[0] += u64::from(entry[7] >> 7 & 1) * page;
            bytes[1] += u64::from(entry[7] >> 6 & 1) * page;
        }
    }
    Some(bytes)
}

/// Bytes of addresses that are looked at together.
const CHUNK: usize = 64 << 20;

/// The parts of a mapping that lie in arenas.
fn common<'a>(
    mapping: &'a Range<u64>,
    arenas: &'a [Range<u64>],
) -> impl Iterator<Item = Range<u64>> + 'a {
    let parts = arenas
        .iter()
        .map(|arena| arena.start.max(mapping.start)..arena.end.min(mapping.end));
    parts.filter(|part| part.start < part.end)
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
        let view = parse(SMAPS, std::slice::from_ref(&(0x1000..0x5000)), |_| None);
        let expected = KernelView {
            arenas_rss: 8192,
            arenas_swap: 4096,
            process_rss: 12288,
            files_rss: 4096,
            process_swap: 4096,
            extent: Extent::Arenas,
        };
        assert_eq!(view, expected);
        assert_eq!(view.foreign_rss(), 4096);
        assert_eq!(parse(SMAPS, &[], |_| None).arenas_rss, 0);
    }

    #[test]
    fn arenas_that_make_no_sense_count_as_little_as_they_overlap() {
        let backwards = Range {
            start: u64::MAX,
            end: 0,
        };
        let narrow = [backwards, 0x4fff..0x5000];
        assert_eq!(parse(SMAPS, &narrow, |_| None).arenas_rss, 1);
        let all = parse(SMAPS, &[0..u64::MAX, 0..u64::MAX], |_| None);
        assert_eq!(all.arenas_rss, all.process_rss);
    }

    #[test]
    fn of_a_merged_mapping_the_pages_in_the_arena_count() {
        const MIB: usize = 1 << 20;
        // So large that the C library maps it, and nothing touched it before.
        let mut block = vec![0u8; 48 * MIB];
        let middle = (block.as_ptr().addr() + 24 * MIB) as u64;
        block[..20 * MIB].fill(1);
        block[40 * MIB] = 1;
        let process = Process::open(std::process::id() as i32).unwrap();
        let arena = middle..middle + (20 * MIB) as u64;
        let view = of_process(&process, std::slice::from_ref(&arena)).unwrap();
        // One page, huge where the kernel makes all pages huge.
        assert!((1..=2 * MIB as u64).contains(&view.arenas_rss), "{view:?}");
        assert_eq!(block[40 * MIB], 1);
    }
}
