//! A thread's freed blocks on their way to quarantine (hardened mode).
//!
//! Blocks wait in the lines of the quarantine, each of which has a lock. A thread brings its freed
//! blocks to its line [`MOST`] at a time, so that it seldom takes the lock. In return, the oldest
//! blocks of the line go into the thread's magazines.

use super::magazine::Tag;
use crate::slab::class::Class;
use core::ptr::NonNull;

/// The most blocks that a thread holds back before it brings them to quarantine.
pub const MOST: usize = 64;

/// A thread that holds back this many bytes brings its blocks earlier.
pub const MOST_BYTES: usize = 64 << 10;

/// Blocks with canaries that the program freed, at most [`MOST`].
#[derive(Clone, Debug)]
pub struct Blocks {
    count: usize,
    bytes: usize,
    /// The address of each block, and in the highest bits the tag of its class.
    words: [u64; MOST],
}

/// The lowest bit of the tag in a word. Addresses have fewer bits.
const TAG_SHIFT: u32 = 56;

impl Blocks {
    /// No blocks.
    pub const fn none() -> Blocks {
        Blocks {
            count: 0,
            bytes: 0,
            words: [0; MOST],
        }
    }

    /// How many blocks there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the thread must bring them now, because there is no room for more, or because they
    /// have enough bytes.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count == MOST || self.bytes >= MOST_BYTES
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        (self.count, self.bytes) = (0, 0);
    }

    /// Adds a block. There must be room.
    pub fn push(&mut self, address: usize, class: Class) {
        let is_pushed = self.push_tagged(address, Tag::of(class), class.bytes());
        debug_assert!(is_pushed);
    }

    /// Adds a block of `bytes` bytes. False if there is no room.
    #[inline(always)]
    pub(super) fn push_tagged(&mut self, address: usize, tag: Tag, bytes: usize) -> bool {
        debug_assert!(address >> TAG_SHIFT == 0);
        let Some(word) = self.words.get_mut(self.count) else {
            return false;
        };
        *word = address as u64 | u64::from(tag.byte()) << TAG_SHIFT;
        self.count += 1;
        self.bytes += bytes;
        true
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
        self.tagged()
            .map(move |(address, tag)| (address, class(tag)))
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
            .take(MOST / 2)
            .enumerate()
            .map(|(number, class)| ((1 << 46) + number * 16, class))
            .collect();
        for &(address, class) in &put {
            blocks.push(address, class);
        }
        assert_eq!(blocks.iter().collect::<Vec<_>>(), put);
        assert_eq!(
            blocks.bytes(),
            put.iter().map(|(_, class)| class.bytes()).sum()
        );
    }
}
