//! Memory of a known state, straight from the kernel.

use std::io;
use std::ops::Range;
use std::ptr;

use super::stores;
use super::ways::{FIRST, Holding};
use crate::pagemap::page_size;

/// Private anonymous memory without huge pages, unmapped when dropped.
pub struct Block {
    start: *mut u8,
    bytes: usize,
    /// What is populated; `None` after an act that changes it, until [`Block::hold`].
    holding: Option<Holding>,
}

impl Block {
    /// Maps `bytes` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(bytes: usize) -> io::Result<Block> {
        Ok(Block {
            start: map(bytes)?,
            bytes,
            holding: Some(Holding::Nothing),
        })
    }

    /// Its address range.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.addr();
        start..start + self.bytes
    }

    /// Populates and purges until exactly `wanted` is populated.
    ///
    /// # Errors
    /// If the kernel refuses a step.
    pub fn hold(&mut self, wanted: Holding) -> io::Result<()> {
        if self.holding == Some(wanted) {
            return Ok(());
        }
        self.holding = None;
        match wanted {
            Holding::Nothing => self.renew()?,
            Holding::First => {
                self.renew()?;
                self.touch(FIRST.min(self.bytes));
            }
            Holding::All => self.touch(self.bytes),
            Holding::GivenBack => {
                self.touch(self.bytes);
                self.discard()?;
            }
        }
        self.holding = Some(wanted);
        Ok(())
    }

    /// Replaces the memory by memory that was never touched.
    fn renew(&mut self) -> io::Result<()> {
        // Make the new mapping first, so that a refusal leaves the block unchanged.
        let fresh = map(self.bytes)?;
        // SAFETY: the old mapping is the block's own, and no reference into it exists.
        unsafe { unmap(self.start, self.bytes) };
        self.start = fresh;
        Ok(())
    }

    /// Writes one byte into every page.
    pub fn touch_all(&mut self) {
        self.holding = None;
        self.touch(self.bytes);
    }

    fn touch(&mut self, bytes: usize) {
        for offset in (0..bytes).step_by(page_size() as usize) {
            // SAFETY: `bytes` is at most the block's length, so the byte lies in the mapping.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }

    /// Gives every page back to the kernel.
    ///
    /// # Errors
    /// If the kernel refuses, as for locked memory.
    pub fn discard(&mut self) -> io::Result<()> {
        let kept = self.holding.filter(|&holding| holding == Holding::Nothing);
        self.holding = kept;
        // SAFETY: the mapping is the block's own, and no caller relies on its contents.
        let rc = unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_DONTNEED) };
        match rc {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Zeroes every byte with the C library's memset.
    pub fn memset(&mut self) {
        // SAFETY: the mapping is the block's own and writable.
        unsafe { libc::memset(self.start.cast(), 0, self.bytes) };
    }

    /// Zeroes every byte bypassing the caches; false if the processor lacks such stores.
    pub fn stream(&mut self) -> bool {
        // SAFETY: the mapping is the block's own, writable, and starts at a page.
        unsafe { stores::stream(self.start, self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping is the block's own, which is being dropped.
        unsafe { unmap(self.start, self.bytes) };
    }
}

fn map(bytes: usize) -> io::Result<*mut u8> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping where the kernel likes touches no other.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A kernel without huge pages refuses the advice and does not need it. SAFETY: advice about the
    // new mapping.
    unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(start.cast())
}

/// # Safety
/// - `map(bytes)` gave `start`, and the mapping is no longer in use.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(start.cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::super::pagemap::Pagemap;
    use super::*;

    const BYTES: usize = 1 << 20;

    impl Block {
        fn is_zero(&self) -> bool {
            // SAFETY: the mapping is readable, and borrowed.
            let bytes = unsafe { std::slice::from_raw_parts(self.start, self.bytes) };
            bytes.iter().all(|&byte| byte == 0)
        }

        fn fill(&mut self) {
            // SAFETY: the mapping is the block's own and writable.
            unsafe { self.start.write_bytes(7, self.bytes) };
        }
    }

    #[test]
    fn a_block_holds_what_was_wanted_in_any_order() {
        let map = Pagemap::open().unwrap();
        let all = [
            Holding::Nothing,
            Holding::First,
            Holding::All,
            Holding::GivenBack,
        ];
        let mut block = Block::new(BYTES).unwrap();
        for wanted in all.into_iter().chain(all.into_iter().rev()) {
            block.hold(wanted).unwrap();
            let told = map.read_words(block.addresses()).unwrap();
            let pages = wanted.bytes(BYTES) as u64 / page_size();
            assert_eq!(told, pages, "{wanted:?}");
        }
    }

    #[test]
    fn what_an_act_changed_is_held_again() {
        let map = Pagemap::open().unwrap();
        let mut block = Block::new(BYTES).unwrap();
        block.hold(Holding::All).unwrap();
        block.discard().unwrap();
        block.hold(Holding::All).unwrap();
        let pages = BYTES as u64 / page_size();
        assert_eq!(map.read_words(block.addresses()).unwrap(), pages);
        block.hold(Holding::GivenBack).unwrap();
        block.touch_all();
        block.hold(Holding::GivenBack).unwrap();
        assert_eq!(map.read_words(block.addresses()).unwrap(), 0);
    }

    #[test]
    fn both_stores_make_all_of_it_zero() {
        let mut block = Block::new(BYTES).unwrap();
        block.fill();
        block.memset();
        assert!(block.is_zero());
        block.fill();
        assert_eq!(block.stream(), cfg!(target_arch = "x86_64"));
        assert_eq!(block.is_zero(), cfg!(target_arch = "x86_64"));
    }
}
