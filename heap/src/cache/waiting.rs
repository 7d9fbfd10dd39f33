//! A thread's freed blocks on their way to quarantine (hardened mode).
//!
//! The quarantine is the process's, and has a lock. A thread brings its freed blocks there
//! [`MOST`] at a time, and takes as many of the oldest ones along.

use super::flush::give_one;
use super::heap::Heap;
use super::magazine::Tag;
use super::thread_cache::{AtWork, Cache, Opened};
use crate::slab::class::Class;
use core::ptr::NonNull;

/// The most blocks that a thread holds back before it brings them to quarantine.
pub const MOST: usize = 64;

/// Blocks with canaries that the program freed, at most [`MOST`].
#[derive(Clone, Debug)]
pub struct Blocks {
    count: usize,
    bytes: usize,
    /// The address, and in the highest bits the tag of its class.
    words: [u64; MOST],
}

/// Addresses have fewer bits.
const TAG_SHIFT: u32 = 56;

/// Bytes of the memory for a thread's blocks.
const BYTES: usize = size_of::<Blocks>();

impl Blocks {
    /// None.
    pub const fn none() -> Blocks {
        Blocks {
            count: 0,
            bytes: 0,
            words: [0; MOST],
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for no more.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count == MOST
    }

    /// Removes all.
    pub fn clear(&mut self) {
        (self.count, self.bytes) = (0, 0);
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, address: usize, class: Class) {
        self.push_tagged(address, Tag::of(class), class.bytes());
    }

    /// Adds a block of `bytes` bytes, if there is room.
    #[inline(always)]
    fn push_tagged(&mut self, address: usize, tag: Tag, bytes: usize) {
        debug_assert!(!self.is_full() && address >> TAG_SHIFT == 0);
        if let Some(word) = self.words.get_mut(self.count) {
            *word = address as u64 | u64::from(tag.byte()) << TAG_SHIFT;
            self.count += 1;
            self.bytes += bytes;
        }
    }

    /// The addresses and the tags of the classes.
    #[inline(always)]
    pub(super) fn tagged(&self) -> impl Iterator<Item = (usize, Tag)> + '_ {
        let words = self.words.get(..self.count).unwrap_or_default();
        words.iter().map(|word| {
            // SAFETY: the highest byte is a tag's.
            let tag = unsafe { Tag::from_byte((word >> TAG_SHIFT) as u8) };
            ((word & ((1 << TAG_SHIFT) - 1)) as usize, tag)
        })
    }

    /// The addresses and classes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Class)> + '_ {
        let class = |tag: Tag| tag.class().unwrap_or(Class::LAST);
        self.tagged().map(move |(address, tag)| (address, class(tag)))
    }
}

impl AtWork<'_> {
    /// Whether the thread may hold back a block now.
    #[inline(always)]
    pub(crate) fn can_hold(&self) -> bool {
        self.inner.waiting.is_some()
    }

    /// Holds a freed block back, if the thread [may](AtWork::can_hold). True if it is then to bring
    /// what it holds to quarantine.
    #[inline(always)]
    pub(crate) fn hold(&mut self, address: usize, tag: Tag, bytes: usize) -> bool {
        let Some(mut blocks) = self.inner.waiting else {
            return false;
        };
        // SAFETY: the thread's own memory, which others reach while it has no turn.
        let blocks = unsafe { blocks.as_mut() };
        blocks.push_tagged(address, tag, bytes);
        blocks.is_full()
    }
}

impl Opened<'_> {
    /// Bytes of the freed blocks that the thread holds back.
    pub fn waiting_bytes(&self) -> usize {
        // SAFETY: the thread's own memory; the lock is held, and the owner has no turn.
        let blocks = self.inner.waiting.map(|blocks| unsafe { blocks.as_ref() });
        blocks.map_or(0, Blocks::bytes)
    }

    /// Takes the blocks that the thread holds back.
    fn take_waiting(&mut self) -> Blocks {
        match self.inner.waiting {
            Some(mut waiting) => {
                // SAFETY: as above.
                let waiting = unsafe { waiting.as_mut() };
                let blocks = waiting.clone();
                waiting.clear();
                blocks
            }
            None => Blocks::none(),
        }
    }
}

impl Heap {
    /// Gives the calling thread memory for blocks that it holds back, if it has none.
    #[cold]
    pub(crate) fn prepare_waiting(&'static self, cache: &Cache) {
        let Some(open) = cache.open_own().filter(|open| open.inner.waiting.is_none()) else {
            return;
        };
        if let Some(memory) = self.take_meta(BYTES) {
            let blocks = memory.cast::<Blocks>();
            // SAFETY: taken above, for that many bytes; metadata is at a multiple of 8.
            unsafe { blocks.write(Blocks::none()) };
            open.inner.waiting = Some(blocks);
        }
    }

    /// Takes the blocks that the calling thread holds back.
    pub(crate) fn take_waiting(&self, cache: &Cache) -> Blocks {
        let open = cache.open_own();
        open.map_or(Blocks::none(), |mut open| open.take_waiting())
    }

    /// Gives blocks back to their slabs.
    ///
    /// # Safety
    /// - The program freed them, and nothing uses them any more.
    pub(crate) unsafe fn give_all(&'static self, blocks: &Blocks) {
        for (address, _) in blocks.iter() {
            // SAFETY: the caller's promise.
            unsafe { give_one(self, address) };
        }
    }

    /// At the end of a thread: its memory for blocks goes back. Returns the blocks, which are then
    /// to be brought to quarantine.
    pub(super) fn end_waiting(&'static self, open: &mut Opened<'_>) -> Blocks {
        let blocks = open.take_waiting();
        if let Some(memory) = open.inner.waiting.take() {
            // SAFETY: taken in `prepare_waiting` for as many bytes; the blocks were copied.
            unsafe { self.give_meta(memory.cast(), BYTES) };
        }
        blocks
    }
}

/// Where a thread notes the blocks that it holds back.
pub(super) type Place = Option<NonNull<Blocks>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_come_with_their_classes() {
        let mut blocks = Blocks::none();
        let put: Vec<_> = Class::all()
            .take(MOST)
            .enumerate()
            .map(|(number, class)| ((1 << 46) + number * 16, class))
            .collect();
        for &(address, class) in &put {
            blocks.push(address, class);
        }
        assert_eq!(blocks.iter().collect::<Vec<_>>(), put);
        assert_eq!(blocks.bytes(), put.iter().map(|(_, class)| class.bytes()).sum());
    }
}
