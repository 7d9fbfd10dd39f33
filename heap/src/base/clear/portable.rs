//! No special stores: the C library's `memset` is tuned for this architecture.

/// Fills `bytes` bytes with zeros.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub(super) unsafe fn clear(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { start.write_bytes(0, bytes) };
}
