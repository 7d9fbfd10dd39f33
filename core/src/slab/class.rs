//! Size classes: which block size serves which request.
//!
//! Up to 128 bytes there is a class every 8 bytes; those that are not a multiple of 16 serve only
//! callers who state an alignment of 8 or less (Rust's `Layout`), because C callers may store
//! 16-byte vectors in any block of 16 bytes and more. From 128 bytes to 32 KiB there are 8 classes
//! a doubling, so a block wastes less than an eighth of itself. The tables are computed by
//! `const fn` and checked at compile time.

use crate::base::units::SLICE_BYTES;

/// A size class: 1 to [`CLASSES`]; 0 is no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

/// How many size classes there are.
pub const CLASSES: usize = 80;
/// The largest block of a slab, in bytes.
pub const MAX_BLOCK: usize = 32 << 10;
/// Most blocks of one slab: the bits of its bitmap. Blocks of 8 bytes leave half of their slice unused (untouched, so it costs no RAM).
pub const MAX_BLOCKS: usize = 4096;
/// Blocks from this many bytes on are noted as fresh until they are handed out.
pub const FRESH_BYTES: usize = 4 << 10;
/// Requests up to this many bytes find their class in a table.
pub const TABLE_BYTES: usize = 1024;

/// Classes up to 128 bytes, one every 8.
const FINE: usize = 16;
const FINE_BYTES: usize = 128;

impl Class {
    /// The largest class.
    pub const LAST: Class = Class(CLASSES as u8);

    /// Class number `index`, 1 to [`CLASSES`].
    #[inline]
    pub const fn new(index: usize) -> Class {
        debug_assert!(index >= 1 && index <= CLASSES);
        Class(index as u8)
    }

    /// The class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 16.
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

    /// The class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 8.
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

    /// The class for `size` bytes at any power-of-two `align`; `None` if no slab serves it.
    #[inline]
    pub const fn of_layout(size: usize, align: usize) -> Option<Class> {
        debug_assert!(align.is_power_of_two());
        if size > MAX_BLOCK || align > MAX_BLOCK {
            return None;
        }
        if align <= 8 {
            return Some(Class::of_size_align8(size));
        }
        Class::aligned(size, align)
    }

    /// The smallest class whose block size is a multiple of `align`: slabs start at multiples of
    /// 64 KiB, so every such block is aligned.
    const fn aligned(size: usize, align: usize) -> Option<Class> {
        let mut class = Class::of_size(if size < align { align } else { size });
        while !class.bytes().is_multiple_of(align) {
            if class.index() == CLASSES {
                return None;
            }
            class = Class(class.0 + 1);
        }
        Some(class)
    }

    /// Classes over 128 bytes: the three bits below the leading one choose among 8 a doubling.
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

    /// Bytes of a block.
    #[inline]
    pub const fn bytes(self) -> usize {
        SIZES[self.0 as usize] as usize
    }

    /// Blocks of a slab.
    #[inline]
    pub const fn blocks(self) -> usize {
        BLOCKS[self.0 as usize] as usize
    }

    /// Whether slabs of this class note which blocks were never handed out: from 4 KiB on, finding that out costs
    /// `calloc` less than zeros do. At most 16 blocks.
    #[inline]
    pub const fn tells_fresh(self) -> bool {
        self.bytes() >= FRESH_BYTES
    }

    /// The blocks of which every OS page is among those of `zero`, if this class [tells](Class::tells_fresh).
    /// `pages` is the number of OS pages in a slice: the bits of `zero` that count.
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
    pub const fn words(self) -> usize {
        self.blocks().div_ceil(64)
    }

    /// The bits of bitmap word `word` that stand for blocks.
    #[inline]
    pub const fn full_word(self, word: usize) -> u64 {
        let left = self.blocks() - word * 64;
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }

    /// Which block of its slab starts at byte `offset`; `None` if none does.
    #[inline]
    pub const fn block_at(self, offset: usize) -> Option<usize> {
        self.starts().block_at(offset)
    }

    /// What tells where blocks start, looked up once for many.
    #[inline]
    pub const fn starts(self) -> Starts {
        Starts {
            divisor: DIVISORS[self.0 as usize],
            blocks: self.blocks() as u32,
        }
    }

    /// The fewest bytes a caller can have asked for to be given this class, alignment apart.
    pub const fn least_request(self) -> usize {
        match self.index() {
            1 | 2 => 0,
            index if index <= FINE && index % 2 == 0 => SIZES[index - 2] as usize + 1,
            index => SIZES[index - 1] as usize + 1,
        }
    }

    /// The constant `test` and the limit of the test, see [`Divisor`]: a block starts at byte `offset` of a
    /// slab iff `offset * test` modulo 2^32 is below the limit.
    pub const fn start_test(self) -> (u32, u32) {
        let test = DIVISORS[self.0 as usize].0;
        let step = test.wrapping_mul(self.bytes() as u32);
        (test, step * self.blocks() as u32)
    }

    /// All classes, smallest first.
    pub fn all() -> impl Iterator<Item = Class> {
        (1..=CLASSES).map(Class::new)
    }
}

/// Tests divisibility by a constant with one multiplication (after Lemire, Kaser, Kurz: "Faster
/// remainder by direct computation", 2019). With `c = floor(2^32 / d) + 1` and `e = c * d - 2^32`, `n * c`
/// modulo 2^32 is `k * e` for `n = k * d`, and at least `c` where `n` leaves a rest. So one compare with
/// `b * e` tells whether `n` is one of the first `b` multiples.
#[derive(Clone, Copy)]
pub struct Divisor(u32);

impl Divisor {
    const fn new(divisor: u32) -> Divisor {
        Divisor(((1 << 32) / divisor as u64 + 1) as u32)
    }

    /// `n / divisor` if that leaves no rest. `n` is at most a slice's bytes.
    ///
    /// The low half of the product tells whether there is a rest. If there is none, the high half is the
    /// quotient: rounding the constant up added less than `n`, so less than 2^32, to the product.
    #[inline(always)]
    pub const fn divide_exactly(self, n: u32) -> Option<u32> {
        let product = n as u64 * self.0 as u64;
        if (product as u32) < self.0 {
            Some((product >> 32) as u32)
        } else {
            None
        }
    }
}

/// Where the blocks of a class's slabs start.
#[derive(Clone, Copy)]
pub struct Starts {
    divisor: Divisor,
    blocks: u32,
}

impl Starts {
    /// Which block of its slab starts at byte `offset` (below a slice's bytes); `None` if none does.
    #[inline(always)]
    pub const fn block_at(self, offset: usize) -> Option<usize> {
        debug_assert!(offset < SLICE_BYTES);
        match self.divisor.divide_exactly(offset as u32) {
            Some(block) if block < self.blocks => Some(block as usize),
            _ => None,
        }
    }
}

const fn size_of_class(index: usize) -> usize {
    if index <= FINE {
        return index * 8;
    }
    let (group, eighth) = ((index - FINE - 1) / 8, (index - FINE - 1) % 8);
    (FINE_BYTES << group) + ((eighth + 1) << (group + 4))
}

static SIZES: [u16; CLASSES + 1] = {
    let mut sizes = [0; CLASSES + 1];
    let mut index = 1;
    while index <= CLASSES {
        sizes[index] = size_of_class(index) as u16;
        index += 1;
    }
    sizes
};

static BLOCKS: [u16; CLASSES + 1] = {
    let mut blocks = [0; CLASSES + 1];
    let mut index = 1;
    while index <= CLASSES {
        let fit = SLICE_BYTES / size_of_class(index);
        blocks[index] = if fit > MAX_BLOCKS {
            MAX_BLOCKS as u16
        } else {
            fit as u16
        };
        index += 1;
    }
    blocks
};

static DIVISORS: [Divisor; CLASSES + 1] = {
    let mut divisors = [Divisor(0); CLASSES + 1];
    let mut index = 1;
    while index <= CLASSES {
        divisors[index] = Divisor::new(size_of_class(index) as u32);
        index += 1;
    }
    divisors
};

const _: () = {
    let mut size = 0;
    while size <= MAX_BLOCK {
        let class = Class::of_size(size);
        let bytes = class.bytes();
        assert!(bytes >= size && bytes.is_multiple_of(16));
        let fine = Class::of_size_align8(size);
        assert!(fine.bytes() >= size && fine.bytes().is_multiple_of(8));
        assert!(fine.index() == 1 || Class::new(fine.index() - 1).bytes() < size);
        assert!(size <= 64 || (fine.bytes() - size) * 8 <= fine.bytes());
        assert!(size <= FINE_BYTES || (bytes - size) * 8 <= bytes);
        size += if size < 4096 { 1 } else { 61 };
    }
    assert!(size_of_class(CLASSES) == MAX_BLOCK);
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
                let (test, limit) = class.start_test();
                assert_eq!((offset as u32).wrapping_mul(test) < limit, naive.is_some());
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
}
