//! A processor without such stores, or one whose are not used here.

/// Does nothing, and tells so.
///
/// # Safety
/// - None is needed; other processors' files ask for writable memory.
pub unsafe fn stream(_: *mut u8, _: usize) -> bool {
    false
}
