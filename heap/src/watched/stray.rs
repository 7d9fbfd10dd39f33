//! Looks for stray writes (`NEAP_HARDEN`): writes to a free block, to a block's slack (the bytes
//! between the requested ones and the canary), and beside a block that is freed. [`super::seal`]
//! says what a block of a slab looks like.
//!
//! Every allocation and every free looks for them, and almost none finds one. So each first reads
//! all words that it checks, without a branch for each word.

use crate::base::sync::{AtomicU64, Ordering, fence};
use crate::base::units::SLICE_BYTES;
use crate::cache::measures::Key;
use crate::cache::misuse::{self, Call};
use core::ops::Range;
use core::ptr;

/// Bytes of a canary.
pub(crate) const CANARY_BYTES: usize = size_of::<u64>();
/// How far from a block a free looks for stray writes, in bytes.
const BESIDE: usize = 32;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of two words.
const PAIR: usize = size_of::<u128>();
/// The most bytes of slack that four reads of two words cover.
const MOST_PAIRS: usize = 4 * PAIR;
/// Bytes of the smallest OS page.
const LEAST_PAGE: usize = 4096;
/// The sizes of blocks that have room for [`BESIDE`] bytes and a canary, and are less than a page.
const NEAR_BLOCKS: Range<usize> = BESIDE + CANARY_BYTES..LEAST_PAGE;
/// How many times a free looks at a stray write before it aborts.
const LOOKS: usize = 64;

/// A block's canary: the word at its end.
///
/// # Safety
/// - A block of `bytes` bytes with a place for a canary starts at `address`; its slab is in use.
#[inline]
pub(crate) unsafe fn canary_at<'a>(address: usize, bytes: usize) -> &'a AtomicU64 {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    let word = (address + bytes - CANARY_BYTES) as *const AtomicU64;
    // SAFETY: the caller's promise: the last word of a block, which only this mode reaches.
    unsafe { &*word }
}

/// The offset of the first of `bytes` bytes, a multiple of 8, that is not `fill`.
///
/// # Safety
/// - They are of a free block of the caller's, and begin at a multiple of 8.
#[inline(never)]
pub(crate) unsafe fn first_other(address: usize, bytes: usize, fill: u8) -> Option<usize> {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    // SAFETY: the caller's promise.
    let words = unsafe { core::slice::from_raw_parts(address as *const u64, bytes / 8) };
    match fill == 0 && are_zero(words) {
        true => None,
        false => first_other_word(words, fill),
    }
}

/// Whether `bytes` bytes, a multiple of 8, are 0.
///
/// # Safety
/// - As [`first_other`].
#[inline(always)]
pub(crate) unsafe fn is_zero(address: usize, bytes: usize) -> bool {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    // SAFETY: the caller's promise.
    are_zero(unsafe { core::slice::from_raw_parts(address as *const u64, bytes / 8) })
}

/// Whether all words are 0. The last words, which may be too few for a group of eight or four, are
/// read together with words before them.
#[inline]
fn are_zero(words: &[u64]) -> bool {
    #[inline(always)]
    fn any<const COUNT: usize>(chunk: &[u64; COUNT]) -> u64 {
        chunk.iter().fold(0, |all, word| all | word)
    }
    match (words.last_chunk::<8>(), words.first_chunk::<4>()) {
        (Some(last), _) => {
            let (chunks, _) = words.as_chunks::<8>();
            chunks.iter().all(|chunk| any(chunk) == 0) && any(last) == 0
        }
        (None, Some(first)) => any(first) | words.last_chunk::<4>().map_or(0, any) == 0,
        (None, None) => words.iter().all(|&word| word == 0),
    }
}

#[inline(never)]
fn first_other_word(words: &[u64], fill: u8) -> Option<usize> {
    let expected = u64::from_ne_bytes([fill; 8]);
    let (chunks, _) = words.as_chunks::<8>();
    let other = |chunk: &[u64; 8]| chunk.iter().fold(0, |all, word| all | (word ^ expected)) != 0;
    let from = chunks.iter().position(other).unwrap_or(chunks.len()) * 8;
    let at = from + words[from..].iter().position(|&word| word != expected)?;
    Some(at * 8 + first_byte(words[at] ^ expected))
}

/// The index, in memory, of the first byte of a word that is not 0.
fn first_byte(word: u64) -> usize {
    word.to_le().trailing_zeros() as usize / 8
}

/// Aborts if the slack, the bytes from the offset `size` to the canary at `end`, is not zero.
///
/// # Safety
/// - A block in use of `size` bytes starts at `address`; `end` is a multiple of 8, and not 0.
#[inline(always)]
pub(crate) unsafe fn check_slack(call: Call, address: usize, size: usize, end: usize) {
    debug_assert!(size <= end && end.is_multiple_of(8) && end > 0);
    // SAFETY: the caller's promise.
    if !unsafe { is_slack_zero(address, size, end) } {
        // SAFETY: as above.
        unsafe { look_at_slack(call, address, size, end) };
    }
}

/// Whether the slack is zero. Also false if there are more than [`MOST_PAIRS`] bytes of it; then
/// [`look_at_slack`] decides.
///
/// # Safety
/// - As [`check_slack`].
#[inline(always)]
unsafe fn is_slack_zero(address: usize, size: usize, end: usize) -> bool {
    // Few branches depend on the size, because sizes are as good as random.
    // SAFETY: 8 bytes of the block.
    let word = |at: usize| unsafe { ((address + at) as *const u64).read_unaligned() };
    // SAFETY: 16 bytes of the block, which has more than 16 bytes of slack.
    let pair = |at: usize| unsafe { ((address + at) as *const u128).read_unaligned() };
    match end - size {
        // With 8 bytes of slack or more, reads no requested byte. A read that spans the program's
        // last stores would wait for them, because the processor cannot forward them.
        slack if slack <= PAIR => {
            let (first, last) = (size.min(end - WORD), end - WORD);
            is_clear_from(word(first) | word(last), size - first)
        }
        slack if slack <= MOST_PAIRS => {
            let next = |number: usize| pair((size + PAIR * number).min(end - PAIR));
            next(0) | next(1) | next(2) | next(3) == 0
        }
        _ => false,
    }
}

/// Whether the bytes of a word from the one with this number on are 0.
#[inline(always)]
fn is_clear_from(word: u64, byte: usize) -> bool {
    debug_assert!(byte <= WORD);
    // Twice by half as much, because no shift may be by 64 bits.
    word.to_le() >> (4 * byte) >> (4 * byte) == 0
}

/// [`check_slack`], word by word.
///
/// # Safety
/// - As [`check_slack`].
#[inline(never)]
unsafe fn look_at_slack(call: Call, address: usize, size: usize, end: usize) {
    let from = size.next_multiple_of(WORD);
    // SAFETY: the words of the block from the one with the first byte of slack on.
    let is_clear = unsafe {
        let first = (address + from - WORD) as *const u64;
        (from == size || is_clear_from(*first, size % WORD)) && is_zero(address + from, end - from)
    };
    if !is_clear {
        // SAFETY: as above.
        unsafe { refuse_slack(call, address, size, end) };
    }
}

/// # Safety
/// - As [`check_slack`].
#[cold]
unsafe fn refuse_slack(call: Call, address: usize, size: usize, end: usize) -> ! {
    // SAFETY: a byte of the block.
    let is_other = |&at: &usize| unsafe { *((address + at) as *const u8) } != 0;
    let offset = (size..end).find(is_other).unwrap_or(size);
    misuse::overflow(call, address, size, offset)
}

/// Aborts if something was written beside a block of `size` requested bytes, where no block is in
/// use. Does nothing for blocks of a page or more: the program may have made a whole page of its
/// block beside this one inaccessible.
///
/// # Safety
/// - A block of `bytes` bytes with this key starts there and is in use. The blocks of its slab have
///   canaries.
#[inline(always)]
pub(crate) unsafe fn check_beside(address: usize, bytes: usize, size: usize, key: Key) {
    let freed = Freed {
        address,
        size,
        bytes,
    };
    if NEAR_BLOCKS.contains(&bytes) {
        // SAFETY: the caller's promise; the block has room for `BESIDE` bytes and a canary.
        unsafe { check_at(freed, bytes, BESIDE, key) };
    } else if bytes < LEAST_PAGE {
        // SAFETY: the caller's promise.
        unsafe { check_small(freed, key) };
    }
}

/// [`check_beside`] of blocks of which more than one may lie within [`BESIDE`] bytes, or that have
/// fewer bytes themselves.
///
/// # Safety
/// - As [`check_beside`].
#[inline(never)]
unsafe fn check_small(freed: Freed, key: Key) {
    for number in 1..=BESIDE.div_ceil(freed.bytes) {
        // SAFETY: the caller's promise.
        unsafe { check_at(freed, number * freed.bytes, freed.bytes - CANARY_BYTES, key) };
    }
}

/// A block that is freed.
#[derive(Clone, Copy)]
struct Freed {
    address: usize,
    /// The requested bytes.
    size: usize,
    /// Bytes of each block of the slab.
    bytes: usize,
}

/// [`check_beside`] for the two blocks `distance` bytes before and behind the freed one, of which
/// it looks at the `near` bytes at the side of the freed one.
///
/// # Safety
/// - As [`check_beside`]; blocks of the slab have room for `near` bytes and a canary.
#[inline(always)]
unsafe fn check_at(freed: Freed, distance: usize, near: usize, key: Key) {
    let offset = freed.address % SLICE_BYTES;
    let (key_before, key_behind) = key.beside(distance);
    let from = freed.bytes - CANARY_BYTES - near;
    let (before, behind) = (
        freed.address.wrapping_sub(distance),
        freed.address + distance,
    );
    // A slab is a slice, and what is left behind its last block is less than a block.
    let (is_first, is_last) = (
        offset < distance,
        offset + distance + freed.bytes > SLICE_BYTES,
    );
    // SAFETY: blocks of a slab in use, whose pages may be read.
    unsafe {
        let in_first = if is_first {
            0
        } else {
            dirt(before, freed.bytes, key_before, from, near)
        };
        let in_last = if is_last {
            0
        } else {
            dirt(behind, freed.bytes, key_behind, 0, near)
        };
        if in_first | in_last != 0 {
            refuse_unless_used(
                freed,
                [(before, from, in_first), (behind, 0, in_last)],
                near,
            );
        }
    }
}

/// 0 if the block at `start` is in use, or is free and has no stray write in the `near` bytes from
/// the offset `from` on. No branch depends on which of the two it is, because that is as good as
/// random.
///
/// # Safety
/// - A block of `bytes` bytes with this key starts there, in a slab in use. It has room for these
///   bytes and a canary.
#[inline(always)]
unsafe fn dirt(start: usize, bytes: usize, key: Key, from: usize, near: usize) -> u64 {
    // SAFETY: the caller's promise.
    let (word, strays) = unsafe { (canary_at(start, bytes), strays(start + from, near)) };
    let word = word.load(Ordering::Acquire);
    let strays = if key.is_live(word) { 0 } else { strays };
    strays | u64::from(is_changed(word, key))
}

/// Whether something overwrote a canary. It then says neither that the program has the block, nor
/// that the block was freed or never handed out.
#[inline(always)]
fn is_changed(word: u64, key: Key) -> bool {
    word != 0 && key.read(word).is_none()
}

/// The bits that are set in any word of `bytes` bytes: a multiple of 8, from 8 to [`BESIDE`].
///
/// # Safety
/// - They may be read, and begin at a multiple of 8. Other threads may write to them meanwhile.
#[inline(always)]
unsafe fn strays(address: usize, bytes: usize) -> u64 {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    // SAFETY: the caller's promise.
    let word = |at: usize| unsafe { ptr::read_volatile((address + at) as *const u64) };
    match bytes {
        BESIDE => word(0) | word(8) | word(16) | word(24),
        8 => word(0),
        _ => word(0) | word(8) | word(bytes - 8),
    }
}

/// Aborts if a stray write was seen in one of two blocks, unless that was handed out meanwhile. Of
/// each block: its start, the offset of the `near` bytes, and what [`dirt`] said.
///
/// # Safety
/// - As [`check_at`].
#[cold]
#[inline(never)]
unsafe fn refuse_unless_used(freed: Freed, blocks: [(usize, usize, u64); 2], near: usize) {
    for (start, from, _) in blocks.into_iter().filter(|&(.., dirt)| dirt != 0) {
        // SAFETY: the caller's promise.
        if let Some(offset) = unsafe { lasting_stray(start, from, freed.bytes, near) } {
            let distance = (start + offset) as isize - freed.address as isize;
            misuse::stray_write(freed.address, freed.size, distance);
        }
    }
}

/// The offset of a stray write that stays. Other threads may hand the block out and free it
/// meanwhile, even more than once. What a stray write left stays.
///
/// # Safety
/// - As [`dirt`].
unsafe fn lasting_stray(start: usize, from: usize, bytes: usize, near: usize) -> Option<usize> {
    let key = Key::of(start);
    // SAFETY: the caller's promise.
    let word = unsafe { canary_at(start, bytes) };
    let mut offset = 0;
    for _ in 0..LOOKS {
        offset = match is_changed(word.load(Ordering::Acquire), key) {
            true => bytes - CANARY_BYTES,
            // SAFETY: the caller's promise.
            false => from + unsafe { first_stray(start + from, near) }?,
        };
        fence(Ordering::Acquire);
        if key.is_live(word.load(Ordering::Relaxed)) {
            return None;
        }
        core::hint::spin_loop();
    }
    Some(offset)
}

/// The offset of the first byte that is not 0.
///
/// # Safety
/// - As [`strays`].
unsafe fn first_stray(address: usize, bytes: usize) -> Option<usize> {
    (0..bytes).step_by(8).find_map(|at| {
        // SAFETY: the caller's promise.
        let word = unsafe { ptr::read_volatile((address + at) as *const u64) };
        (word != 0).then(|| at + first_byte(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn the_first_other_byte_is_found_wherever_it_is() {
        for count in 1..=40usize {
            for fill in [0, 0xdb] {
                let mut words = vec![u64::from_ne_bytes([fill; 8]); count];
                let address = words.as_ptr().addr();
                // SAFETY: the words, which nothing else uses.
                assert_eq!(unsafe { first_other(address, count * 8, fill) }, None);
                for byte in 0..count * 8 {
                    words[byte / 8] ^= u64::from_ne_bytes(1u64.to_le_bytes()) << (byte % 8 * 8);
                    let address = words.as_ptr().addr();
                    // SAFETY: as above.
                    let found = unsafe { first_other(address, count * 8, fill) };
                    assert_eq!(found, Some(byte), "{count} words");
                    words[byte / 8] = u64::from_ne_bytes([fill; 8]);
                }
            }
        }
    }

    #[test]
    fn a_byte_of_the_slack_is_seen_wherever_it_is() {
        for end in (8..=200).step_by(8) {
            // The block lies between bytes of others.
            let mut bytes = vec![0xff_u8; end + 2 * PAIR];
            for size in 0..=end {
                let block = &mut bytes[PAIR..PAIR + end];
                block[..size].fill(0xff);
                block[size..].fill(0);
                let address = block.as_ptr().addr();
                // SAFETY: the bytes above.
                let is_zero = || unsafe { is_slack_zero(address, size, end) };
                assert_eq!(is_zero(), end - size <= MOST_PAIRS, "{size} of {end}");
                for at in size..end {
                    bytes[PAIR + at] = 1;
                    assert!(!is_zero(), "{at} beyond {size} of {end}");
                    bytes[PAIR + at] = 0;
                }
                // SAFETY: as above.
                unsafe { check_slack(Call::Free, address, size, end) };
            }
        }
    }

    #[test]
    fn strays_are_bits_of_any_word() {
        let held = [8, 24, 32];
        for (bytes, at) in held
            .into_iter()
            .flat_map(|bytes| (0..bytes / 8).map(move |at| (bytes, at)))
        {
            let mut words = [0u64; 4];
            words[at] = 1;
            // SAFETY: at most 32 bytes.
            assert_eq!(unsafe { strays(words.as_ptr().addr(), bytes) }, 1);
        }
    }
}
