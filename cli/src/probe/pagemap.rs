//! Whether the kernel tells which pages were touched, so that `calloc` can clear only those.

use super::map::{Map, page_size};
use crate::table::{Finding, State};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The findings.
pub fn findings() -> Vec<Finding> {
    let scan = scan();
    let known = matches!(scan, Ok(true));
    let without = "what was touched must be read from pagemap entries";
    let by_scan = finding(
        "PAGEMAP_SCAN",
        scan,
        "large reused blocks can be cleared only where they were touched",
        without,
    );
    let meaning = if known {
        "not needed: PAGEMAP_SCAN is there"
    } else {
        "large reused blocks can be cleared only where they were touched"
    };
    let by_entry = finding(
        "/proc/self/pagemap",
        entry(),
        meaning,
        "without PAGEMAP_SCAN either, large reused blocks are cleared whole",
    );
    vec![by_scan, by_entry]
}

fn finding(
    name: &'static str,
    tried: io::Result<bool>,
    with: &'static str,
    without: &'static str,
) -> Finding {
    match tried {
        Ok(true) => Finding::new(name, State::Ok(String::new()), with),
        Ok(false) => Finding::new(name, State::Absent("wrong answer".to_owned()), without),
        Err(error) => Finding::new(name, State::Absent(error.to_string()), without),
    }
}

/// Four pages of which the third is touched.
fn sample() -> io::Result<Map> {
    let map = Map::pages(4)?;
    let _ = map.advise(libc::MADV_NOHUGEPAGE);
    map.touch(2);
    Ok(map)
}

/// Whether only the third page's entry says "present".
fn entry() -> io::Result<bool> {
    const PRESENT: u64 = 1 << 63;
    let map = sample()?;
    let mut entries = [0; 32];
    let offset = map.base() as u64 / page_size() as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, offset)?;
    let present: Vec<bool> = entries
        .chunks_exact(8)
        .map(|entry| u64::from_ne_bytes(entry.try_into().expect("eight bytes")) & PRESENT != 0)
        .collect();
    Ok(present == [false, false, true, false])
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)` in the numbering of all but a few old architectures.
const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// Whether the scan finds only the third page.
fn scan() -> io::Result<bool> {
    let map = sample()?;
    let (start, page) = (map.base() as u64, page_size() as u64);
    let mut regions = [Region::default(); 4];
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start,
        end: start + map.length() as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_length: regions.len() as u64,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..ScanArgument::default()
    };
    let pagemap = File::open("/proc/self/pagemap")?;
    // SAFETY: the argument is laid out as the kernel's and says where the regions are and
    // how many there is room for; both outlive the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
    match found {
        ..0 => Err(io::Error::last_os_error()),
        found => Ok(found == 1
            && (regions[0].start, regions[0].end) == (start + 2 * page, start + 3 * page)),
    }
}
