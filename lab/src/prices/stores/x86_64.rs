//! SSE2's stores, which every x86-64 processor has.

use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fills `bytes` bytes with zeros, and returns true.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
/// - `start` and `bytes` are multiples of 64.
pub unsafe fn stream(start: *mut u8, bytes: usize) -> bool {
    debug_assert!(start.addr().is_multiple_of(LINE) && bytes.is_multiple_of(LINE));
    // SAFETY: whole aligned lines of the range; all of it the caller's promise.
    unsafe {
        let (zero, mut at) = (_mm_setzero_si128(), start.cast::<__m128i>());
        for _ in 0..bytes / LINE {
            _mm_stream_si128(at, zero);
            _mm_stream_si128(at.add(1), zero);
            _mm_stream_si128(at.add(2), zero);
            _mm_stream_si128(at.add(3), zero);
            at = at.add(4);
        }
        _mm_sfence();
    }
    true
}
