//! The kernel's price for pages that can be merged: those of a memory file in a shared mapping.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr;
use std::time::Instant;

use super::occupancy::PAGE;
use crate::figures::Figure;
use crate::stats::quantile;

/// Pages of a reading; every second one is merged into the one before.
const PAGES: usize = 512;
const READINGS: usize = 15;

/// The prices of both kinds of memory, with their names.
pub fn all() -> [(&'static str, anyhow::Result<Vec<Figure>>); 2] {
    [("anonymous", anonymous()), ("shared file", shared())]
}

const TOUCH: &str = "first touch of a page";
const GIVE: &str = "giving a page back";
const MERGE: &str = "merging a page into another";

fn anonymous() -> anyhow::Result<Vec<Figure>> {
    let (mut touch, mut give) = (Vec::new(), Vec::new());
    for _ in 0..READINGS {
        let map = Map::new(None)?;
        touch.push(timed(PAGES, || map.touch())?);
        give.push(timed(PAGES, || map.give_back())?);
    }
    Ok(vec![median(TOUCH, &touch), median(GIVE, &give)])
}

fn shared() -> anyhow::Result<Vec<Figure>> {
    let (mut touch, mut give, mut merge) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..READINGS {
        let file = memory_file()?;
        let map = Map::new(Some(&file))?;
        touch.push(timed(PAGES, || map.touch())?);
        merge.push(timed(PAGES / 2, || map.merge_pairs(&file))?);
        let map = Map::new(Some(&file))?;
        map.touch()?;
        give.push(timed(PAGES, || punch(&file, 0, PAGES * PAGE))?);
    }
    let figures = [(TOUCH, touch), (GIVE, give), (MERGE, merge)];
    Ok(figures.iter().map(|(name, ns)| median(name, ns)).collect())
}

fn median(name: &str, nanoseconds: &[f64]) -> Figure {
    Figure::nanoseconds(name, quantile(nanoseconds, 0.5))
}

/// Nanoseconds per page, for `pages` pages.
fn timed(pages: usize, action: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    action()?;
    Ok(start.elapsed().as_nanos() as f64 / pages as f64)
}

/// [`PAGES`] pages, unmapped when dropped.
struct Map(*mut u8);

impl Map {
    /// Private, or the beginning of `file`.
    fn new(file: Option<&File>) -> io::Result<Map> {
        let (flags, descriptor) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: no address is requested, so no other mapping is replaced.
        let map = unsafe { mapped(ptr::null_mut(), PAGES * PAGE, flags, descriptor, 0) }?;
        let map = Map(map);
        // SAFETY: the mapping is this value's own. Huge pages would hide the cost of a 4 KiB page.
        match unsafe { libc::madvise(map.0.cast(), PAGES * PAGE, libc::MADV_NOHUGEPAGE) } {
            0 => Ok(map),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn touch(&self) -> io::Result<()> {
        for page in 0..PAGES {
            // SAFETY: inside the mapping, which only this value accesses.
            unsafe { self.0.add(page * PAGE).write_volatile(1) };
        }
        Ok(())
    }

    fn give_back(&self) -> io::Result<()> {
        // SAFETY: the mapping is this value's own, and its contents are no longer needed.
        match unsafe { libc::madvise(self.0.cast(), PAGES * PAGE, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Merges every second page into the one before it, as Mesh does. It write-protects the page
    /// while half of it is copied, then maps both addresses to one page of the file, then gives the
    /// other page back.
    fn merge_pairs(&self, file: &File) -> io::Result<()> {
        for first in (0..PAGES).step_by(2) {
            let kept = self.0.wrapping_add(first * PAGE);
            let given = kept.wrapping_add(PAGE);
            // SAFETY: both pages are in the mapping, which is this value's own and whose contents
            // are not needed.
            unsafe {
                if libc::mprotect(given.cast(), PAGE, libc::PROT_READ) != 0 {
                    return Err(io::Error::last_os_error());
                }
                given.copy_to_nonoverlapping(kept, PAGE / 2);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                mapped(given, PAGE, flags, file.as_raw_fd(), first * PAGE)?;
            }
            punch(file, (first + 1) * PAGE, PAGE)?;
        }
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own. Failing, it stays mapped and unused.
        unsafe { libc::munmap(self.0.cast(), PAGES * PAGE) };
    }
}

/// # Safety
/// - With `MAP_FIXED`, the caller owns any mapping in the range.
unsafe fn mapped(
    at: *mut u8,
    bytes: usize,
    flags: i32,
    descriptor: i32,
    offset: usize,
) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise.
    let map = unsafe {
        libc::mmap(
            at.cast(),
            bytes,
            access,
            flags,
            descriptor,
            offset as libc::off_t,
        )
    };
    match map == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(map.cast()),
    }
}

fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"mesh".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and only this file owns it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len((PAGES * PAGE) as u64)?;
    Ok(file)
}

/// Gives pages of the file back to the kernel.
fn punch(file: &File, offset: usize, bytes: usize) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, bytes) = (offset as libc::off_t, bytes as libc::off_t);
    // SAFETY: the call takes numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_page_is_the_same_page() {
        let file = memory_file().unwrap();
        let map = Map::new(Some(&file)).unwrap();
        map.touch().unwrap();
        map.merge_pairs(&file).unwrap();
        // SAFETY: inside the mapping, which only this value accesses.
        let seen = unsafe {
            map.0.add(100).write_volatile(7);
            map.0.add(PAGE + 100).read_volatile()
        };
        assert_eq!(seen, 7);
    }

    #[test]
    fn every_price_is_there() {
        let counts = all().map(|(_, figures)| figures.unwrap().len());
        assert_eq!(counts, [2, 3]);
    }
}
