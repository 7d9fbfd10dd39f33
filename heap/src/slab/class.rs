//! Size classes: which block size serves which request.
//!
//! Up to 128 bytes there is a class every 8 bytes; those that are not a multiple of 16 serve only
//! callers who state an alignment of 8 or less (Rust's `Layout`), because C callers may store
//! 16-byte vectors in any block of 16 bytes and more. From 128 bytes to 32 KiB there are 8 classes
//! per doubling, so a block wastes less than an eighth of its size. The sizes are in `neap_shared`.
//!
//! The tables are computed by `const fn` and checked at compile time. The built-in one is in force
//! unless `NEAP_CLASSES` names a file. Then libneap.so's constructor puts that file's table into
//! force, before the first slab exists. What is `const` here describes the built-in classes, for
//! callers whose compiler knows the size. A Rust program's own allocator always uses them.

use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, Ordering};
use crate::base::units::SLICE_BYTES;
pub use neap_shared::classes::{CLASSES, MAX_BLOCK};
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

    /// The class whose slabs are for blocks of no bytes where these are not accessible. Requests
    /// that it would serve get a block of the next one. `None` if there is no next one.
    pub fn of_no_bytes() -> Option<Class> {
        const BYTES: usize = 129;
        Some(Class::serving(BYTES)).filter(|class| class.bytes() < MAX_BLOCK)
    }

    /// Class number `index`, 1 to [`CLASSES`].
    #[inline(always)]
    pub(crate) const fn known(index: usize) -> Class {
        debug_assert!(index >= 1 && index <= CLASSES);
        Class(index as u8)
    }

    /// The built-in class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 16.
    #[inline]
    pub const fn of_size(size: usize) -> Class {
        debug_assert!(size <= MAX_BLOCK);
        Class(BUILT_IN.serving(size))
    }

    /// The built-in class for `size` bytes (at most [`MAX_BLOCK`]) at an alignment of 8. Over 128
    /// bytes, the three bits below the leading one choose among 8 classes per doubling.
    #[inline]
    pub const fn of_size_align8(size: usize) -> Class {
        debug_assert!(size <= MAX_BLOCK);
        if size <= FINE_BYTES {
            return Class(if size == 0 { 1 } else { size.div_ceil(8) as u8 });
        }
        let last = size - 1;
        let log = usize::BITS - 1 - last.leading_zeros();
        let eighth = (last >> (log - 3)) & 7;
        Class((FINE + 1 + (log as usize - 7) * 8 + eighth) as u8)
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

/// The steps by which a size finds its class, in bytes.
const STEP: usize = 8;
const STEPS: usize = MAX_BLOCK / STEP + 1;

/// Most blocks of one slab: the bits of its bitmap. Blocks of 8 bytes leave half of their slice
/// unused (untouched, so it costs no RAM).
pub const MAX_BLOCKS: usize = 4096;
/// The properties of every class, by its number; 0 is no class.
pub struct Table {
    /// Bytes of a block, smallest first.
    pub sizes: [u16; CLASSES + 1],
    /// Blocks of a slab.
    pub blocks: [u16; CLASSES + 1],
    /// What tells where a block starts.
    pub starts: [Starts; CLASSES + 1],
    /// The smallest request, at an alignment of 16, that the class serves.
    pub least: [u16; CLASSES + 1],
    /// The class for a caller at an alignment of 16 (8 for sizes up to 8, where there is a class of
    /// 8 bytes and callers at 16 may have it), by size in steps.
    by_step: [u8; STEPS],
}

/// The classes that are built in.
pub const BUILT_IN: Table = Table::new(&neap_shared::classes::BUILT_IN, 2 * STEP);

struct InForce(UnsafeCell<Table>);

// SAFETY: written by `replace` only, by the process's one thread, while no slab and no cache
// exists.
unsafe impl Sync for InForce {}

static IN_FORCE: InForce = InForce(UnsafeCell::new(BUILT_IN));
static REPLACED: AtomicBool = AtomicBool::new(false);

/// The classes in force.
#[inline(always)]
pub fn in_force() -> &'static Table {
    // SAFETY: as above. Callers keep no reference beyond their call, and numbers of classes are
    // kept in slabs and caches only.
    unsafe { &*IN_FORCE.0.get() }
}

/// Whether the classes in force differ from the built-in ones.
#[inline]
pub fn is_replaced() -> bool {
    REPLACED.load(Ordering::Relaxed)
}

/// Puts other classes into force: their block sizes, smallest first, each a multiple of 16 but for
/// one of 8, the last one [`MAX_BLOCK`], at most [`CLASSES`].
///
/// # Safety
/// - No slab exists, not even one of metadata, no thread has a cache, and no other thread uses the
///   heap meanwhile.
/// - This is not a Rust program's own allocator.
pub unsafe fn replace(sizes: &[u16]) {
    // SAFETY: the caller's promise.
    unsafe { *IN_FORCE.0.get() = Table::of(sizes) };
    REPLACED.store(true, Ordering::Relaxed);
}

impl Table {
    /// The table for [`replace`].
    fn of(sizes: &[u16]) -> Table {
        debug_assert!(sizes.len() <= CLASSES && sizes.last() == Some(&(MAX_BLOCK as u16)));
        // Classes beyond the last one are as it is, and no code asks for them.
        let mut all = [MAX_BLOCK as u16; CLASSES + 1];
        all[0] = 0;
        all[1..=sizes.len()].copy_from_slice(sizes);
        Table::new(&all, STEP)
    }

    /// The table of these block sizes, smallest first. Classes of fewer than `first` bytes, and
    /// those that are no multiple of 16, serve only callers who state an alignment of 8.
    const fn new(sizes: &[u16; CLASSES + 1], first: usize) -> Table {
        let mut table = Table {
            sizes: *sizes,
            blocks: [0; CLASSES + 1],
            starts: [Starts { test: 0, limit: 0 }; CLASSES + 1],
            least: [0; CLASSES + 1],
            by_step: [0; STEPS],
        };
        // The largest class so far that callers at an alignment of 16 may have, and the steps that
        // have their class.
        let (mut before, mut step) = (0, 0);
        let mut index = 1;
        while index <= CLASSES {
            let bytes = sizes[index] as usize;
            table.blocks[index] = blocks_of(bytes);
            table.starts[index] = Starts::of(bytes as u32, table.blocks[index] as u32);
            if bytes >= first && (bytes == STEP || bytes.is_multiple_of(16)) {
                table.least[index] = if before == 0 { 0 } else { before as u16 + 1 };
                before = bytes;
                while step * STEP <= bytes {
                    table.by_step[step] = index as u8;
                    step += 1;
                }
            } else if index > 1 {
                table.least[index] = sizes[index - 1] + 1;
            }
            index += 1;
        }
        table
    }

    /// The number of the class for `size` bytes at an alignment of 16.
    #[inline(always)]
    pub const fn serving(&self, size: usize) -> u8 {
        self.by_step[size.div_ceil(STEP)]
    }
}

const fn blocks_of(bytes: usize) -> u16 {
    let fit = SLICE_BYTES / bytes;
    if fit > MAX_BLOCKS {
        MAX_BLOCKS as u16
    } else {
        fit as u16
    }
}

/// Where the blocks of a class's slabs start: at byte `offset` iff `offset * test` modulo 2^32 is
/// below the limit.
///
/// Tests divisibility by a constant with one multiplication (after Lemire, Kaser, Kurz: "Faster
/// remainder by direct computation", 2019). With `c = floor(2^32 / d) + 1` and `e = c * d - 2^32`,
/// `n * c` modulo 2^32 is `k * e` for `n = k * d`, and at least `c` if `n` leaves a remainder. So
/// one compare with `b * e` says whether `n` is one of the first `b` multiples. Then the high half
/// of the product is the quotient: rounding the constant up added less than `n`, so less than 2^32,
/// to the product.
#[derive(Clone, Copy)]
pub struct Starts {
    /// The constant.
    pub test: u32,
    /// What the product must be below.
    pub limit: u32,
}

impl Starts {
    /// Of `blocks` blocks of `bytes` bytes.
    const fn of(bytes: u32, blocks: u32) -> Starts {
        let test = ((1 << 32) / bytes as u64 + 1) as u32;
        Starts {
            test,
            limit: test.wrapping_mul(bytes) * blocks,
        }
    }

    /// Which block of its slab starts at byte `offset` (below a slice's bytes); `None` if none
    /// does.
    #[inline(always)]
    pub const fn block_at(self, offset: usize) -> Option<usize> {
        debug_assert!(offset < SLICE_BYTES);
        let product = offset as u64 * self.test as u64;
        match (product as u32) < self.limit {
            true => Some((product >> 32) as usize),
            false => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

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

    /// Some sizes that a file may have.
    fn random(state: &mut u64) -> Vec<u16> {
        let mut below = |bound: u64| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *state % bound
        };
        let count = 1 + below(CLASSES as u64);
        let mut sizes: BTreeSet<u16> = (1..count)
            .map(|_| {
                let bits = below(12);
                16 * (1 + below(1 << bits)) as u16
            })
            .filter(|&size| usize::from(size) < MAX_BLOCK)
            .collect();
        if below(2) == 0 && sizes.len() + 1 < CLASSES {
            sizes.insert(8);
        }
        sizes.insert(MAX_BLOCK as u16);
        sizes.into_iter().collect()
    }

    /// The smallest class that is large enough, found by trying all.
    fn naive(sizes: &[u16], size: usize) -> usize {
        let fits = |&class: &u16| usize::from(class) >= size;
        1 + sizes.iter().position(fits).unwrap()
    }

    #[test]
    fn random_tables_agree_with_a_look_at_every_class() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..60 {
            let sizes = random(&mut state);
            let table = Table::of(&sizes);
            for size in 0..=MAX_BLOCK {
                let class = usize::from(table.serving(size));
                assert_eq!(class, naive(&sizes, size.max(1)), "{size} of {sizes:?}");
                assert!(size >= usize::from(table.least[class]));
            }
            for index in 1..=sizes.len() {
                let least = usize::from(table.least[index]);
                assert_eq!(usize::from(table.serving(least)), index, "{sizes:?}");
            }
        }
    }

    #[test]
    fn starts_of_every_size_agree_with_division() {
        for size in (1..=MAX_BLOCK / 16).map(|n| n * 16).chain([8]) {
            let mut sizes = Vec::from([size as u16, MAX_BLOCK as u16]);
            sizes.dedup();
            let table = Table::of(&sizes);
            let blocks = usize::from(table.blocks[1]);
            assert!(blocks <= MAX_BLOCKS && blocks * size <= SLICE_BYTES);
            let built = table.starts[1];
            // Near every multiple, and what lies between by a step that has no factor in common
            // with it.
            let near = (0..SLICE_BYTES / size + 2)
                .flat_map(|n| [n * size, n * size + 1, n * size + size - 1]);
            for offset in near.chain((0..SLICE_BYTES).step_by(37)) {
                if offset < SLICE_BYTES {
                    let starts = offset % size == 0 && offset / size < blocks;
                    let block = starts.then_some(offset / size);
                    assert_eq!(built.block_at(offset), block, "{offset} of {size}");
                }
            }
        }
    }
}
