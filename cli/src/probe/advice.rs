//! Tries out `madvise` and `mremap`.

use super::effect;
use super::map::Map;
use crate::table::Finding;
use rustix::param::page_size;
use std::io;

/// Constants that the libc crate lacks for some targets.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;

/// The findings.
pub fn findings() -> Vec<Finding> {
    let (locked, guarded, moved) = (purges_locked(), guards(), moves_pages());
    vec![
        Finding::tried("MADV_DONTNEED_LOCKED", locked, "gives back locked pages"),
        Finding::tried(
            "MADV_GUARD_INSTALL",
            guarded,
            "guards a page without a mapping",
        ),
        Finding::tried(
            "MREMAP_DONTUNMAP",
            moved,
            "large blocks grow without copying",
        ),
    ]
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
