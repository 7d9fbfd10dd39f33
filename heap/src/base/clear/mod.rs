//! Filling memory with zeros.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "portable.rs")]
mod streaming;

/// From this many bytes on, stores bypass the caches. The block is larger than they are, so plain
/// stores would only evict other data. Measured in `docs/zero.md`.
const STREAMED: usize = 64 << 20;

/// Fills `bytes` bytes with zeros.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub unsafe fn clear(start: *mut u8, bytes: usize) {
    if bytes < STREAMED {
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(0, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { streaming::clear(start, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_no_other_is_cleared() {
        for (from, to) in [(0, 0), (1, 2), (15, 17), (16, 80), (3, 4093), (64, 4096)] {
            let mut memory = [7u8; 4096 + 64];
            // SAFETY: within the array.
            unsafe { streaming::clear(memory.as_mut_ptr().add(from), to - from) };
            let cleared = |index: usize| (from..to).contains(&index);
            let right = |(index, &byte): (usize, &u8)| (byte == 0) == cleared(index);
            assert!(memory.iter().enumerate().all(right), "{from}..{to}");
        }
    }

    #[test]
    fn long_and_short_are_cleared() {
        let mut memory = std::vec![7u8; STREAMED + 4096];
        // SAFETY: within the vector.
        unsafe { clear(memory.as_mut_ptr().add(1), STREAMED + 4094) };
        assert_eq!([memory[0], memory[STREAMED + 4095]], [7, 7]);
        assert!(memory[1..STREAMED + 4095].iter().all(|&byte| byte == 0));
        // SAFETY: as above.
        unsafe { clear(memory.as_mut_ptr(), 1) };
        assert_eq!(memory[0], 0);
    }
}
