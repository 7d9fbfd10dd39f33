//! No special stores: the C library's `memset` knows this machine's.

/// Fills `bytes` bytes with zeros.
///
/// # Safety
/// - They are writable, and nobody else uses them.
pub(super) unsafe fn clear(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { start.write_bytes(0, bytes) };
}
