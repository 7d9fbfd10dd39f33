//! Tries out `madvise` and `mremap`.

use super::map::{Map, page_size};
use crate::table::{Finding, State};
use std::{io, ptr};

/// Constants that the libc crate lacks for some targets.
const MADV_POPULATE_WRITE: i32 = 23;
const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;

/// One operation, and what its presence and its absence mean.
struct Trial {
    name: &'static str,
    attempt: fn() -> io::Result<bool>,
    with: &'static str,
    without: &'static str,
}

const TRIALS: [Trial; 5] = [
    Trial {
        name: "MADV_FREE",
        attempt: frees,
        with: "free pages can be lent to the kernel until it needs them",
        without: "pages are given back by MADV_DONTNEED only",
    },
    Trial {
        name: "MADV_POPULATE_WRITE",
        attempt: populates,
        with: "pages can be populated ahead of use, at about half the cost of faults",
        without: "every first touch of a page is a fault",
    },
    Trial {
        name: "MADV_DONTNEED_LOCKED",
        attempt: purges_locked,
        with: "pages locked by mlockall can be given back",
        without: "pages locked by mlockall stay resident",
    },
    Trial {
        name: "MADV_GUARD_INSTALL",
        attempt: guards,
        with: "guard pages need no mappings of their own",
        without: "each guard page splits a mapping (see max_map_count)",
    },
    Trial {
        name: "MREMAP_DONTUNMAP",
        attempt: moves_pages,
        with: "large blocks can grow by moving pages, without copying",
        without: "large blocks that cannot grow in place are copied",
    },
];

/// The findings.
pub fn findings() -> Vec<Finding> {
    TRIALS.iter().map(Trial::finding).collect()
}

impl Trial {
    fn finding(&self) -> Finding {
        match (self.attempt)() {
            Ok(true) => Finding::new(self.name, State::Ok(String::new()), self.with),
            Ok(false) => Finding::new(
                self.name,
                State::Absent("accepted without effect".to_owned()),
                self.without,
            ),
            Err(error) => Finding::new(self.name, State::Absent(error.to_string()), self.without),
        }
    }
}

fn frees() -> io::Result<bool> {
    let map = Map::pages(1)?;
    map.touch(0);
    map.advise(libc::MADV_FREE).map(|()| true)
}

fn populates() -> io::Result<bool> {
    let map = Map::pages(1)?;
    map.advise(MADV_POPULATE_WRITE)?;
    is_resident(&map)
}

/// If locking is not allowed, unlocked memory still shows whether the kernel knows the advice.
fn purges_locked() -> io::Result<bool> {
    let map = Map::pages(1)?;
    // SAFETY: locks a mapping of our own.
    unsafe { libc::mlock(map.base().cast(), map.length()) };
    map.touch(0);
    map.advise(MADV_DONTNEED_LOCKED)?;
    // SAFETY: the byte is inside the mapping.
    Ok(unsafe { map.base().read_volatile() } == 0)
}

/// Lets the kernel write to the guarded page, which fails instead of raising a signal.
fn guards() -> io::Result<bool> {
    let map = Map::pages(1)?;
    map.advise(MADV_GUARD_INSTALL)?;
    let populated = map.advise(MADV_POPULATE_WRITE);
    Ok(populated.is_err())
}

fn moves_pages() -> io::Result<bool> {
    let (from, to) = (Map::pages(1)?, Map::pages(1)?);
    from.touch(0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let (source, target) = (from.base().cast(), to.base().cast::<libc::c_void>());
    // SAFETY: both ranges are mappings of our own, which stay mapped.
    match unsafe { libc::mremap(source, page_size(), page_size(), flags, target) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        // SAFETY: the byte is inside `to`.
        _ => Ok(unsafe { to.base().read_volatile() } == 1),
    }
}

fn is_resident(map: &Map) -> io::Result<bool> {
    let mut resident = 0_u8;
    // SAFETY: the range is one page, for which mincore writes one byte.
    match unsafe { libc::mincore(map.base().cast(), page_size(), ptr::from_mut(&mut resident)) } {
        0 => Ok(resident & 1 == 1),
        _ => Err(io::Error::last_os_error()),
    }
}
