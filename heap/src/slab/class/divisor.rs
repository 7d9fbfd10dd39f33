//! Where the blocks of a slab start, told by one multiplication.

use crate::base::units::SLICE_BYTES;

/// Tests divisibility by a constant with one multiplication (after Lemire, Kaser, Kurz: "Faster
/// remainder by direct computation", 2019). With `c = floor(2^32 / d) + 1` and `e = c * d - 2^32`,
/// `n * c` modulo 2^32 is `k * e` for `n = k * d`, and at least `c` where `n` leaves a rest. So one
/// compare with `b * e` tells whether `n` is one of the first `b` multiples.
#[derive(Clone, Copy)]
pub struct Divisor(pub(super) u32);

impl Divisor {
    pub(super) const fn new(divisor: u32) -> Divisor {
        Divisor(((1 << 32) / divisor as u64 + 1) as u32)
    }

    /// `n / divisor` if that leaves no rest. `n` is at most a slice's bytes.
    ///
    /// The low half of the product tells whether there is a rest. If there is none, the high half
    /// is the quotient: rounding the constant up added less than `n`, so less than 2^32, to the
    /// product.
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
    pub(super) divisor: Divisor,
    pub(super) blocks: u32,
}

impl Starts {
    /// Which block of its slab starts at byte `offset` (below a slice's bytes); `None` if none
    /// does.
    #[inline(always)]
    pub const fn block_at(self, offset: usize) -> Option<usize> {
        debug_assert!(offset < SLICE_BYTES);
        match self.divisor.divide_exactly(offset as u32) {
            Some(block) if block < self.blocks => Some(block as usize),
            _ => None,
        }
    }
}
