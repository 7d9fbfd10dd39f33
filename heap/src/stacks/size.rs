//! The sizes of stacks, in bytes of address space, guard included.

use crate::base::units::{SLICE_BYTES, round_up};

/// Bytes of the smallest stack.
pub const LEAST_BYTES: usize = 8 << 10;
/// Bytes of the largest stack.
pub const MOST_BYTES: usize = 8 << 20;

/// Sizes below a slice: 8, 16 and 32 KiB.
const CELLS: usize = 3;
/// How many sizes there are.
pub(super) const SIZES: usize = CELLS + MOST_BYTES / SLICE_BYTES;

/// The size of a stack: 8, 16 or 32 KiB, or a multiple of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u8);

const _: () = assert!(SIZES <= u8::MAX as usize);

impl Size {
    /// The size for a stack of at least `bytes`, with a guard and at least one usable page of
    /// `page` bytes. `None` below [`LEAST_BYTES`] and above [`MOST_BYTES`].
    pub fn of(bytes: usize, page: usize) -> Option<Self> {
        if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) {
            return None;
        }
        let bytes = bytes.max(2 * page);
        if bytes <= SLICE_BYTES / 2 {
            let shift = bytes.next_power_of_two().trailing_zeros() - LEAST_BYTES.trailing_zeros();
            return Some(Self(shift as u8));
        }
        let slices = round_up(bytes, SLICE_BYTES)? / SLICE_BYTES;
        Some(Self((CELLS + slices - 1) as u8))
    }

    /// The size with this number, below [`SIZES`].
    pub(super) fn numbered(number: usize) -> Self {
        Self(number as u8)
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of address space.
    pub fn bytes(self) -> usize {
        match usize::from(self.0) {
            cell @ 0..CELLS => LEAST_BYTES << cell,
            span => (span - CELLS + 1) * SLICE_BYTES,
        }
    }

    /// Stacks of this size per span.
    pub(super) fn per_span(self) -> usize {
        (SLICE_BYTES / self.bytes()).max(1)
    }

    /// Slices of a span of stacks of this size.
    pub(super) fn slices(self) -> usize {
        (self.bytes() / SLICE_BYTES).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn sizes_are_rounded_up() {
        let bytes = |bytes, page| Size::of(bytes, page).map(Size::bytes);
        assert_eq!(bytes(LEAST_BYTES - 1, 4096), None);
        assert_eq!(bytes(MOST_BYTES + 1, 4096), None);
        assert_eq!(bytes(8 << 10, 4096), Some(8 << 10));
        assert_eq!(bytes((8 << 10) + 1, 4096), Some(16 << 10));
        assert_eq!(bytes(20 << 10, 4096), Some(32 << 10));
        assert_eq!(bytes(33 << 10, 4096), Some(64 << 10));
        assert_eq!(bytes(65 << 10, 4096), Some(128 << 10));
        assert_eq!(bytes(MOST_BYTES, 4096), Some(MOST_BYTES));
        assert_eq!(bytes(8 << 10, 16 << 10), Some(32 << 10));
        assert_eq!(bytes(8 << 10, 64 << 10), Some(128 << 10));
    }

    #[test]
    fn numbers_are_sizes_in_order() {
        let all: Vec<_> = (0..SIZES)
            .map(|number| Size::numbered(number).bytes())
            .collect();
        assert!(all.is_sorted() && all[SIZES - 1] == MOST_BYTES);
        for (number, &bytes) in all.iter().enumerate() {
            let size = Size::of(bytes, 4096).unwrap();
            assert_eq!(size.number(), number);
            assert_eq!(
                size.per_span() * bytes,
                size.slices() * crate::base::units::SLICE_BYTES
            );
        }
    }
}
