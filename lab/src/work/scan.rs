//! `PAGEMAP_SCAN` (Linux 6.7): the structures of linux/fs.h, and one call.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

/// `struct pm_scan_arg`, without where the regions go: that is filled in for the call.
#[repr(C)]
#[derive(Default)]
pub struct Question {
    size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    /// Where the kernel stopped; it fills this in.
    pub walk_end: u64,
    regions: u64,
    most_regions: u64,
    most_pages: u64,
    pub inverted: u64,
    pub all_of: u64,
    pub any_of: u64,
    pub returned: u64,
}

/// `struct page_region`: addresses, and the categories that were asked for.
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

/// Asks a page map once; the regions told, in the order of addresses. There may be more from `walk_end` on.
///
/// # Errors
/// When the kernel refuses: `ENOTTY` before Linux 6.7.
pub fn ask<'r>(
    map: &File,
    question: &mut Question,
    room: &'r mut [MaybeUninit<Region>],
) -> io::Result<&'r [Region]> {
    question.size = size_of::<Question>() as u64;
    question.regions = room.as_mut_ptr() as u64;
    question.most_regions = room.len() as u64;
    // SAFETY: the argument is the structure that the request names, with its own size in it,
    // and `regions` has room for `most_regions` entries.
    let count = unsafe { libc::ioctl(map.as_raw_fd(), PAGEMAP_SCAN, &raw mut *question) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled in as many regions as it returned, at most as many as there is room for.
    Ok(unsafe { room[..count].assume_init_ref() })
}
