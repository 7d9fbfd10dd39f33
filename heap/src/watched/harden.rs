//! Blocks of slabs under `NEAP_HARDEN`: how they are chosen, filled and checked. [`super::seal`]
//! says what stands behind them, and `docs/harden.md` what each measure stops.
//!
//! A free checks the block's own canary and slack, and the bytes within 32 bytes of the block that
//! are in no block in use ([`super::stray`]). Meanwhile, other threads may allocate and free a
//! neighbour. Its canary says that it is in use before its owner writes there, and that it is free
//! only after its bytes are zero.

use super::seal::{self, Seal, canary_of, held_bytes, is_unused};
use super::stray::{CANARY_BYTES, canary_at, check_beside, check_slack, first_other, is_zero};
use crate::base::sync::Ordering;
use crate::cache::bias::Closing;
use crate::cache::flush::give_found;
use crate::cache::heap::HEAP;
use crate::cache::machine;
pub use crate::cache::measures::{Canary, Form, Measures};
use crate::cache::measures::{EARLY, Key, SECRETS};
use crate::cache::misuse::{self, Call};
use crate::cache::tags::{self, Unchecked};
use crate::cache::thread_cache::Cache;
use crate::cache::waiting::Blocks;
use crate::init::entered;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr;

/// What fills a block that waits in the checking mode: as a pointer it leads nowhere.
const PATTERN: u8 = 0xdb;

/// Whether anything of `NEAP_HARDEN` is in force that blocks of slabs have.
#[inline]
pub fn is_on() -> bool {
    HEAP.measures().harden()
}

/// A random number, if choices are to be random.
pub fn random() -> Option<usize> {
    let wanted = HEAP.measures().has(Measures::RANDOM);
    wanted.then(|| SECRETS.next() as usize)
}

/// A block of `size` bytes, by [`super::rule::class_for`] of `class`. Null when out of memory.
pub(crate) fn allocate(size: usize, class: Class) -> *mut u8 {
    let (block, seal) = match own_cache(class) {
        // SAFETY: the calling thread's own, and in this mode its fast path is closed.
        Some(cache) => (unsafe { HEAP.draw(cache, class) }, Seal::Canary),
        None => {
            let block = HEAP.take_past(class);
            (block, seal::of(block.addr(), class))
        }
    };
    match block.is_null() {
        true => block,
        // SAFETY: a fresh block of that class.
        false => unsafe { hand_out(block, size, class, seal) },
    }
}

/// The calling thread's cache, if its magazine holds free blocks of `class`: their canaries tell
/// that they are free. `None` also for a thread without a cache.
#[inline]
fn own_cache(class: Class) -> Option<&'static Cache> {
    match HEAP.is_no_bytes(class) {
        true => None,
        false => closed_cache(),
    }
}

/// [`own_cache`] of any class whose blocks have canaries. `None` also in a signal handler that
/// interrupted a turn of the thread.
fn closed_cache() -> Option<&'static Cache> {
    match HEAP.measures().has(Measures::CANARY) && EARLY.is_empty() {
        true => entered().filter(|cache| !cache.is_at_work()),
        false => None,
    }
}

/// Gives a [closed](close) block of this slab back: to the calling thread's magazine, or to the
/// slab.
///
/// # Safety
/// - The program freed the block at `address`, and nothing uses it any more.
pub(crate) unsafe fn give(slab: &'static Slab, class: Class, address: usize) {
    match own_cache(class) {
        // SAFETY: the calling thread's own, as in `allocate`; the caller's promise.
        Some(cache) => unsafe { HEAP.keep(cache, class, address as *mut u8) },
        // SAFETY: the caller's promise.
        None => unsafe { give_found(&HEAP, slab, class, address) },
    }
}

/// [`give`] of blocks with canaries that have waited since they were closed. Without `zero`, aborts
/// if one has changed meanwhile. With it, [`hand_out`] does.
///
/// # Safety
/// - As [`give`], of each.
pub unsafe fn reuse_all(blocks: &Blocks) {
    let measures = HEAP.measures();
    // With zeros, this is looked at when the block is handed out.
    if !measures.has(Measures::ZERO) {
        for (address, class) in blocks.iter() {
            // SAFETY: the caller's promise.
            unsafe { refuse_changed(address, class.bytes(), fill_by(measures)) };
        }
    }
    match closed_cache() {
        // SAFETY: as in `give`.
        Some(cache) => unsafe { HEAP.keep_all(cache, blocks) },
        // SAFETY: the caller's promise.
        None => unsafe { HEAP.give_all(blocks) },
    }
}

/// Aborts if the canary of a closed block, or a byte of its fill, has changed.
///
/// # Safety
/// - As [`give`].
unsafe fn refuse_changed(address: usize, bytes: usize, fill: Option<u8>) {
    let held = bytes - CANARY_BYTES;
    // SAFETY: the caller's promise.
    let word = unsafe { canary_at(address, bytes) }.load(Ordering::Acquire);
    if Key::of(address).read(word) != Some(Canary::Freed) {
        misuse::written_freed(address, bytes, held);
    }
    // SAFETY: as above.
    let offset = fill.and_then(|fill| unsafe { first_other(address, held, fill) });
    if let Some(offset) = offset {
        misuse::written_freed(address, bytes, offset);
    }
}

/// Checks that nothing was written to a block while it was free, and sets its canary and its tag.
/// Returns the pointer for the program.
///
/// # Safety
/// - A block of `class` of the caller's, which no other thread has.
unsafe fn hand_out(block: *mut u8, size: usize, class: Class, seal: Seal) -> *mut u8 {
    let (address, bytes) = (block.addr(), class.bytes());
    let measures = HEAP.measures();
    let checks = measures.has(Measures::ZERO) && !EARLY.has(address);
    if seal == Seal::Canary {
        // SAFETY: the caller's promise.
        return unsafe { hand_out_sealed(block, size, bytes, measures) };
    }
    if checks {
        // SAFETY: the block's own bytes.
        if let Some(offset) = unsafe { first_other(address, held_bytes(seal, bytes), 0) } {
            misuse::written_freed(address, bytes, offset);
        }
    }
    match seal {
        Seal::NoBytes => block,
        // SAFETY: the caller's promise.
        Seal::Open | Seal::Canary => unsafe { tags::tag_fresh(block, bytes, bytes, 0) },
    }
}

/// [`hand_out`] of a block of `bytes` bytes with a canary.
///
/// # Safety
/// - As [`hand_out`].
#[inline(always)]
pub(crate) unsafe fn hand_out_sealed(
    block: *mut u8,
    size: usize,
    bytes: usize,
    measures: Measures,
) -> *mut u8 {
    let (address, held) = (block.addr(), bytes - CANARY_BYTES);
    let key = Key::of(address);
    let live = key.word(Canary::Live(Form::Malloc, size));
    // SAFETY: the word behind the block. Written first, because a read of an untouched page costs a
    // fault of its own.
    let before = unsafe { machine::exchange_own(canary_at(address, bytes), live) };
    let last_tag = match tags::is_on() {
        true => key.last_tag(before),
        false => 0,
    };
    if measures.has(Measures::ZERO) {
        // SAFETY: the block's own bytes.
        let is_zero = unsafe { is_zero(address, held) };
        if !is_zero || (before != 0 && before != key.freed_word(0) && last_tag == 0) {
            // SAFETY: as above.
            unsafe { refuse_written_at(address, bytes) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { tags::tag_fresh(block, bytes, size, last_tag) }
}

/// # Safety
/// - A block of the caller's with a canary, whose free bytes or canary something has overwritten.
#[cold]
#[inline(never)]
unsafe fn refuse_written_at(address: usize, bytes: usize) -> ! {
    let held = bytes - CANARY_BYTES;
    // SAFETY: the caller's promise.
    let offset = unsafe { first_other(address, held, 0) };
    misuse::written_freed(address, bytes, offset.unwrap_or(held))
}

/// Takes a block of a slab, which has no canary, out of the program's hands: aborts if it is free
/// already, then fills it.
///
/// # Safety
/// - The program frees the block `number` of this slab, and uses it no more.
pub unsafe fn close(slab: &Slab, class: Class, number: usize) {
    let bytes = class.bytes();
    let address = slab.base() + number * bytes;
    if slab.is_free(class, number) {
        misuse::double_free(address, bytes);
    }
    if seal::of(address, class) != Seal::Open {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { tags::tag_freed(address, bytes) };
    if let Some(fill) = fill_of(address) {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(address as *mut u8, fill, bytes) };
    }
}

/// [`close`] of the block with a canary at `address`. Aborts also if something was written past its
/// end or beside it.
///
/// # Safety
/// - The program frees this block of the slab, and uses it no more.
/// - The calling thread has [entered] the heap, so that no other thread ends a free as one that is
///   [alone](Closing::end).
pub unsafe fn close_sealed(address: usize, class: Class) {
    let bytes = class.bytes();
    // SAFETY: the caller's promise.
    unsafe {
        let closing = close_if_in_use(address, bytes, HEAP.measures());
        if closing.is_some_and(|closing| closing.end(None)) {
            return;
        }
        match canary_of(address, class) {
            None if !is_unused(address) => {
                misuse::canary(Call::Free, address, bytes - CANARY_BYTES)
            }
            _ => misuse::double_free(address, bytes),
        }
    }
}

/// The first steps of [`close_sealed`], of a block of `bytes` bytes; [`Closing`] has the last one.
/// `None`, and nothing happens, if the block's canary does not say that it is in use.
///
/// # Safety
/// - The program frees this block, which has a canary or is free, and uses it no more.
#[inline(always)]
pub(crate) unsafe fn close_if_in_use<'a>(
    address: usize,
    bytes: usize,
    measures: Measures,
) -> Option<Closing<'a>> {
    let _unchecked = Unchecked::begin();
    let held = bytes - CANARY_BYTES;
    // SAFETY: a block with a canary starts there, or a free one.
    let word = unsafe { canary_at(address, bytes) };
    let live = word.load(Ordering::Acquire);
    let key = Key::of(address);
    let Some(Canary::Live(_, size)) = key.read(live) else {
        return None;
    };
    if measures.has(Measures::ZERO) {
        // SAFETY: the block's own bytes; the caller's promise.
        unsafe {
            check_slack(Call::Free, address, size, held);
            check_beside(address, bytes, size, key);
            clear(address, size, held);
        }
    } else if measures.has(Measures::CHECK) {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(address as *mut u8, PATTERN, held) };
    }
    // SAFETY: the caller's promise.
    let tag = unsafe { tags::tag_freed(address, size) };
    let freed = key.freed_word(tag);
    Some(Closing { word, live, freed })
}

/// Fills the first `size` of `end` bytes with zeros. The others are zero already.
///
/// # Safety
/// - The `end` bytes from `address` on are of a block of the caller's; `size` is at most `end`.
#[inline(always)]
unsafe fn clear(address: usize, size: usize, end: usize) {
    const BYTES: usize = size_of::<u128>();
    debug_assert!(size <= end);
    if size > 4 * BYTES || end < BYTES {
        // SAFETY: the caller's promise.
        return unsafe { ptr::write_bytes(address as *mut u8, 0, size) };
    }
    // From here on, no branch depends on the size. The processor could not predict it.
    for number in 0..4 {
        let at = (BYTES * number).min(end - BYTES);
        // SAFETY: as above.
        unsafe { ((address + at) as *mut u128).write_unaligned(0) };
    }
}

/// What fills the freed block at `address`.
fn fill_of(address: usize) -> Option<u8> {
    let measures = HEAP.measures();
    match EARLY.has(address) && measures.harden() {
        true => None,
        false => fill_by(measures),
    }
}

/// What fills a freed block that is not older than the measures.
fn fill_by(measures: Measures) -> Option<u8> {
    match measures.has(Measures::ZERO) {
        true => Some(0),
        false => measures.has(Measures::CHECK).then_some(PATTERN),
    }
}

/// Aborts if a block without a canary has changed since it was [closed](close).
///
/// # Safety
/// - It was closed, and nothing may use it since.
pub unsafe fn refuse_written(address: usize, class: Class, seal: Seal) {
    debug_assert_ne!(seal, Seal::Canary);
    if let Some(fill) = fill_of(address) {
        // SAFETY: the block's bytes; the caller's promise.
        if let Some(offset) = unsafe { first_other(address, held_bytes(seal, class.bytes()), fill) }
        {
            misuse::written_freed(address, class.bytes(), offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn a_block_is_cleared_and_no_other_byte() {
        const BESIDE: usize = 32;
        for end in (8..=200).step_by(8) {
            for size in 0..=end {
                let mut bytes = vec![0xff_u8; end + 2 * BESIDE];
                bytes[BESIDE + size..BESIDE + end].fill(0);
                // SAFETY: the bytes above.
                unsafe { clear(bytes[BESIDE..].as_ptr().addr(), size, end) };
                let expected = [vec![0xff; BESIDE], vec![0; end], vec![0xff; BESIDE]].concat();
                assert_eq!(bytes, expected, "{size} of {end}");
            }
        }
    }
}
