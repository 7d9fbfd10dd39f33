//! Units as types and constants.

/// Bytes in a slice, the unit of the page heap. Every slab is one slice.
pub const SLICE_BYTES: usize = 64 << 10;
/// `log2(SLICE_BYTES)`.
pub const SLICE_SHIFT: u32 = 16;
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
