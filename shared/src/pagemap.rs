//! `PAGEMAP_SCAN` (Linux 6.7): the structures of `linux/fs.h`, and its numbers.
//!
//! The library, the command and the lab make the call each in its own way. Documentation:
//! `Documentation/admin-guide/mm/pagemap.rst` of the kernel.

use core::mem::MaybeUninit;
use core::ops::Range;

/// The request's number: `_IOWR('f', 16, struct pm_scan_arg)`, in the numbering of all but a few
/// old architectures.
pub const PAGEMAP_SCAN: u32 = 3 << 30 | (size_of::<Scan>() as u32) << 16 | (b'f' as u32) << 8 | 16;

/// The category of pages that were written since they were last write-protected.
pub const WRITTEN: u64 = 1 << 1;
/// The category of pages in RAM.
pub const PRESENT: u64 = 1 << 3;
/// The category of pages in swap.
pub const SWAPPED: u64 = 1 << 4;
/// The category of the shared page of zeros.
pub const ZERO_PAGE: u64 = 1 << 5;
/// The category of pages of a huge page.
pub const HUGE: u64 = 1 << 6;

/// The categories of pages to find, and what to do with the pages found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sought {
    /// What to do with them; 0: only to find them.
    pub flags: u64,
    /// Categories that must be absent, of those in `all_of`.
    pub inverted: u64,
    /// Categories that a page must have.
    pub all_of: u64,
    /// Categories of which a page must have one.
    pub any_of: u64,
    /// Categories that split regions and are returned with them.
    pub returned: u64,
}

/// `struct pm_scan_arg`. Addresses are in bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Where the kernel stopped; it fills this in.
    pub walk_end: u64,
    regions: u64,
    most_regions: u64,
    most_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`: addresses, and those of the requested categories that the pages have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Its categories.
    pub categories: u64,
}

impl Scan {
    /// A scan of the pages in `range`, whose answer has room for as many regions as `room`. The
    /// kernel writes to `room` while the request runs, so `room` must live until then.
    pub fn new(range: Range<usize>, sought: Sought, room: &mut [MaybeUninit<Region>]) -> Scan {
        Scan {
            size: size_of::<Scan>() as u64,
            flags: sought.flags,
            start: range.start as u64,
            end: range.end as u64,
            walk_end: 0,
            regions: room.as_mut_ptr().expose_provenance() as u64,
            most_regions: room.len() as u64,
            most_pages: 0,
            inverted: sought.inverted,
            all_of: sought.all_of,
            any_of: sought.any_of,
            returned: sought.returned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_the_kernels() {
        assert_eq!(PAGEMAP_SCAN, 0xc060_6610);
        assert_eq!(size_of::<Region>(), 24);
    }
}
