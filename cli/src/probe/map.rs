//! Memory for trials.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::param::page_size;
use std::{io, ptr};

/// Private anonymous memory, unmapped when dropped.
pub struct Map {
    base: *mut u8,
    length: usize,
}

impl Map {
    /// `pages` readable and writable OS pages.
    pub fn pages(pages: usize) -> io::Result<Self> {
        Self::new(pages * page_size(), ProtFlags::READ | ProtFlags::WRITE)
    }

    /// `length` bytes of inaccessible address space.
    pub fn reserved(length: usize) -> io::Result<Self> {
        Self::new(length, ProtFlags::empty())
    }

    fn new(length: usize, protection: ProtFlags) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED, a new mapping replaces no other one.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, flags) }?.cast();
        Ok(Self { base, length })
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// The number of bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes to the first byte of an OS page of [`Self::pages`].
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn touch(&self, page: usize) {
        let offset = page * page_size();
        assert!(offset < self.length);
        // SAFETY: the byte is inside the mapping, which only this value refers to.
        unsafe { self.base.add(offset).write_volatile(1) };
    }

    /// Calls `madvise` on all of it.
    pub fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping, which only this value refers to and accesses, always
        // by volatile operations.
        match unsafe { libc::madvise(self.base.cast(), self.length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the range, and only this value refers to it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
