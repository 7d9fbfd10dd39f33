//! One call of `PAGEMAP_SCAN` (Linux 6.7).

pub use neap_shared::pagemap::{HUGE, PRESENT, Region, SWAPPED, Sought, WRITTEN, ZERO_PAGE};
use neap_shared::pagemap::{PAGEMAP_SCAN, Scan};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

/// The result of one call.
pub struct Told<'r> {
    /// Sorted by address.
    pub regions: &'r [Region],
    /// Where the kernel stopped.
    pub end: u64,
}

/// Queries a page map once about a range of addresses.
///
/// # Errors
/// If the kernel refuses: `ENOTTY` before Linux 6.7.
pub fn ask<'r>(
    map: &File,
    range: Range<u64>,
    sought: Sought,
    room: &'r mut [MaybeUninit<Region>],
) -> io::Result<Told<'r>> {
    let mut scan = Scan::new(range.start as usize..range.end as usize, sought, room);
    // SAFETY: the argument is the structure that the request names, with its own size in it,
    // and says how many regions `room` holds.
    let count = unsafe { libc::ioctl(map.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut scan) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let filled = &room[..count];
    // SAFETY: the kernel filled in as many regions as it returned.
    let regions = unsafe { std::slice::from_raw_parts(filled.as_ptr().cast(), filled.len()) };
    let end = scan.walk_end;
    Ok(Told { regions, end })
}
