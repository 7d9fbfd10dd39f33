//! Size classes: which block size serves which request.
//!
//! Up to 128 bytes there is a class every 8 bytes; those that are not a multiple of 16 serve only
//! callers who state an alignment of 8 or less (Rust's `Layout`), because C callers may store
//! 16-byte vectors in any block of 16 bytes and more. From 128 bytes to 32 KiB there are 8 classes
//! per doubling, so a block wastes less than an eighth of its size. The sizes are in `neap_shared`.
//! The tables are computed by `const fn` and checked at compile time ([`super::class_table`]).
//! libneap.so may run with other classes. What is `const` here describes the built-in ones, for
//! callers whose compiler knows the size.

use super::class_table::{BUILT_IN, Starts, in_force};
pub use super::class_table::{CLASSES, MAX_BLOCK};
use crate::base::units::SLICE_BYTES;
use neap_shared::classes::{FINE, FINE_BYTES};

/// A size class: 1 to [`CLASSES`]; 0 is no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

/// Blocks from this many bytes on are noted as fresh until they are handed out.
pub const FRESH_BYTES: usize = 4 << 10;
/// Requests up to this many bytes find their class in a table.
pub const TABLE_BYTES: usize = 1024;

impl Class {
    /// The largest class.
    pub const LAST: Class = Class(CLASSES as u8);

    /// Class number `index`, 1 to [`CLASSES`].
    #[inline]
    pub const fn new(index: usize) -> Class {
        assert!(index >= 1 && index <= CLASSES);
        Class(index as u8)
    }

    /// The class whose slabs are for blocks of no bytes where these are not accessible. Requests
    /// that it would serve get a block of the next one. `None` if there is no next one.
    pub fn of_no_bytes() -> Option<Class> {
        const BYTES: usize = 129;
        Some(Class::serving(BYTES)).filter(|class| class.bytes() < MAX_BLOCK)
    }

    /// The same of a number that is known to be one, such as the one in a slab's record.
    #[inline(always)]
    pub(crate) const fn known(index: usize) -> Class {
        debug_assert!(index >= 1 && index <= CLASSES);
        Class(index as u8)
    }

    /// The built-in class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 16.
    #[inline]
    pub const fn of_size(size: usize) -> Class {
        debug_assert!(size <= MAX_BLOCK);
        if size <= FINE_BYTES {
            let steps = if size == 0 { 1 } else { size.div_ceil(16) };
            Class((steps * 2) as u8)
        } else {
            Class::coarse(size)
        }
    }

    /// The built-in class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 8.
    #[inline]
    pub const fn of_size_align8(size: usize) -> Class {
        debug_assert!(size <= MAX_BLOCK);
        if size <= FINE_BYTES {
            let steps = if size == 0 { 1 } else { size.div_ceil(8) };
            Class(steps as u8)
        } else {
            Class::coarse(size)
        }
    }

    /// The class in force for `size` bytes (at most [`MAX_BLOCK`]) at the alignment that `malloc`
    /// promises: 16, or 8 for sizes up to 8 where there is a class for them.
    #[inline(always)]
    pub fn serving(size: usize) -> Class {
        debug_assert!(size <= MAX_BLOCK);
        Class(in_force().serving(size))
    }

    /// The class in force whose blocks have just `bytes` bytes, which some class has.
    pub fn of_block(bytes: usize) -> Class {
        let class = Class::serving(bytes);
        // Those that are not multiples of 16 lie between those that are.
        if class.bytes() == bytes {
            class
        } else {
            Class(class.0 - 1)
        }
    }

    /// The class for `size` bytes at any power-of-two `align`; `None` if no slab serves it. An
    /// alignment of 16 is the one that `malloc` promises, see [`Class::serving`]; one of 8 or less
    /// comes only from a Rust program's own allocator.
    #[inline]
    pub fn of_layout(size: usize, align: usize) -> Option<Class> {
        debug_assert!(align.is_power_of_two());
        if size > MAX_BLOCK || align > MAX_BLOCK {
            return None;
        }
        if align <= 8 {
            return Some(Class::of_size_align8(size));
        }
        if align == 16 {
            return Some(Class::serving(size));
        }
        Class::aligned(size, align)
    }

    /// The smallest class whose block size is a multiple of `align`: slabs start at multiples of
    /// 64 KiB, so every such block is aligned.
    fn aligned(size: usize, align: usize) -> Option<Class> {
        let mut class = Class::serving(size.max(align));
        while !class.bytes().is_multiple_of(align) {
            if class.index() == CLASSES {
                return None;
            }
            class = Class(class.0 + 1);
        }
        Some(class)
    }

    /// Classes over 128 bytes: the three bits below the leading one choose among 8 per doubling.
    const fn coarse(size: usize) -> Class {
        let last = size - 1;
        let log = usize::BITS - 1 - last.leading_zeros();
        let eighth = (last >> (log - 3)) & 7;
        Class((FINE + 1 + (log as usize - 7) * 8 + eighth) as u8)
    }

    /// The class's number, 1 to [`CLASSES`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// What every block's address is a multiple of, at least.
    pub fn alignment(self) -> usize {
        1 << self.bytes().trailing_zeros()
    }

    /// Bytes of a block.
    #[inline]
    pub fn bytes(self) -> usize {
        in_force().sizes[self.0 as usize] as usize
    }

    /// Blocks of a slab.
    #[inline]
    pub fn blocks(self) -> usize {
        in_force().blocks[self.0 as usize] as usize
    }

    /// Whether slabs of this class note which blocks were never handed out: from 4 KiB on, checking
    /// this costs `calloc` less than writing zeros. At most 16 blocks.
    #[inline]
    pub fn tells_fresh(self) -> bool {
        self.bytes() >= FRESH_BYTES
    }

    /// The blocks of which every OS page is among those of `zero`, if this class
    /// [tells](Class::tells_fresh). `pages` is the number of OS pages in a slice: the bits of
    /// `zero` that count.
    pub fn fresh_blocks(self, zero: u16, pages: usize) -> u16 {
        let page = SLICE_BYTES / pages;
        let reads_zero = |block: &usize| {
            let (first, last) = (block * self.bytes(), (block + 1) * self.bytes() - 1);
            (first / page..=last / page).all(|page| zero & (1 << page) != 0)
        };
        if !self.tells_fresh() {
            return 0;
        }
        let blocks = (0..self.blocks()).filter(reads_zero);
        blocks.fold(0, |bits, block| bits | 1 << block)
    }

    /// Words of a slab's bitmap.
    #[inline]
    pub fn words(self) -> usize {
        self.blocks().div_ceil(64)
    }

    /// The bits of bitmap word `word` that represent blocks.
    #[inline]
    pub fn full_word(self, word: usize) -> u64 {
        let left = self.blocks() - word * 64;
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }

    /// Which block of its slab starts at byte `offset`; `None` if none does.
    #[inline]
    pub fn block_at(self, offset: usize) -> Option<usize> {
        self.starts().block_at(offset)
    }

    /// The test for where blocks start.
    #[inline]
    pub fn starts(self) -> Starts {
        in_force().starts[self.0 as usize]
    }

    /// The smallest request that this class serves, alignment apart.
    pub fn least_request(self) -> usize {
        in_force().least[self.0 as usize] as usize
    }

    /// All classes, smallest first.
    pub fn all() -> impl Iterator<Item = Class> {
        (1..=CLASSES).map(Class::known)
    }
}

const _: () = {
    let mut size = 0;
    while size <= MAX_BLOCK {
        let class = Class::of_size(size);
        assert!(BUILT_IN.serving(size) == class.0);
        let bytes = BUILT_IN.sizes[class.index()] as usize;
        assert!(bytes >= size && bytes.is_multiple_of(16));
        let fine = Class::of_size_align8(size).index();
        let fine_bytes = BUILT_IN.sizes[fine] as usize;
        assert!(fine_bytes >= size && fine_bytes.is_multiple_of(8));
        assert!(fine == 1 || (BUILT_IN.sizes[fine - 1] as usize) < size);
        assert!(size <= 64 || (fine_bytes - size) * 8 <= fine_bytes);
        assert!(size <= FINE_BYTES || (bytes - size) * 8 <= bytes);
        size += if size < 4096 { 1 } else { 61 };
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rust_programs_use_have_their_class() {
        for size in [8, 24, 40, 56] {
            assert_eq!(Class::of_size_align8(size).bytes(), size);
        }
        assert_eq!(Class::of_size(24).bytes(), 32);
        assert_eq!(Class::of_size(0).bytes(), 16);
    }

    #[test]
    fn every_alignment_up_to_the_largest_block_is_met() {
        for shift in 0..=15 {
            let align = 1 << shift;
            for size in [1, 17, 100, 1000, 5000, MAX_BLOCK] {
                let class = Class::of_layout(size, align).unwrap();
                assert!(class.bytes() >= size && class.bytes().is_multiple_of(align));
            }
        }
        assert_eq!(Class::of_layout(MAX_BLOCK + 1, 8), None);
        assert_eq!(Class::of_layout(8, 2 * MAX_BLOCK), None);
    }

    #[test]
    fn block_at_agrees_with_division() {
        for class in Class::all() {
            for offset in 0..SLICE_BYTES {
                let (block, rest) = (offset / class.bytes(), offset % class.bytes());
                let naive = (rest == 0 && block < class.blocks()).then_some(block);
                assert_eq!(class.block_at(offset), naive);
            }
        }
    }

    #[test]
    fn least_request_is_the_boundary() {
        for class in Class::all().filter(|class| class.bytes() % 16 == 0) {
            let least = class.least_request();
            assert_eq!(Class::of_size(least), class);
            assert!(least == 0 || Class::of_size(least - 1) < class);
        }
    }

    #[test]
    fn blocks_on_a_dirty_page_are_not_fresh() {
        let (small, odd) = (Class::of_size(4000), Class::of_size(4608));
        assert!(!Class::of_size(2048).tells_fresh() && odd.tells_fresh());
        assert_eq!(small.fresh_blocks(u16::MAX, 16), u16::MAX);
        assert_eq!(small.fresh_blocks(!0b101, 16), !0b101);
        // Blocks of 4,608 bytes: the second page has parts of the first two.
        assert_eq!(odd.bytes(), 4608);
        assert_eq!(odd.fresh_blocks(!0b10, 16), 0x3fff & !0b11);
        assert_eq!(odd.fresh_blocks(1, 1), 0x3fff);
        assert_eq!(Class::of_size(64).fresh_blocks(u16::MAX, 16), 0);
    }
}
