//! What every layer shares: units, the façade for atomics, the ordered tree, when memory goes back.

pub mod policy;
pub mod sync;
pub mod tree;

/// Units as types and constants.
pub mod units {
    pub use neap_shared::units::{SLICE_BYTES, SLICE_SHIFT};

    /// Bytes in a huge page.
    pub const HUGE_BYTES: usize = 2 << 20;
    /// Slices in a huge page.
    pub const HUGE_SLICES: usize = HUGE_BYTES / SLICE_BYTES;

    /// How many slices hold `bytes`. Saturates near `usize::MAX` instead of wrapping.
    pub const fn slices_for(bytes: usize) -> usize {
        bytes.div_ceil(SLICE_BYTES)
    }

    /// `value` rounded up to a multiple of `unit`, a power of two; `None` on overflow.
    pub const fn round_up(value: usize, unit: usize) -> Option<usize> {
        debug_assert!(unit.is_power_of_two());
        match value.checked_add(unit - 1) {
            Some(sum) => Some(sum & !(unit - 1)),
            None => None,
        }
    }
}
