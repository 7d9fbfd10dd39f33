//! Tries out what the kernel offers: `madvise` and `mremap`, the page map, and system calls that a
//! filter may forbid.

use super::write_guard::guards_writes;
use crate::table::Finding;
use memmap2::{MmapOptions, MmapRaw};
use neap_shared::pagemap::{self, PAGEMAP_SCAN, Region, Scan, Sought};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{
    MembarrierCommand, SecureComputingMode, membarrier as barrier, secure_computing_mode,
};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::{io, ptr};

/// Private anonymous memory, unmapped when dropped.
pub struct Map(MmapRaw);

impl Map {
    /// `pages` readable and writable OS pages.
    pub fn pages(pages: usize) -> io::Result<Self> {
        let mut map = MmapOptions::new();
        let map = map.len(pages * page_size()).no_reserve_swap();
        Ok(Self(map.map_anon()?.into()))
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// The number of bytes.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// Writes to the first byte of an OS page of [`Self::pages`].
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn touch(&self, page: usize) {
        let offset = page * page_size();
        assert!(offset < self.length());
        // SAFETY: the byte is inside the mapping, which only this value refers to.
        unsafe { self.base().add(offset).write_volatile(1) };
    }

    /// Calls `madvise` on all of it.
    pub fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping, which only this value refers to and accesses, always
        // by volatile operations.
        match unsafe { libc::madvise(self.base().cast(), self.length(), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether the kernel reserves `length` bytes of inaccessible address space.
pub fn is_reserved(length: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED, a new mapping replaces no other one, and no other code knows it.
    unsafe {
        let base = mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags);
        base.is_ok_and(|base| munmap(base, length).is_ok())
    }
}

/// Constants that the libc crate lacks for some targets.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;

/// What is tried, how, and what it is for.
type Trial = (&'static str, fn() -> io::Result<()>, &'static str);

#[rustfmt::skip]
const TRIALS: [Trial; 5] = [
    ("MADV_DONTNEED_LOCKED", purges_locked, "gives back locked pages"),
    ("MADV_GUARD_INSTALL", guards, "guards a page without a mapping"),
    ("MREMAP_DONTUNMAP", moves_pages, "large blocks grow without copying"),
    ("PAGEMAP_SCAN", scan, "shows which pages were touched"),
    ("/proc/self/pagemap", entry, "shows it without PAGEMAP_SCAN"),
];

/// The findings.
pub fn findings() -> Vec<Finding> {
    let tried = TRIALS.map(|(name, trial, meaning)| Finding::tried(name, trial(), meaning));
    let others = [membarrier(), userfaultfd(), seccomp()];
    tried.into_iter().chain(others).collect()
}

/// Whether a call that the kernel accepted did what it is for.
fn effect(works: bool) -> io::Result<()> {
    let without = || io::Error::other("accepted without effect");
    works.then_some(()).ok_or_else(without)
}

/// If locking is not allowed, unlocked memory still shows whether the kernel knows the advice.
fn purges_locked() -> io::Result<()> {
    let map = Map::pages(1)?;
    // SAFETY: locks a mapping of our own.
    unsafe { libc::mlock(map.base().cast(), map.length()) };
    map.touch(0);
    map.advise(MADV_DONTNEED_LOCKED)?;
    // SAFETY: the byte is inside the mapping.
    effect(unsafe { map.base().read_volatile() } == 0)
}

/// Lets the kernel write to the guarded page, which fails instead of raising a signal.
fn guards() -> io::Result<()> {
    let map = Map::pages(1)?;
    map.advise(MADV_GUARD_INSTALL)?;
    let populated = map.advise(MADV_POPULATE_WRITE);
    effect(populated.is_err())
}

fn moves_pages() -> io::Result<()> {
    let (from, to) = (Map::pages(1)?, Map::pages(1)?);
    from.touch(0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let (source, target) = (from.base().cast(), to.base().cast::<libc::c_void>());
    // SAFETY: both ranges are mappings of our own, which stay mapped.
    match unsafe { libc::mremap(source, page_size(), page_size(), flags, target) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        // SAFETY: the byte is inside `to`.
        _ => effect(unsafe { to.base().read_volatile() } == 1),
    }
}

/// Four pages of which the third is touched.
fn sample() -> io::Result<Map> {
    let map = Map::pages(4)?;
    let _ = map.advise(libc::MADV_NOHUGEPAGE);
    map.touch(2);
    Ok(map)
}

/// Whether only the third page's entry says "present" and "exclusively mapped".
fn entry() -> io::Result<()> {
    const OWN: u64 = 1 << 63 | 1 << 56;
    let map = sample()?;
    let mut entries = [0; 32];
    let offset = map.base() as u64 / page_size() as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, offset)?;
    let (entries, _) = entries.as_chunks();
    let own = entries.iter();
    let own = own.map(|entry| u64::from_ne_bytes(*entry) & OWN == OWN);
    effect(own.eq([false, false, true, false]))
}

/// Whether the scan finds only the third page.
fn scan() -> io::Result<()> {
    let map = sample()?;
    let (start, page) = (map.base() as usize, page_size());
    let mut regions = [MaybeUninit::<Region>::zeroed(); 2];
    let sought = Sought {
        all_of: pagemap::PRESENT,
        returned: pagemap::PRESENT,
        ..Sought::default()
    };
    let mut argument = Scan::new(start..start + map.length(), sought, &mut regions);
    let file = File::open("/proc/self/pagemap")?;
    // SAFETY: the argument is laid out as the kernel's and says where the regions are and
    // how many there is room for; both outlive the call.
    let found = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut argument) };
    if found == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a region, and the kernel fills in none or a whole one.
    let first = unsafe { regions[0].assume_init() };
    let third = start as u64 + 2 * page as u64;
    effect((found, first.start, first.end) == (1, third, third + page as u64))
}

/// Makes system calls in a forked child, because a filter may kill for them.
fn in_child(calls: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child only makes the calls, and ends.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let failed = calls().err();
            let errno = failed.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(errno) }
        }
        child => Pid::from_raw(child),
    };
    let ended = retry_on_intr(|| waitpid(child, WaitOptions::empty()))?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("a sandbox kills for it")),
    }
}

fn membarrier() -> Finding {
    let tried = in_child(|| {
        barrier(MembarrierCommand::RegisterPrivateExpedited)?;
        Ok(barrier(MembarrierCommand::PrivateExpedited)?)
    });
    let meaning = match &tried {
        Err(killed) if killed.raw_os_error().is_none() => "use `neap run --no-kernel-queries`",
        _ => "brings other threads to a barrier, to drain their caches",
    };
    Finding::tried("membarrier", tried, meaning)
}

fn userfaultfd() -> Finding {
    let tried = in_child(|| {
        let page = Map::pages(1)?;
        // SAFETY: a page of this value's own.
        unsafe { guards_writes(page.base(), page.length()) }
    });
    let meaning = "guards stacks against writes, without a mapping for each guard";
    Finding::tried("userfaultfd", tried, meaning)
}

fn seccomp() -> Finding {
    let (state, meaning) = match secure_computing_mode() {
        Ok(SecureComputingMode::Disabled) => ("off", "system calls are not filtered"),
        Ok(SecureComputingMode::Filter) => (
            "filter",
            "a sandbox filters system calls: what is absent may be forbidden, not missing",
        ),
        _ => ("unknown", "cannot be asked"),
    };
    Finding::is("seccomp", state, meaning)
}
