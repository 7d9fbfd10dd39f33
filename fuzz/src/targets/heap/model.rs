//! The naive heap: which blocks are live, and what they contain.

use neap_heap::watched::harden::Form;
use neap_heap::{free, malloc};
use std::collections::BTreeMap;

/// Bytes at each end of a block that are filled; all of a smaller one.
const EDGE: usize = 512;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    address: usize,
    size: usize,
    align: usize,
    seed: u8,
    entry: Entry,
}

/// The family of calls that made a block, which determines those that may free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// `malloc`, `calloc`.
    C,
    /// `aligned_alloc`.
    Aligned,
    /// Rust's allocators and C++'s, which state size and alignment.
    Layout,
}

/// A call that frees.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Plain,
    /// `free_sized`, `free_aligned_sized`, or a sized `delete`: what fits the block.
    Sized,
    /// To size 0 is no free, so this resizes to one byte first.
    Shrunk,
}

impl Way {
    /// Two numbers for each.
    pub fn of(number: u8) -> Self {
        match number % 6 {
            0 | 1 => Self::Plain,
            2 | 3 | 4 => Self::Sized,
            _ => Self::Shrunk,
        }
    }
}

impl Block {
    /// Allocates by one of ten calls, and fills the block. `None`: out of memory.
    pub fn allocate(code: u8, size: usize, align: usize, seed: u8) -> Option<Self> {
        let is_zeroed = matches!(code, 4..=6 | 9);
        let (entry, align, address) = match code {
            0..=3 => (Entry::C, 16, malloc::allocate(size)),
            4..=6 => (Entry::C, 16, malloc::allocate_zeroed(size)),
            7 => (
                Entry::Aligned,
                align.max(16),
                malloc::allocate_aligned(size, align),
            ),
            8 => (Entry::Layout, align, malloc::allocate_layout(size, align)),
            _ => (
                Entry::Layout,
                align,
                malloc::allocate_layout_zeroed(size, align),
            ),
        };
        let block = Self {
            address: address.addr(),
            size,
            align,
            seed,
            entry,
        };
        if address.is_null() {
            return None;
        }
        block.check_new();
        if is_zeroed {
            // SAFETY: a block just handed out, `size` bytes long.
            let bytes = unsafe { std::slice::from_raw_parts(address, size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "not zero: {block:?}");
        }
        block.fill();
        Some(block)
    }

    fn check_new(&self) {
        assert_eq!(self.address % self.align, 0, "not aligned: {self:?}");
        assert!(self.usable() >= self.size, "too small: {self:?}");
    }

    /// What the heap says that the block holds.
    pub fn usable(&self) -> usize {
        // SAFETY: the block is live.
        unsafe { free::usable_size(self.address as *mut u8) }
    }

    fn offsets(&self) -> impl Iterator<Item = usize> + use<> {
        let size = self.size;
        (0..size.min(EDGE)).chain(size.saturating_sub(EDGE).max(EDGE)..size)
    }

    fn byte(&self, offset: usize) -> u8 {
        self.seed.wrapping_mul(31).wrapping_add(offset as u8)
    }

    fn fill(&self) {
        for offset in self.offsets() {
            // SAFETY: the block is live and `size` bytes long.
            unsafe { *((self.address + offset) as *mut u8) = self.byte(offset) };
        }
    }

    /// Checks those of the first `bytes` bytes that were filled.
    pub fn check(&self, bytes: usize) {
        for offset in self.offsets().filter(|&offset| offset < bytes) {
            // SAFETY: the block is live, and longer than `offset`.
            let found = unsafe { *((self.address + offset) as *const u8) };
            assert_eq!(found, self.byte(offset), "byte {offset} of {self:?}");
        }
    }

    /// Resizes the block by the call of its family; `None`: out of memory, and it stays.
    pub fn resize(self, size: usize) -> Option<Self> {
        let block = self.address as *mut u8;
        // SAFETY: the block is live, and in no model.
        let moved = unsafe {
            match self.entry {
                Entry::C => malloc::reallocate_layout(block, size, 16),
                // `realloc` does not keep the alignment.
                Entry::Aligned => malloc::reallocate_layout(block, size, 16),
                Entry::Layout => malloc::reallocate_layout(block, size, self.align),
            }
        };
        if moved.is_null() {
            self.check(self.size);
            return None;
        }
        let (entry, align) = match self.entry {
            Entry::Layout => (Entry::Layout, self.align),
            _ => (Entry::C, 16),
        };
        let before = Self {
            address: moved.addr(),
            ..self
        };
        before.check(size.min(self.size));
        let after = Self {
            size,
            entry,
            align,
            ..before
        };
        after.check_new();
        after.fill();
        Some(after)
    }

    /// Checks the block, and gives it back.
    pub fn free(self, way: Way) {
        self.check(self.size);
        let block = self.address as *mut u8;
        // SAFETY: the block is live, and in no model. The sizes are those that it was made with.
        unsafe {
            match (way, self.entry) {
                (Way::Plain, _) => free::free(block),
                (Way::Sized, Entry::C) => free::free_sized(block, self.size),
                (Way::Sized, Entry::Aligned) => {
                    free::free_aligned_sized(block, self.align, self.size)
                }
                (Way::Sized, Entry::Layout) => {
                    free::free_deleted(block, self.size, self.align, Form::Any)
                }
                (Way::Shrunk, _) => match self.resize(1) {
                    Some(small) => free::free(small.address as *mut u8),
                    None => free::free(block),
                },
            }
        }
    }
}

/// The live blocks of one thread's model.
#[derive(Default)]
pub struct Model {
    blocks: BTreeMap<usize, Block>,
    live: usize,
}

impl Model {
    /// Requested bytes.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Whether no block is live.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// What the heap says that all blocks hold.
    pub fn usable(&self) -> usize {
        self.blocks.values().map(Block::usable).sum()
    }

    /// Adds a block, which overlaps none.
    pub fn add(&mut self, block: Block) {
        self.check_apart(block.address, block.address + block.size.max(1));
        self.live += block.size;
        self.blocks.insert(block.address, block);
    }

    /// No block has a byte in the range.
    pub fn check_apart(&self, from: usize, to: usize) {
        if let Some((_, before)) = self.blocks.range(..to).next_back() {
            let end = before.address + before.size.max(1);
            assert!(end <= from, "{before:?} overlaps {from:#x} to {to:#x}");
        }
    }

    /// Takes a block out, if there is any.
    pub fn take(&mut self, which: usize) -> Option<Block> {
        let &address = self.blocks.keys().nth(which % self.blocks.len().max(1))?;
        let block = self.blocks.remove(&address)?;
        self.live -= block.size;
        Some(block)
    }

    /// Writes to all that the heap says a block holds.
    pub fn check_usable(&mut self, which: usize) {
        if let Some(block) = self.take(which) {
            block.check(block.size);
            let block = Block {
                size: block.usable(),
                ..block
            };
            // A size that the caller did not state cannot be stated at the end.
            let entry = match block.entry {
                Entry::Layout => Entry::Layout,
                _ => Entry::C,
            };
            let block = Block { entry, ..block };
            block.fill();
            self.add(block);
        }
    }

    /// Checks and frees all blocks.
    pub fn free_all(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        self.live = 0;
        blocks
            .into_values()
            .for_each(|block| block.free(Way::Plain));
    }

    /// In a fork's child: all blocks are as they were, and the heap works.
    pub fn work_in_child(&mut self, is_limited: bool) {
        self.blocks
            .values()
            .for_each(|block| block.check(block.size));
        for (number, size) in [24, 700, 40_000, 300_000].into_iter().enumerate() {
            match Block::allocate(number as u8 * 2, size, 1, number as u8) {
                Some(block) => block.free(Way::Sized),
                None => assert!(is_limited, "out of memory in a fork's child"),
            }
        }
        self.free_all();
    }
}
