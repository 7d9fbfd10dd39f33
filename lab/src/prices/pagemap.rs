//! Queries to the kernel in the same form as the allocator's. (The watch of `work::pagemap`
//! searches for marks and has a larger buffer, which would add to the price.)

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::pagemap::page_size;
use crate::scan::{PRESENT, Region, SWAPPED, Sought, ZERO_PAGE, ask};

/// Regions per call.
const MOST_REGIONS: usize = 128;

/// Words per call, one per page: 4 KiB.
const MOST_WORDS: usize = 512;
/// The bits of a word that say "present" and "swapped".
const WORD_POPULATED: u64 = 3 << 62;

/// The kernel's file with this process's pages.
const PATH: &std::ffi::CStr = c"/proc/self/pagemap";

/// The page map of this process, open.
pub struct Pagemap(File);

impl Pagemap {
    /// # Errors
    /// If there is no /proc, or this process may not read the file.
    pub fn open() -> io::Result<Pagemap> {
        Pagemap::open_at(Path::new("/proc/self/pagemap"))
    }

    fn open_at(path: &Path) -> io::Result<Pagemap> {
        File::open(path).map(Pagemap)
    }

    /// The populated pages of a range, except the zero page, by `PAGEMAP_SCAN`.
    ///
    /// # Errors
    /// If the kernel refuses: `ENOTTY` before Linux 6.7.
    pub fn scan(&self, range: Range<usize>) -> io::Result<u64> {
        let (mut at, end, mut bytes) = (range.start as u64, range.end as u64, 0);
        while at < end {
            let (told, stopped) = self.scan_once(at, end)?;
            bytes += told;
            at = match stopped > at {
                true => stopped,
                false => return Err(io::Error::other("PAGEMAP_SCAN stands still")),
            };
        }
        Ok(bytes / page_size())
    }

    /// Populated bytes, and where the kernel stopped.
    fn scan_once(&self, start: u64, end: u64) -> io::Result<(u64, u64)> {
        let mut room = [const { MaybeUninit::<Region>::uninit() }; MOST_REGIONS];
        let sought = Sought {
            flags: 0,
            inverted: ZERO_PAGE,
            all_of: ZERO_PAGE,
            any_of: PRESENT | SWAPPED,
            returned: SWAPPED,
        };
        let told = ask(&self.0, start..end, sought, &mut room)?;
        let bytes = told.regions.iter().map(|region| region.end - region.start);
        Ok((bytes.sum(), told.end))
    }

    /// The populated pages of a range, including the zero page, by their words in the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_words(&self, range: Range<usize>) -> io::Result<u64> {
        let page = page_size() as usize;
        let (mut next, end, mut populated) = (range.start / page, range.end / page, 0);
        while next < end {
            let pages = (end - next).min(MOST_WORDS);
            populated += self.read_once(next, pages)?;
            next += pages;
        }
        Ok(populated)
    }

    fn read_once(&self, first: usize, pages: usize) -> io::Result<u64> {
        let mut words = [0u64; MOST_WORDS];
        let wanted = pages.min(MOST_WORDS) * size_of::<u64>();
        let offset = (first * size_of::<u64>()) as libc::off64_t;
        let file = self.0.as_raw_fd();
        // SAFETY: the buffer has room for `wanted` bytes.
        let got = unsafe { libc::pread64(file, words.as_mut_ptr().cast(), wanted, offset) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if got != wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_populated = |word: &&u64| **word & WORD_POPULATED != 0;
        Ok(words[..pages].iter().filter(is_populated).count() as u64)
    }

    /// `fstat` of the descriptor.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn status(&self) -> io::Result<()> {
        let mut status = MaybeUninit::<libc::stat64>::uninit();
        // SAFETY: the structure is the one that the call fills in.
        checked(unsafe { libc::fstat64(self.0.as_raw_fd(), status.as_mut_ptr()) }).map(drop)
    }
}

/// Opens the file and closes it, by only these two system calls.
///
/// # Errors
/// If it cannot be opened.
pub fn open_and_close() -> io::Result<()> {
    // SAFETY: the path is a C string.
    let number = unsafe { libc::open64(PATH.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let number = checked(number)?;
    // SAFETY: the descriptor is new, and only this function has it.
    checked(unsafe { libc::close(number) }).map(drop)
}

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    match answer {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::super::ways::Holding;
    use super::*;

    #[test]
    fn both_questions_tell_the_populated_pages_across_many_calls() {
        let map = Pagemap::open().unwrap();
        // More pages than the words of two calls.
        let pages = 2 * MOST_WORDS + 3;
        let mut block = Block::new(pages * page_size() as usize).unwrap();
        let scans = |block: &Block| match map.scan(block.addresses()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => None,
            told => Some(told.unwrap()),
        };
        for (holding, populated) in [
            (Holding::Nothing, 0),
            (Holding::First, (64 << 10) / page_size()),
            (Holding::All, pages as u64),
        ] {
            block.hold(holding).unwrap();
            assert_eq!(map.read_words(block.addresses()).unwrap(), populated);
            assert!(scans(&block).is_none_or(|told| told == populated));
        }
    }

    #[test]
    fn a_file_that_is_no_pagemap_is_told_apart_and_an_absent_one_too() {
        let other = Pagemap::open_at(Path::new("/dev/null")).unwrap();
        let error = other.scan(0..page_size() as usize).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(other.read_words(0..page_size() as usize).is_err());
        let absent = Pagemap::open_at(Path::new("/no-such-folder/pagemap"));
        assert_eq!(
            absent.err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn the_descriptor_has_a_status_and_opens_again_and_again() {
        assert!(Pagemap::open().unwrap().status().is_ok());
        assert!((0..5_000).all(|_| open_and_close().is_ok()));
    }
}
