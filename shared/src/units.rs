//! The unit of figures of spans.

/// Bytes in a slice, the unit of the page heap. Every slab is one slice.
pub const SLICE_BYTES: usize = 1 << SLICE_SHIFT;
/// `log2(SLICE_BYTES)`.
pub const SLICE_SHIFT: u32 = 16;
