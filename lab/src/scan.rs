//! `PAGEMAP_SCAN` (Linux 6.7): the structures of linux/fs.h, and one call.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Where the kernel stopped, filled in by it.
    walk_end: u64,
    regions: u64,
    most_regions: u64,
    most_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// The categories of pages to find, and what to do with the pages found.
#[derive(Clone, Copy)]
pub struct Sought {
    pub flags: u64,
    /// Categories that must be absent.
    pub inverted: u64,
    pub all_of: u64,
    pub any_of: u64,
    /// Categories that split regions and are returned with them.
    pub returned: u64,
}

/// The result of one call.
pub struct Told<'r> {
    /// Sorted by address.
    pub regions: &'r [Region],
    /// Where the kernel stopped.
    pub end: u64,
}

/// `struct page_region`: addresses, and the requested categories.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

pub const WRITTEN: u64 = 1 << 1;
pub const PRESENT: u64 = 1 << 3;
pub const SWAPPED: u64 = 1 << 4;
pub const ZERO_PAGE: u64 = 1 << 5;
pub const HUGE: u64 = 1 << 6;

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
    let mut arguments = Arguments {
        size: size_of::<Arguments>() as u64,
        flags: sought.flags,
        start: range.start,
        end: range.end,
        regions: room.as_mut_ptr() as u64,
        most_regions: room.len() as u64,
        inverted: sought.inverted,
        all_of: sought.all_of,
        any_of: sought.any_of,
        returned: sought.returned,
        ..Arguments::default()
    };
    // SAFETY: the argument is the structure that the request names, with its own size in it,
    // and `regions` has room for `most_regions` entries.
    let count = unsafe { libc::ioctl(map.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let filled = &room[..count];
    // SAFETY: the kernel filled in as many regions as it returned.
    let regions = unsafe { std::slice::from_raw_parts(filled.as_ptr().cast(), filled.len()) };
    let end = arguments.walk_end;
    Ok(Told { regions, end })
}
