//! Which pages of this process are populated, written or huge.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, ensure};
use neap_shared::pagemap::{
    HUGE, PAGEMAP_SCAN, PRESENT, Region, SWAPPED, Scan, Sought, WRITTEN, ZERO_PAGE,
};

/// Mark the pages that match.
const MARK: u64 = 1 << 0;
/// Fail if marks are not possible.
const MARKS_NEEDED: u64 = 1 << 1;

/// The pages to find.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// Resident or swapped, except the kernel's zero page.
    Populated,
    /// The same without a mark.
    Written,
    /// Mapped by a huge page.
    Huge,
    /// Populated, including the zero page, because a write to it is a write. The scan marks them.
    /// (A scan that returns no regions would also mark unpopulated pages, whatever its categories.)
    Marked,
}

impl Wanted {
    fn sought(self) -> Sought {
        let (inverted, all_of, any_of) = match self {
            Wanted::Populated => (ZERO_PAGE, ZERO_PAGE, PRESENT | SWAPPED),
            Wanted::Written => (ZERO_PAGE, ZERO_PAGE | WRITTEN, PRESENT | SWAPPED),
            Wanted::Huge => (0, HUGE | PRESENT, 0),
            Wanted::Marked => (0, 0, PRESENT | SWAPPED),
        };
        let flags = match self {
            Wanted::Marked => MARK | MARKS_NEEDED,
            Wanted::Populated | Wanted::Written | Wanted::Huge => 0,
        };
        Sought {
            flags,
            inverted,
            all_of,
            any_of,
            returned: WRITTEN | PRESENT | SWAPPED,
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

    /// Like [`PageMap::ranges`], one by one and without the heap.
    pub fn each_range(
        &self,
        start: u64,
        end: u64,
        wanted: Wanted,
        mut tell: impl FnMut(u64, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut at = start;
        let mut room = [const { MaybeUninit::<Region>::uninit() }; 512];
        while at < end {
            let mut scan = Scan::new(at as usize..end as usize, wanted.sought(), &mut room);
            // SAFETY: the argument is the structure that the request names, with its own size in
            // it, and says how many regions `room` holds.
            let count =
                unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut scan) };
            let stopped = scan.walk_end;
            let count = usize::try_from(count).map_err(|_| std::io::Error::last_os_error());
            for region in &room[..count.context("PAGEMAP_SCAN (Linux 6.7)")?] {
                // SAFETY: the kernel filled in as many regions as it returned.
                let region = unsafe { region.assume_init_ref() };
                tell(region.start, region.end)?;
            }
            ensure!(stopped > at, "PAGEMAP_SCAN stands still");
            at = stopped;
        }
        Ok(())
    }

    /// Marks every populated page of `start..end`, and no other.
    pub fn mark(&self, start: u64, end: u64) -> anyhow::Result<()> {
        self.each_range(start, end, Wanted::Marked, |_, _| Ok(()))
    }
}

/// Bytes of an OS page.
pub fn page_size() -> u64 {
    procfs::page_size()
}
