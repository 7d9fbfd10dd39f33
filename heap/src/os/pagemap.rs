//! Which pages of a range are populated: `PAGEMAP_SCAN` (Linux 6.7), else the pagemap file itself.
//!
//! A page is populated if it is present or swapped out. The shared page of zeros, which a read
//! maps, is not populated for `PAGEMAP_SCAN`. In the file it is, as any other page that more than
//! one process may have, [`Backing::Shared`]. Documentation/admin-guide/mm/pagemap.rst of the
//! kernel describes both.

use super::arch::call;
use super::{Backing, Populated, Unknown, file};
use core::mem::MaybeUninit;
use neap_shared::pagemap::{HUGE, PAGEMAP_SCAN, PRESENT, Region, SWAPPED, Scan, Sought, ZERO_PAGE};

/// Regions of one call: less than 1 KiB of stack, because the caller's may be a coroutine's.
const MOST_REGIONS: usize = 24;

/// Words read at once from the file, one a page: 1 KiB of stack.
const MOST_WORDS: usize = 128;
/// The bits of such a word that say "present", "swapped", and, since Linux 4.2, "exclusively
/// mapped".
const WORD_PRESENT: u64 = 1 << 63;
const WORD_SWAPPED: u64 = 1 << 62;
const WORD_EXCLUSIVE: u64 = 1 << 56;

/// How to query a pagemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By `PAGEMAP_SCAN`.
    Scan,
    /// By reading it.
    Read,
}

/// Asks about all of a range.
pub(super) fn ask(
    number: i32,
    way: Way,
    start: usize,
    end: usize,
    page: usize,
    visit: &mut impl FnMut(Populated),
) -> Result<(), Unknown> {
    let mut at = start;
    while at < end {
        let answered = match way {
            Way::Scan => scan(number, at, end, visit),
            Way::Read => read(number, at, end, page, visit),
        };
        at = answered.ok_or(Unknown { from: at })?;
    }
    Ok(())
}

/// Which kind of query gives correct answers: that the page at `written` is populated and the
/// process's own, and the one after it, which no code ever touched, is not. An emulator's pagemap
/// may describe other addresses than ours, and fails both tests.
pub(super) fn truthful_way(number: i32, written: usize, page: usize) -> Option<Way> {
    let is_true = |way: &Way| {
        let (mut found, end) = (0, written + 2 * page);
        let visit = &mut |run: Populated| {
            // Both pages would be more than a page, the wrong one would start elsewhere.
            if run.backing != Backing::Shared {
                found += run.bytes + run.start - written;
            }
        };
        ask(number, *way, written, end, page, visit).is_ok() && found == page
    };
    [Way::Scan, Way::Read].into_iter().find(is_true)
}

/// Asks once. Returns up to where the kernel answered: more than `at`, at most `end`. Out of line,
/// so that no other buffer shares its frame.
#[inline(never)]
fn scan(number: i32, at: usize, end: usize, visit: &mut impl FnMut(Populated)) -> Option<usize> {
    let mut regions = [const { MaybeUninit::<Region>::uninit() }; MOST_REGIONS];
    // Not the page of zeros, and one of the two others.
    let sought = Sought {
        inverted: ZERO_PAGE,
        all_of: ZERO_PAGE,
        any_of: PRESENT | SWAPPED,
        returned: SWAPPED | HUGE,
        ..Sought::default()
    };
    let (request, mut scan) = (
        PAGEMAP_SCAN as usize,
        Scan::new(at..end, sought, &mut regions),
    );
    let place = (&raw mut scan).expose_provenance();
    // SAFETY: the kernel writes the struct and at most `most_regions` regions; both are ours. The
    // descriptor was proven to be a pagemap, whose ioctl writes nothing else.
    let count = unsafe { call(libc::SYS_ioctl, [number as usize, request, place, 0]) };
    if count < 0 {
        return None;
    }
    let found = regions.get(..count as usize)?;
    #[cfg(test)]
    super::access::kernel_wrote(found);
    for region in found {
        // SAFETY: the kernel filled in as many as it returned.
        visit(within(unsafe { region.assume_init() }, at, end)?);
    }
    let stopped = scan.walk_end as usize;
    (at < stopped && stopped <= end).then_some(stopped)
}

/// A region that the kernel named, if it lies between `from` and `to`.
fn within(region: Region, from: usize, to: usize) -> Option<Populated> {
    let (start, end) = (region.start as usize, region.end as usize);
    let backing = match region.categories {
        swapped if swapped & SWAPPED != 0 => Backing::Swap,
        huge if huge & HUGE != 0 => Backing::HugePage,
        _ => Backing::Ram,
    };
    (from <= start && start < end && end <= to).then_some(Populated {
        start,
        bytes: end - start,
        backing,
    })
}

/// Reads the words of the next pages. Returns up to where. Out of line, as [`scan`].
#[inline(never)]
fn read(
    number: i32,
    at: usize,
    end: usize,
    page: usize,
    visit: &mut impl FnMut(Populated),
) -> Option<usize> {
    let mut words = [0u64; MOST_WORDS];
    let pages = ((end - at) / page).min(MOST_WORDS);
    let offset = i64::try_from(at / page * size_of::<u64>()).ok()?;
    let bytes = pages * size_of::<u64>();
    let got = file::read_words_at(number, &mut words[..pages], offset);
    if got != bytes as isize {
        return None;
    }
    each_run(&words[..pages], at, page, visit);
    Some(at + pages * page)
}

/// Calls `visit` with every run of pages whose words have the same bits.
fn each_run(words: &[u64], at: usize, page: usize, visit: &mut impl FnMut(Populated)) {
    let mut first = 0;
    for run in words.chunk_by(|one, next| backing_of(*one) == backing_of(*next)) {
        if let Some(backing) = backing_of(run[0]) {
            visit(Populated {
                start: at + first * page,
                bytes: run.len() * page,
                backing,
            });
        }
        first += run.len();
    }
}

fn backing_of(word: u64) -> Option<Backing> {
    match word & (WORD_SWAPPED | WORD_PRESENT | WORD_EXCLUSIVE) {
        swapped if swapped & WORD_SWAPPED != 0 => Some(Backing::Swap),
        absent if absent & WORD_PRESENT == 0 => None,
        WORD_PRESENT => Some(Backing::Shared),
        _ => Some(Backing::Ram),
    }
}

#[cfg(test)]
mod tests {
    use super::super::child::{Limit, succeeds};
    use super::super::linux::Linux;
    use super::super::pagemap_file::{self, populated};
    use super::*;
    use crate::os::{Os, Purged};
    use core::ptr::NonNull;
    use std::vec::Vec;

    const PAGES: usize = 2048;

    /// Fresh memory, never to be huge.
    fn memory() -> NonNull<u8> {
        let bytes = PAGES * Linux.page_bytes();
        let base = Linux.reserve(bytes, 1 << 21).unwrap();
        // SAFETY: a reservation of ours.
        unsafe {
            Linux.commit(base, bytes).unwrap();
            Linux.advise_huge(base, bytes, super::super::Huge::Avoid);
        }
        base
    }

    fn touch(base: NonNull<u8>, page: usize) {
        // SAFETY: within the memory of `memory`.
        unsafe { base.add(page * Linux.page_bytes()).write_volatile(1) };
    }

    /// Populated pages, by number.
    fn asked(base: NonNull<u8>) -> Result<Vec<usize>, Unknown> {
        let (page, mut found) = (Linux.page_bytes(), Vec::new());
        let visit = |run: Populated| {
            let first = (run.start - base.as_ptr().addr()) / page;
            found.extend(first..first + run.bytes / page);
        };
        // SAFETY: the memory of `memory`.
        unsafe { populated(base, PAGES * page, page, visit) }.map(|()| found)
    }

    #[test]
    fn just_the_written_pages_are_populated() {
        assert!(succeeds(Limit::None, || {
            let base = memory();
            assert_eq!(asked(base), Ok(std::vec![]));
            // More runs than one call can tell.
            let written: Vec<_> = (0..PAGES).filter(|page| page % 3 == 1).collect();
            written.iter().for_each(|&page| touch(base, page));
            assert_eq!(asked(base).as_ref(), Ok(&written));
            (0..PAGES).for_each(|page| touch(base, page));
            assert_eq!(asked(base), Ok((0..PAGES).collect()));
            // SAFETY: memory of ours.
            let purged = unsafe { Linux.purge(base, PAGES * Linux.page_bytes()) };
            assert_eq!(purged, Purged::Zero);
            asked(base) == Ok(std::vec![])
        }));
    }

    #[test]
    fn pages_only_read_are_not_populated_where_the_kernel_tells() {
        assert!(succeeds(Limit::None, || {
            let base = memory();
            // SAFETY: memory of ours.
            assert_eq!(unsafe { base.read_volatile() }, 0);
            let way = pagemap_file::proven(Linux.page_bytes()).unwrap().way;
            let answer = asked(base).unwrap();
            answer.is_empty() || (way == Way::Read && answer == [0])
        }));
    }

    #[test]
    fn the_file_tells_the_same() {
        assert!(succeeds(Limit::None, || {
            let (base, page) = (memory(), Linux.page_bytes());
            let written = [0, 7, 8, 511, 512, 513, PAGES - 1];
            written.iter().for_each(|&page| touch(base, page));
            let (start, mut found) = (base.as_ptr().addr(), Vec::new());
            let visit = &mut |run: Populated| {
                found.extend((0..run.bytes / page).map(|next| (run.start - start) / page + next));
            };
            let number = pagemap_file::proven(page).unwrap().number;
            let answer = ask(number, Way::Read, start, start + PAGES * page, page, visit);
            answer.is_ok() && found == written
        }));
    }

    /// A page that was only read, and one that a fork left to two processes until one writes to it.
    #[test]
    fn the_file_tells_what_is_shared() {
        assert!(succeeds(Limit::None, || {
            let (base, page) = (memory(), Linux.page_bytes());
            // SAFETY: memory of ours.
            assert_eq!(unsafe { base.read_volatile() }, 0);
            touch(base, 1);
            touch(base, 2);
            let told = |wanted: &[Option<Backing>]| {
                let mut found = [None; 4];
                let start = base.as_ptr().addr();
                let visit = &mut |run: Populated| {
                    let first = (run.start - start) / page;
                    found[first..first + run.bytes / page].fill(Some(run.backing));
                };
                let number = pagemap_file::proven(page).unwrap().number;
                let answer = ask(number, Way::Read, start, start + 4 * page, page, visit);
                answer.is_ok() && found == wanted
            };
            let (shared, own) = (Some(Backing::Shared), Some(Backing::Ram));
            told(&[shared, own, own, None])
                && succeeds(Limit::None, || {
                    touch(base, 2);
                    told(&[shared, shared, own, None])
                })
        }));
    }

    #[test]
    fn a_file_that_does_not_tell_the_truth_is_seen() {
        assert!(succeeds(Limit::None, || {
            let (base, page) = (memory(), Linux.page_bytes());
            let start = base.as_ptr().addr();
            let number = pagemap_file::proven(page).unwrap().number;
            assert_eq!(truthful_way(number, start, page), None, "nothing written");
            touch(base, 0);
            assert!(truthful_way(number, start, page).is_some());
            touch(base, 1);
            truthful_way(number, start, page).is_none()
        }));
    }

    #[test]
    fn a_swapped_page_counts_and_one_that_is_shared() {
        let own = WORD_PRESENT | WORD_EXCLUSIVE;
        let words = [0, WORD_SWAPPED, own, own, WORD_PRESENT, 0];
        let mut runs = Vec::new();
        each_run(&words, 0x10000, 4096, &mut |run| runs.push(run));
        let run = |start, bytes, backing| Populated {
            start,
            bytes,
            backing,
        };
        assert_eq!(
            runs,
            [
                run(0x11000, 4096, Backing::Swap),
                run(0x12000, 8192, Backing::Ram),
                run(0x14000, 4096, Backing::Shared)
            ]
        );
        let region = Region {
            start: 0x1000,
            end: 0x2000,
            categories: SWAPPED,
        };
        assert_eq!(
            within(region, 0x1000, 0x2000),
            Some(run(0x1000, 4096, Backing::Swap))
        );
        assert_eq!(within(region, 0x1000, 0x1800), None);
    }

    #[test]
    fn a_forbidden_query_knows_nothing() {
        assert!(succeeds(Limit::None, || {
            let base = memory();
            pagemap_file::forbid();
            let unknown = Unknown {
                from: base.as_ptr().addr(),
            };
            asked(base) == Err(unknown)
        }));
    }
}
