//! Tries out `madvise` and `mremap`.

use super::map::Map;
use crate::table::Finding;
use rustix::param::page_size;
use std::{io, ptr};

/// Constants that the libc crate lacks for some targets.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![
        Finding::tried(
            "MADV_FREE",
            frees(),
            "free pages can be lent to the kernel until it needs them",
            "pages are given back by MADV_DONTNEED only",
        ),
        Finding::tried(
            "MADV_POPULATE_WRITE",
            populates(),
            "pages can be populated ahead of use, at about half the cost of faults",
            "every first touch of a page is a fault",
        ),
        Finding::tried(
            "MADV_DONTNEED_LOCKED",
            purges_locked(),
            "pages locked by mlockall can be given back",
            "pages locked by mlockall stay resident",
        ),
        Finding::tried(
            "MADV_GUARD_INSTALL",
            guards(),
            "guard pages need no mappings of their own",
            "guards of stacks need userfaultfd; other guard pages split a mapping (max_map_count)",
        ),
        Finding::tried(
            "MREMAP_DONTUNMAP",
            moves_pages(),
            "large blocks can grow by moving pages, without copying",
            "large blocks that cannot grow in place are copied",
        ),
    ]
}

/// Whether the call did what it is for.
fn effect(works: bool) -> io::Result<()> {
    match works {
        true => Ok(()),
        false => Err(io::Error::other("accepted without effect")),
    }
}

fn frees() -> io::Result<()> {
    let map = Map::pages(1)?;
    map.touch(0);
    map.advise(libc::MADV_FREE)
}

fn populates() -> io::Result<()> {
    let map = Map::pages(1)?;
    map.advise(MADV_POPULATE_WRITE)?;
    is_resident(&map)
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

fn is_resident(map: &Map) -> io::Result<()> {
    let mut resident = 0_u8;
    // SAFETY: the range is one page, for which mincore writes one byte.
    match unsafe { libc::mincore(map.base().cast(), page_size(), ptr::from_mut(&mut resident)) } {
        0 => effect(resident & 1 == 1),
        _ => Err(io::Error::last_os_error()),
    }
}
