//! The tables of the size classes: the built-in one, and the one in force.
//!
//! The built-in table is in force unless `NEAP_CLASSES` names a file. Then libneap.so's constructor
//! puts that file's table into force, before the first slab exists. A Rust program's own allocator
//! always uses the built-in table, because the compiler has put it into the code.

use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, Ordering};
use crate::base::units::SLICE_BYTES;
pub use neap_shared::classes::{CLASSES, MAX_BLOCK};

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
