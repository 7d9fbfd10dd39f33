//! Memory for Neap's own data: caches, magazine arrays, samples.
//!
//! These are blocks of slabs, as a program's are, in depots of their own. Their slices carry no
//! tag, so `free` refuses their addresses. A slice whose blocks are all free goes back to the page
//! heap: what ended threads leave behind serves any other use, or decays.

use super::heap::Heap;
use super::misuse;
use crate::base::units::SLICE_BYTES;
use crate::os::lock::Lock;
use crate::pages::{Age, Use};
use crate::slab::Slab;
use crate::slab::class::Class;
use crate::slab::depot::{Cursor, Depots, Pages, Round, Source, Touched};
use crate::slab::withheld::Units;
use core::ptr::NonNull;

/// The least block, in bytes.
const LEAST_BYTES: usize = 64;

/// The page heap as the source of slabs for metadata.
struct Metadata {
    heap: &'static Heap,
    /// How long slabs that it takes back have been unused.
    age: Age,
}

impl Source for Metadata {
    fn fresh(&self, class: Class, pages: Pages) -> Option<NonNull<Slab>> {
        let (slab, _) = self.heap.carve(class, pages, Use::Meta)?;
        Some(slab)
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.heap.retire_aged(slab, touched, self.age);
    }

    fn note_withheld(&self, bytes: isize) {
        self.heap.note_withheld(bytes);
    }

    fn keeps_pages(&self, round: Round) -> bool {
        self.heap.keeps_pages(round)
    }

    fn pages(&self) -> usize {
        Source::pages(self.heap)
    }

    fn purge(&self, slab: NonNull<Slab>, units: Units) -> bool {
        self.heap.purge(slab, units)
    }

    fn now_ms(&self) -> u64 {
        self.heap.now_ms()
    }
}

/// The depots of the slabs that hold metadata.
pub struct Meta {
    depots: Depots,
}

impl Meta {
    /// No slabs.
    pub const fn new() -> Meta {
        Meta {
            depots: Depots::of_metadata(),
        }
    }

    /// The locks of its depots, for a fork.
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.depots.locks()
    }
}

impl Default for Meta {
    fn default() -> Meta {
        Meta::new()
    }
}

impl Heap {
    /// Metadata of at least `bytes` bytes (at most 32 KiB) at a multiple of 8; contents undefined.
    /// `None` when out of memory.
    pub fn take_meta(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let class = class_for(bytes);
        let source = Metadata {
            heap: self,
            age: Age::New,
        };
        let mut block = 0;
        self.meta
            .depots
            .take(class, 1, &source, &mut |slab, claim| {
                let number = claim.word * 64 + claim.bits.trailing_zeros() as usize;
                block = slab.base() + number * class.bytes();
            });
        NonNull::new(block as *mut u8)
    }

    /// Takes metadata back.
    ///
    /// # Safety
    /// - `block` came from [`Heap::take_meta`] with the same `bytes`, and nothing uses it any more.
    pub unsafe fn give_meta(&'static self, block: NonNull<u8>, bytes: usize) {
        let (class, address) = (class_for(bytes), block.addr().get());
        let source = Metadata {
            heap: self,
            age: Age::New,
        };
        let number = class.block_at(address % SLICE_BYTES);
        let (Some(slab), Some(number)) = (self.slab_at(address), number) else {
            misuse::no_block(misuse::Call::Free, address);
        };
        debug_assert_eq!(slab.class(), Some(class));
        let (word, bits) = (number / 64, 1 << (number % 64));
        let given = self.meta.depots.give(slab, class, word, bits, &source);
        if given.is_err() {
            misuse::double_free(address, class.bytes());
        }
    }

    /// Lets slabs go that have held no metadata since `before` (ms) or longer, and purges pages of
    /// others that hold none.
    pub(super) fn decay_meta(&'static self, round: Round, before: u64) -> usize {
        let source = Metadata {
            heap: self,
            age: Age::Old,
        };
        self.meta.depots.cool(before, &source);
        let mut cursor = Cursor::start();
        core::iter::from_fn(|| {
            let _whole = self.tide.step.lock();
            self.meta.depots.purge_spare(round, &mut cursor, &source)
        })
        .sum()
    }

    /// Lets slabs go that have held no metadata since `before` (ms) or longer.
    pub(super) fn cool_meta(&'static self, before: u64) {
        let source = Metadata {
            heap: self,
            age: Age::New,
        };
        self.meta.depots.cool(before, &source);
    }
}

/// Callers ask for few sizes, so few slabs serve all metadata.
fn class_for(bytes: usize) -> Class {
    Class::serving(bytes.max(LEAST_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::heap::{Found, HEAP};
    use crate::cache::thread::array_bytes;
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

    #[test]
    fn slices_without_metadata_go_back_to_the_page_heap() {
        let before = slices();
        let blocks: Vec<_> = (0..1000)
            .map(|_| HEAP.take_meta(8 << 10).expect("memory"))
            .collect();
        assert!(slices() >= before + 1000 / 8 - 8);
        for &block in &blocks {
            assert!(matches!(HEAP.find(block.addr().get()), Found::Nothing));
        }
        for block in blocks {
            // SAFETY: taken above with the same number of bytes.
            unsafe { HEAP.give_meta(block, 8 << 10) };
        }
        // Other tests may start threads meanwhile.
        assert!(slices() < before + 100, "{} of {before}", slices());
    }
}
