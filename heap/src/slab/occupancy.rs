//! How many bytes of a part of a slab are free.

use super::Slab;
use super::class::Class;
use crate::base::sync::Ordering;
use core::ops::Range;

impl Slab {
    /// Bytes of a range of the slab that belong to free blocks, withheld ones among them. Offsets
    /// from the slab's start. A snapshot.
    pub fn free_bytes(&self, class: Class, range: Range<usize>) -> usize {
        if self.words(class).is_empty() {
            // The slice has its tag, and is about to be carved for the first time.
            return 0;
        }
        let size = class.bytes();
        let last = range.end.min(class.blocks() * size);
        if range.start >= last {
            return 0;
        }
        let (from, to) = (range.start.div_ceil(size), last / size);
        if from > to {
            return self.free_part(class, to, last - range.start);
        }
        self.free_in(class, from..to) * size
            + self.free_part(class, range.start / size, from * size - range.start)
            + self.free_part(class, to, last - to * size)
    }

    /// `bytes` if there are any and the block is free.
    fn free_part(&self, class: Class, block: usize, bytes: usize) -> usize {
        if bytes > 0 && self.is_free(class, block) {
            bytes
        } else {
            0
        }
    }

    /// Free blocks among some.
    fn free_in(&self, class: Class, blocks: Range<usize>) -> usize {
        let words = super::page_set::words_of(blocks);
        let free = |(word, bits): (usize, u64)| {
            let held = self.words(class)[word].load(Ordering::Relaxed);
            ((held | self.withheld_bits(class, word)) & bits).count_ones() as usize
        };
        words.map(free).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::depot_id::DepotId;
    use super::super::{FarWords, Slice};
    use super::*;
    use crate::base::units::SLICE_BYTES;
    use core::ptr::NonNull;
    use std::boxed::Box;

    /// A slab of `class` of which every third block is out.
    fn thinned(class: Class) -> Slab {
        let slab = Slab::blank();
        let far: &mut FarWords = Box::leak(Box::new(
            [const { crate::base::sync::AtomicU64::new(0) }; super::super::WORDS],
        ));
        let slice = Slice {
            record: NonNull::from(&slab),
            base: 1 << 16,
            zero: 0,
            far: NonNull::from(far),
        };
        // SAFETY: leaked, so it stays.
        unsafe { slab.carve(DepotId::blocks(class), &slice, 16) };
        for block in (0..class.blocks()).step_by(3) {
            slab.words(class)[block / 64].fetch_and(!(1 << (block % 64)), Ordering::Relaxed);
        }
        slab
    }

    #[test]
    fn a_slice_that_is_about_to_be_carved_has_no_free_bytes() {
        for class in [16, 64, 512, 4096].map(Class::of_size) {
            assert_eq!(Slab::blank().free_bytes(class, 0..SLICE_BYTES), 0);
        }
    }

    #[test]
    fn free_bytes_agree_with_counting_byte_by_byte() {
        for size in [8, 24, 48, 160, 1000, 3000, 5000, 32 << 10] {
            let class = Class::of_size_align8(size);
            let slab = thinned(class);
            let is_free = |byte: usize| {
                let block = byte / class.bytes();
                block < class.blocks() && slab.is_free(class, block)
            };
            for (from, to) in [
                (0, 4096),
                (4096, 8192),
                (100, 101),
                (5, 60_000),
                (61_440, 65_536),
            ] {
                let naive = (from..to).filter(|&byte| is_free(byte)).count();
                assert_eq!(
                    slab.free_bytes(class, from..to),
                    naive,
                    "{size} {from}..{to}"
                );
            }
        }
    }
}
