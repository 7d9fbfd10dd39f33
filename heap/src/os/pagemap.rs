//! Which pages of a range are populated: `PAGEMAP_SCAN` (Linux 6.7), else the pagemap file itself.
//!
//! A page is populated if it is present or swapped out. The shared page of zeros, which a read
//! maps, is not populated for `PAGEMAP_SCAN`. In the file it is, as any other page that more than
//! one process may have, [`Backing::Shared`]. Documentation/admin-guide/mm/pagemap.rst of the
//! kernel describes both.
//!
//! Both need a descriptor of the process's own `/proc/self/pagemap` that can be trusted. What can
//! go wrong with a kept descriptor, and the remedies:
//!
//! - After `fork` or a raw `clone` it describes the parent, for which a page that the child wrote
//!   may be untouched. Its number is therefore kept in a page with `MADV_WIPEONFORK`: a child that
//!   has its own memory finds zeros there, and opens a descriptor of its own.
//! - Programs close numbers that they do not know, and open other files under them. So device and
//!   inode are compared before every use and after it: every `pagemap` file of every process has an
//!   inode of its own, which no other file gets while ours is open. A number that is no longer ours
//!   is forgotten, never closed.
//! - A child that shares the memory but not the descriptors (`vfork`) may have closed its copy. It
//!   must not replace the parent's number, so only the process that opened the file opens it again.
//! - There may be no `/proc`, no permission to open it, no free descriptor, or a sandbox that kills
//!   the process for asking.

use super::file::{self, KeptFile, OpenFile};
use super::mapping::Wiped;
use super::process::{self, page_bytes};
use crate::base::sync::plain::{AtomicBool, AtomicU32, Ordering};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use neap_shared::pagemap::{HUGE, PAGEMAP_SCAN, PRESENT, Region, SWAPPED, Scan, Sought, ZERO_PAGE};

/// What backs populated pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// RAM.
    Ram,
    /// RAM, as a huge page.
    HugePage,
    /// RAM that is not the process's alone: the page of zeros, or one that `fork` left to both. A
    /// write would copy it.
    Shared,
    /// Swap: touching them waits for a disk.
    Swap,
}

/// A run of populated OS pages: not known to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Address of the first.
    pub start: usize,
    /// Bytes of the run.
    pub bytes: usize,
    /// What backs them.
    pub backing: Backing,
}

/// How the kernel answers questions about populated pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// By runs: what is not populated costs next to nothing.
    Runs,
    /// Page by page, whether populated or not.
    Pages,
}

/// From an address on, the kernel cannot say which pages are populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Everything before it was reported.
    pub from: usize,
}

/// The state of the descriptor. All zero in a new page, and in a child after fork.
#[repr(C)]
struct Kept {
    /// [`NONE`], [`OPENING`], or [`OPENING`] plus which of the attempts opened [`LAST`]. Release:
    /// that and `owner` were written before.
    state: AtomicU32,
    /// The process that opened it.
    owner: AtomicU32,
    /// How often this process opened one, or tried to.
    attempts: AtomicU32,
    /// How it is asked: 1 by reading, else by `PAGEMAP_SCAN`.
    reads: AtomicBool,
}

const NONE: u32 = 0;
const OPENING: u32 = 1;

/// How often a process opens the file before it gives up: the program closes it again and again, or
/// it cannot be opened.
const MOST_ATTEMPTS: u32 = 64;

const PATH: &CStr = c"/proc/self/pagemap";

// SAFETY: integers.
static KEPT: Wiped<Kept> = unsafe { Wiped::new() };
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// The file last opened; unlike [`Kept`], a child finds it.
#[unsafe(link_section = "neap_fork")]
static LAST: KeptFile = KeptFile::none();

/// Closes the parent's descriptor, in a child that `fork` made, if its number still is the parent's
/// pagemap: or every generation would inherit one more.
pub fn close_inherited() {
    if let Some(file) = LAST.take() {
        file.close();
    }
}

/// Never asks again, in this process and its future children, because the program may have
/// forbidden itself the system call.
pub fn forbid() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// A descriptor that was proven to be this process's pagemap just now.
#[derive(Clone, Copy)]
struct Proven {
    file: OpenFile,
    way: Way,
}

/// The process's pagemap, opened at the first need. `None` when there is none.
fn proven() -> Option<Proven> {
    if !ALLOWED.load(Ordering::Relaxed) {
        return None;
    }
    let kept = kept()?;
    match kept.state.load(Ordering::Acquire) {
        NONE => kept.open(),
        OPENING if kept.owner_is_gone() => {
            kept.forget(OPENING);
            None
        }
        OPENING => None,
        state => {
            if let Some(file) = LAST.get().filter(OpenFile::is_ours) {
                return Some(kept.proven(file));
            }
            let mine = kept.owner.load(Ordering::Relaxed) == process::process_id() as u32;
            if !mine && !kept.owner_is_gone() {
                return None;
            }
            kept.forget(state);
            kept.open()
        }
    }
}

/// Opens the process's pagemap, if there is one, so that the first query need not.
pub fn prepare() {
    let _ = proven();
}

/// How questions are answered.
pub(super) fn answers() -> Answers {
    match proven() {
        Some(Proven { way: Way::Read, .. }) => Answers::Pages,
        _ => Answers::Runs,
    }
}

/// Calls `visit` with every run of populated pages of a range, in the order of addresses. They
/// count only if the result does.
///
/// # Safety
/// - The range is mapped by this process, and page-aligned.
pub(super) unsafe fn populated(
    start: NonNull<u8>,
    bytes: usize,
    mut visit: impl FnMut(Populated),
) -> Result<(), Unknown> {
    let from = start.as_ptr().addr();
    let proven = proven().ok_or(Unknown { from })?;
    let (number, way) = (proven.file.descriptor, proven.way);
    let answered = ask(number, way, from, from + bytes, &mut visit);
    // Another thread may have put another file there during the query, and taken it away again.
    // Then none of the answer counts, not even its begin.
    if !proven.file.is_ours() {
        return Err(Unknown { from });
    }
    answered
}

impl Kept {
    fn proven(&self, file: OpenFile) -> Proven {
        let way = match self.reads.load(Ordering::Relaxed) {
            true => Way::Read,
            false => Way::Scan,
        };
        Proven { file, way }
    }

    /// Whether the process that opened the file has ended: a child that shared our memory.
    fn owner_is_gone(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed) as i32;
        owner != 0 && owner != process::process_id() && !process::process_exists(owner)
    }

    /// Gives up a number that is no longer ours, unless another thread was first.
    fn forget(&self, state: u32) {
        let order = Ordering::Relaxed;
        let _ = self.state.compare_exchange(state, NONE, order, order);
    }

    /// Opens the file, if no other thread does, and if it has not failed too often.
    fn open(&self) -> Option<Proven> {
        if self.attempts.load(Ordering::Relaxed) >= MOST_ATTEMPTS {
            return None;
        }
        let me = process::process_id() as u32;
        self.state
            .compare_exchange(NONE, OPENING, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.owner.store(me, Ordering::Relaxed);
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let opened = open_pagemap().filter(|file| self.accepts(file.descriptor));
        opened.inspect(|&file| LAST.set(file));
        let state = opened.map_or(NONE, |_| OPENING + attempt);
        self.state.store(state, Ordering::Release);
        opened.map(|file| self.proven(file))
    }

    /// Whether the file just opened tells the truth about this page, which was written, and the
    /// next, which never was. Closes it if not.
    fn accepts(&self, number: i32) -> bool {
        let way = truthful_way(number, core::ptr::from_ref(self).addr());
        self.reads.store(way == Some(Way::Read), Ordering::Relaxed);
        if way.is_none() {
            file::close(number);
        }
        way.is_some()
    }
}

/// Opens the process's pagemap at a number out of the way of the program's own.
fn open_pagemap() -> Option<OpenFile> {
    let file = OpenFile::of(file::move_up(file::open_read(PATH)?)?)?;
    // By its name as well, because another thread may already have replaced it; it is not ours to
    // close then.
    let is_named = file::path_identity(PATH) == Some(file.identity);
    if is_named && !file::is_proc(file.descriptor) {
        file::close(file.descriptor);
        return None;
    }
    is_named.then_some(file)
}

/// The page that fork wipes, and behind it one that no code touches.
fn kept() -> Option<&'static Kept> {
    let kept = KEPT.open(2 * page_bytes());
    if kept.is_none() {
        forbid();
    }
    kept
}

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
    visit: &mut impl FnMut(Populated),
) -> Result<(), Unknown> {
    let mut at = start;
    while at < end {
        let answered = match way {
            Way::Scan => scan(number, at, end, visit),
            Way::Read => read(number, at, end, visit),
        };
        at = answered.ok_or(Unknown { from: at })?;
    }
    Ok(())
}

/// Which kind of query gives correct answers: that the page at `written` is populated and the
/// process's own, and the one after it, which no code ever touched, is not. An emulator's pagemap
/// may describe other addresses than ours, and fails both tests.
fn truthful_way(number: i32, written: usize) -> Option<Way> {
    let page = page_bytes();
    let is_true = |way: &Way| {
        let (mut found, end) = (0, written + 2 * page);
        let visit = &mut |run: Populated| {
            // Both pages would be more than a page, the wrong one would start elsewhere.
            if run.backing != Backing::Shared {
                found += run.bytes + run.start - written;
            }
        };
        ask(number, *way, written, end, visit).is_ok() && found == page
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
    let mut scan = Scan::new(at..end, sought, &mut regions);
    // SAFETY: the kernel writes the struct and at most `most_regions` regions; both are ours. The
    // descriptor was proven to be a pagemap, whose ioctl writes nothing else.
    let count = unsafe { kernel!(ioctl, number, PAGEMAP_SCAN, &raw mut scan) };
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
fn read(number: i32, at: usize, end: usize, visit: &mut impl FnMut(Populated)) -> Option<usize> {
    let page = page_bytes();
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
    use super::*;
    use crate::os::child::{Limit, succeeds};
    use crate::os::linux::Linux;
    use crate::os::{Os, Purged, loader};
    use core::ptr::NonNull;
    use std::vec::Vec;

    /// Each in a child, because the state is the process's.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        succeeds(Limit::None, work)
    }

    #[test]
    fn a_descriptor_is_kept_high_and_closed_by_exec() {
        assert!(in_child(|| {
            let first = proven().unwrap().file.descriptor;
            // SAFETY: plain numbers.
            let flags = unsafe { libc::fcntl(first, libc::F_GETFD) };
            first >= file::ABOVE[0]
                && flags & libc::FD_CLOEXEC != 0
                && proven().unwrap().file.descriptor == first
        }));
    }

    #[test]
    fn errno_survives() {
        assert!(in_child(|| {
            loader::set_errno(77);
            proven().is_some() && loader::errno() == 77
        }));
    }

    #[test]
    fn a_closed_descriptor_is_opened_again_and_not_for_ever() {
        assert!(in_child(|| {
            for _ in 0..MOST_ATTEMPTS {
                file::close(proven().unwrap().file.descriptor);
            }
            proven().is_none()
        }));
    }

    #[test]
    fn an_answer_of_a_descriptor_replaced_meanwhile_does_not_count() {
        assert!(in_child(|| {
            let first = proven().unwrap();
            assert!(first.file.is_ours());
            file::close(first.file.descriptor);
            !first.file.is_ours()
        }));
    }

    #[test]
    fn a_replaced_descriptor_is_left_alone() {
        assert!(in_child(|| {
            let first = proven().unwrap().file.descriptor;
            let other = file::open_read(c"/dev/null").unwrap();
            // SAFETY: plain numbers.
            unsafe { libc::dup2(other, first) };
            let second = proven().unwrap().file.descriptor;
            // Still open on what the program put there.
            second != first && file::file_identity(first) == file::file_identity(other)
        }));
    }

    #[test]
    fn a_child_opens_its_own() {
        assert!(in_child(|| {
            let parents = proven().unwrap().file.descriptor;
            let identity = file::file_identity(parents);
            in_child(|| {
                let own = proven().unwrap().file.descriptor;
                // The parent's is still open here, and not taken for ours.
                own != parents
                    && file::file_identity(parents) == identity
                    && file::file_identity(own) != identity
            })
        }));
    }

    #[test]
    fn a_child_of_fork_closes_the_parents() {
        assert!(in_child(|| {
            let parents = proven().unwrap().file.descriptor;
            in_child(|| {
                close_inherited();
                file::file_identity(parents).is_none()
            }) && file::file_identity(parents).is_some()
        }));
    }

    #[test]
    fn a_forbidden_file_is_not_opened() {
        assert!(in_child(|| {
            forbid();
            proven().is_none() && KEPT.find().is_none()
        }));
    }

    #[test]
    fn no_free_number_is_no_descriptor() {
        assert!(in_child(|| {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: a valid buffer; only this child is limited.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) };
            proven().is_none()
        }));
    }

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
        unsafe { populated(base, PAGES * page, visit) }.map(|()| found)
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
            let way = proven().unwrap().way;
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
            let number = proven().unwrap().file.descriptor;
            let answer = ask(number, Way::Read, start, start + PAGES * page, visit);
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
                let number = proven().unwrap().file.descriptor;
                let answer = ask(number, Way::Read, start, start + 4 * page, visit);
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
            let base = memory();
            let start = base.as_ptr().addr();
            let number = proven().unwrap().file.descriptor;
            assert_eq!(truthful_way(number, start), None, "nothing written");
            touch(base, 0);
            assert!(truthful_way(number, start).is_some());
            touch(base, 1);
            truthful_way(number, start).is_none()
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
            forbid();
            let unknown = Unknown {
                from: base.as_ptr().addr(),
            };
            asked(base) == Err(unknown)
        }));
    }
}
