//! Memory for Neap's own data: caches, magazine arrays, samples.
//!
//! These are blocks of slabs, like a program's, in depots of their own. Their slices carry no tag,
//! so `free` refuses their addresses. A slice whose blocks are all free goes back to the page heap,
//! so the memory of ended threads can be reused for anything, or decays.

use super::class::Class;
use super::depot::Depots;
use super::slab::{Slab, Source};
use crate::base::units::SLICE_BYTES;
use core::ptr::NonNull;

/// The least block, in bytes.
const LEAST_BYTES: usize = 64;

/// The depots of the slabs that hold metadata.
pub struct Metadata {
    depots: Depots,
}

impl Metadata {
    /// No slabs.
    pub const fn new() -> Metadata {
        Metadata {
            depots: Depots::of_metadata(),
        }
    }

    /// Metadata of at least `bytes` bytes (at most 32 KiB) at a multiple of 8; contents undefined.
    /// `None` when out of memory.
    pub fn take<S: Source>(&self, bytes: usize, source: &S) -> Option<NonNull<u8>> {
        let class = class_for(bytes);
        let mut block = 0;
        self.depots.take(class, 1, source, &mut |slab, claim| {
            let number = claim.word * 64 + claim.bits.trailing_zeros() as usize;
            block = slab.base() + number * class.bytes();
        });
        NonNull::new(block as *mut u8)
    }

    /// Takes back the metadata at `address`, in `slab`. False if there is none, or no longer any.
    ///
    /// # Safety
    /// - It came from [`Metadata::take`] with the same `bytes`, and nothing uses it any more.
    pub unsafe fn give<S: Source>(
        &self,
        slab: &Slab,
        address: usize,
        bytes: usize,
        source: &S,
    ) -> bool {
        let class = class_for(bytes);
        debug_assert_eq!(slab.class(), Some(class));
        class.block_at(address % SLICE_BYTES).is_some_and(|number| {
            let (word, bits) = (number / 64, 1 << (number % 64));
            // SAFETY: the caller's promise.
            unsafe { self.depots.give(slab, class, word, bits, source) }.is_ok()
        })
    }

    /// The depots themselves, for a round of decay, and for a fork.
    pub fn depots(&self) -> &Depots {
        &self.depots
    }
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata::new()
    }
}

/// Callers ask for few sizes, so few slabs serve all metadata.
fn class_for(bytes: usize) -> Class {
    Class::serving(bytes.max(LEAST_BYTES))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cache::bounds::array_bytes;
    use crate::cache::heap::{Found, HEAP};
    use crate::pages::Use;
    use std::vec::Vec;

    /// Slices in use for metadata.
    fn slices() -> usize {
        HEAP.pages.totals().by_use[Use::Meta as usize - 1].slices
    }

    #[test]
    fn an_array_takes_little_more_than_its_entries_and_guard() {
        for room in (4..12).map(|bits| 1 << bits) {
            let bytes = array_bytes(room);
            let taken = class_for(bytes).bytes();
            assert!(taken - bytes <= bytes / 7, "{bytes} take {taken}");
        }
    }

    /// Whether 1,000 blocks of 8 KiB take about as many slices as they fill, and give most of them
    /// back. Other tests start and end threads meanwhile, which have metadata too.
    fn slices_come_and_go() -> bool {
        let before = slices();
        let blocks: Vec<_> = (0..1000)
            .map(|_| HEAP.take_meta(8 << 10).expect("memory"))
            .collect();
        let taken = slices();
        for &block in &blocks {
            assert!(matches!(HEAP.find(block.addr().get()), Found::Nothing));
        }
        for block in blocks {
            // SAFETY: taken above with the same number of bytes.
            unsafe { HEAP.give_meta(block, 8 << 10) };
        }
        taken >= before + 1000 / 8 - 8 && slices() < before + 100
    }

    #[test]
    fn slices_without_metadata_go_back_to_the_page_heap() {
        assert!((0..100).any(|_| slices_come_and_go()));
    }
}
