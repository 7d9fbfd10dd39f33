//! One word of a slab's bitmap: how its life begins, and how a thread claims blocks of it.

use crate::base::sync::{AtomicU64, Ordering};

/// A run of this many blocks from a multiple of their number begins and ends with a cache line.
pub const LINE_BLOCKS: usize = 8;

/// Where a claim may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// After any block.
    Blocks,
    /// Before a multiple of [`LINE_BLOCKS`], so that no two claims share a cache line. Takes up to
    /// that many more, less one.
    Lines,
    /// After one block, which this random number chooses.
    Random(u64),
}

/// Sets a word's bits at the beginning of a slab's life.
pub(super) fn put_first(word: &AtomicU64, bits: u64) {
    // Release: a thread that claims a bit sees the depot, the base and the slice's tag. A store is
    // enough: the words have been 0 since the last life's end, and a thread that still claims from
    // that life does so by an atomic read-modify-write. Before the store it leaves 0; after it, it
    // takes bits, which pin the slab, and gives them back to the slab's new depot.
    if cfg!(any(loom, debug_assertions)) {
        // A swap shows that no bit was set. Loom 0.7 may read past a thread's own plain store.
        let stray = word.swap(bits, Ordering::AcqRel);
        debug_assert_eq!(stray, 0, "a bit was set while the slice was no slab");
    } else {
        word.store(bits, Ordering::Release);
    }
}

/// Claims up to `want` of the lowest set bits of one word, and those that `grain` adds.
pub(super) fn claim_bits(word: &AtomicU64, want: usize, grain: Grain) -> u64 {
    let seen = word.load(Ordering::Relaxed);
    if seen == 0 {
        return 0;
    }
    if want >= 64 {
        return word.swap(0, Ordering::AcqRel);
    }
    let lowest = lowest_bits(seen, want);
    let mask = match grain {
        Grain::Blocks => lowest,
        Grain::Lines => seen & up_to_line(lowest),
        Grain::Random(draw) => any_bit(seen, draw),
    };
    word.fetch_and(!mask, Ordering::AcqRel) & mask
}

/// One of the bits that are set in `bits`, which are not 0.
fn any_bit(bits: u64, draw: u64) -> u64 {
    let turn = (draw >> 32) as u32 % u64::BITS;
    let turned = bits.rotate_right(turn);
    (turned & turned.wrapping_neg()).rotate_left(turn)
}

/// All bits up to the end of the lines in which the blocks of `bits` end. Blocks are multiples of 8
/// bytes, so 8 of them are whole cache lines.
fn up_to_line(bits: u64) -> u64 {
    let last = (u64::BITS - 1 - bits.leading_zeros()) | (LINE_BLOCKS as u32 - 1);
    u64::MAX >> (u64::BITS - 1 - last)
}

/// The `count` lowest set bits of `bits` (all of them if there are fewer).
fn lowest_bits(bits: u64, count: usize) -> u64 {
    let mut rest = bits;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    bits & !rest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_bit_is_one_of_those_set() {
        let bits = 1 << 63 | 1 << 40 | 0b101;
        let drawn = (0..64).map(|turn| any_bit(bits, turn << 32));
        let mut seen = 0;
        for bit in drawn {
            assert!(bit.is_power_of_two() && bits & bit == bit);
            seen |= bit;
        }
        assert_eq!(seen, bits);
    }

    #[test]
    fn lowest_bits_are_the_lowest() {
        assert_eq!(lowest_bits(0b1011_0100, 2), 0b0001_0100);
        assert_eq!(lowest_bits(0b11, 5), 0b11);
        assert_eq!(lowest_bits(0, 3), 0);
    }
}
