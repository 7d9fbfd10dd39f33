//! Whether the kernel says which pages were touched, so that `calloc` can clear only those.

use super::effect;
use super::map::Map;
use crate::table::Finding;
use neap_shared::pagemap::{self, PAGEMAP_SCAN, Region, Scan, Sought};
use rustix::param::page_size;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The findings.
pub fn findings() -> Vec<Finding> {
    let (by_scan, by_entry) = (
        "shows which pages were touched",
        "shows it without PAGEMAP_SCAN",
    );
    vec![
        Finding::tried("PAGEMAP_SCAN", scan(), by_scan),
        Finding::tried("/proc/self/pagemap", entry(), by_entry),
    ]
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
    let own = entries
        .iter()
        .map(|entry| u64::from_ne_bytes(*entry) & OWN == OWN);
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
