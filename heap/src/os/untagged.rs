//! What `tagging.rs` has, for machines without memory tags: nothing that costs an instruction.

/// Bytes that would share a tag.
pub const GRANULE: usize = 16;

/// Only the tag 0.
pub const TAGS: u64 = 1;

/// Memory is never tagged.
#[inline(always)]
pub const fn is_on() -> bool {
    false
}

/// There is nothing to start.
#[inline(always)]
pub const fn start() {}

#[inline(always)]
pub(super) const fn protection() -> i32 {
    0
}

/// A pointer's address.
#[inline(always)]
pub const fn strip(address: usize) -> usize {
    address
}

/// No pointer has a tag.
#[inline(always)]
pub const fn tag_of(_pointer: usize) -> u8 {
    0
}

/// No memory has a tag.
///
/// # Safety
/// - Memory is tagged, so no one calls this.
#[inline(always)]
pub const unsafe fn tag_at(_address: usize) -> u8 {
    debug_assert!(is_on());
    0
}

/// The pointer without a tag.
///
/// # Safety
/// - As [`tag_at`].
#[inline(always)]
pub const unsafe fn choose(address: usize, _excluded: u16) -> usize {
    debug_assert!(is_on());
    address
}

/// Does nothing.
///
/// # Safety
/// - As [`tag_at`].
#[inline(always)]
pub const unsafe fn paint(_pointer: usize, _bytes: usize) {
    debug_assert!(is_on());
}

/// No access is checked.
pub struct Unchecked;

impl Unchecked {
    /// From now on.
    #[inline(always)]
    pub const fn begin() -> Unchecked {
        Unchecked
    }
}
