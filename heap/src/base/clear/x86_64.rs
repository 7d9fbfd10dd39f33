//! Stores that bypass the caches.

use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fills `bytes` bytes with zeros.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub(super) unsafe fn clear(start: *mut u8, bytes: usize) {
    let head = start.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: head, lines and tail together are the caller's range, and the lines are aligned.
    unsafe {
        start.write_bytes(0, head);
        let (zero, mut at) = (_mm_setzero_si128(), start.add(head).cast::<__m128i>());
        for _ in 0..lines {
            _mm_stream_si128(at, zero);
            _mm_stream_si128(at.add(1), zero);
            _mm_stream_si128(at.add(2), zero);
            _mm_stream_si128(at.add(3), zero);
            at = at.add(4);
        }
        // The block may go to another thread: order these stores before all that follow.
        _mm_sfence();
        at.cast::<u8>().write_bytes(0, bytes - head - lines * LINE);
    }
}
