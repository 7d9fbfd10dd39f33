//! `PAGEMAP_SCAN` (Linux 6.7): which pages of this process are populated, written, huge.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, ensure};

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`: addresses, and the categories that were asked for.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
const WRITTEN: u64 = 1 << 1;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO_PAGE: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;
/// Mark what matches.
const MARK: u64 = 1 << 0;
/// Fail where marks are not possible.
const MARKS_NEEDED: u64 = 1 << 1;

/// What a scan looks for.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// In memory or in the swap, the kernel's zero page aside.
    Populated,
    /// The same, and no mark.
    Written,
    /// Mapped by a huge page.
    Huge,
    /// Populated, the zero page too: a write to it is a write. The scan marks them. (A scan
    /// that returns no regions would mark unpopulated pages as well, whatever it looks for.)
    Marked,
}

impl Wanted {
    /// `inverted`, `all_of` and `any_of` of the arguments.
    fn masks(self) -> (u64, u64, u64) {
        match self {
            Wanted::Populated => (ZERO_PAGE, ZERO_PAGE, PRESENT | SWAPPED),
            Wanted::Written => (ZERO_PAGE, ZERO_PAGE | WRITTEN, PRESENT | SWAPPED),
            Wanted::Huge => (0, HUGE | PRESENT, 0),
            Wanted::Marked => (0, 0, PRESENT | SWAPPED),
        }
    }

    fn flags(self) -> u64 {
        match self {
            Wanted::Marked => MARK | MARKS_NEEDED,
            Wanted::Populated | Wanted::Written | Wanted::Huge => 0,
        }
    }
}

/// The page map of this process.
pub struct PageMap(File);

impl PageMap {
    pub fn open() -> anyhow::Result<PageMap> {
        let file = File::open("/proc/self/pagemap").context("cannot open /proc/self/pagemap")?;
        Ok(PageMap(file))
    }

    /// The address ranges within `start..end` whose pages are `wanted`, in order.
    pub fn ranges(&self, start: u64, end: u64, wanted: Wanted) -> anyhow::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        self.each_range(start, end, wanted, |from, to| {
            found.push((from, to));
            Ok(())
        })?;
        Ok(found)
    }

    /// The same, one by one and without the heap.
    pub fn each_range(
        &self,
        start: u64,
        end: u64,
        wanted: Wanted,
        mut tell: impl FnMut(u64, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut at = start;
        let mut regions = [Region::default(); 512];
        while at < end {
            let mut arguments = arguments(at, end, wanted);
            arguments.regions = regions.as_mut_ptr() as u64;
            arguments.regions_len = regions.len() as u64;
            let count = self.scan(&mut arguments)?;
            for region in &regions[..count] {
                tell(region.start, region.end)?;
            }
            ensure!(arguments.walk_end > at, "PAGEMAP_SCAN stands still");
            at = arguments.walk_end;
        }
        Ok(())
    }

    /// Marks every populated page of `start..end`, and no other.
    pub fn mark(&self, start: u64, end: u64) -> anyhow::Result<()> {
        self.each_range(start, end, Wanted::Marked, |_, _| Ok(()))
    }

    /// The number of regions filled in.
    fn scan(&self, arguments: &mut ScanArguments) -> anyhow::Result<usize> {
        // SAFETY: the argument is the structure that the request names, with its own size in it,
        // and `regions` is null or has room for `regions_len` entries.
        let count = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                PAGEMAP_SCAN,
                std::ptr::from_mut(arguments),
            )
        };
        let why = std::io::Error::last_os_error();
        usize::try_from(count)
            .map_err(|_| why)
            .context("PAGEMAP_SCAN (Linux 6.7)")
    }
}

fn arguments(start: u64, end: u64, wanted: Wanted) -> ScanArguments {
    let (inverted, all_of, any_of) = wanted.masks();
    ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        flags: wanted.flags(),
        start,
        end,
        inverted,
        all_of,
        any_of,
        returned: WRITTEN | PRESENT | SWAPPED,
        ..ScanArguments::default()
    }
}

/// Bytes of an OS page.
pub fn page_size() -> u64 {
    // SAFETY: the call has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4_096)
}
