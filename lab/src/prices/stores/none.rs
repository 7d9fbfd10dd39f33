//! For processors without such stores, or whose stores are not used here.

/// Does nothing and returns false.
///
/// # Safety
/// - None is needed; other processors' files require writable memory.
pub unsafe fn stream(_: *mut u8, _: usize) -> bool {
    false
}
