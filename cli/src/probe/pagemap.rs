//! Whether the kernel says which pages were touched, so that `calloc` can clear only those.

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
    let scan = scan();
    let known = scan.is_ok();
    let without = "what was touched must be read from pagemap entries";
    let by_scan = Finding::tried(
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
    let by_entry = Finding::tried(
        "/proc/self/pagemap",
        entry(),
        meaning,
        "without PAGEMAP_SCAN either, large reused blocks are cleared whole",
    );
    vec![by_scan, by_entry]
}

fn right(answer: bool) -> io::Result<()> {
    match answer {
        true => Ok(()),
        false => Err(io::Error::other("wrong answer")),
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
fn entry() -> io::Result<()> {
    const PRESENT: u64 = 1 << 63;
    let map = sample()?;
    let mut entries = [0; 32];
    let offset = map.base() as u64 / page_size() as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, offset)?;
    let present: Vec<bool> = entries
        .chunks_exact(8)
        .map(|entry| u64::from_ne_bytes(entry.try_into().expect("eight bytes")) & PRESENT != 0)
        .collect();
    right(present == [false, false, true, false])
}

/// Whether the scan finds only the third page.
fn scan() -> io::Result<()> {
    let map = sample()?;
    let (start, page) = (map.base() as usize, page_size());
    let mut regions = [const { MaybeUninit::<Region>::uninit() }; 4];
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
    match found {
        ..=-1 => Err(io::Error::last_os_error()),
        1 => {
            // SAFETY: the kernel filled in the one region that it returned.
            let only = unsafe { regions[0].assume_init() };
            let third = start as u64 + 2 * page as u64;
            right((only.start, only.end) == (third, third + page as u64))
        }
        _ => right(false),
    }
}
