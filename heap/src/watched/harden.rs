//! Blocks of slabs under `NEAP_HARDEN`: how they are chosen, filled and checked. [`super::seal`]
//! says what stands behind them, and `docs/harden.md` what each measure stops.
//!
//! Most calls are *short*: a `malloc` or `free` of a small block with a canary takes no lock but
//! that of the thread's cache, and only if it is free. Short calls do what the others do for such a
//! block, without their periodic work. If a block or its canary is not as expected, they change
//! nothing, and the slow path reports what is wrong. The slow path also serves a call if the
//! magazine holds few blocks, or if the lock is taken: by another thread, or by this one, which a
//! signal handler has interrupted. A thread holds back the blocks that it frees. The `free` after
//! which it has enough of them brings them to quarantine, and then ends as the slow path does.
//!
//! A free checks the block's own canary and slack, and the bytes within 32 bytes of the block that
//! are in no block in use ([`super::stray`]). Meanwhile, other threads may allocate and free a
//! neighbour. Its canary says that it is in use before its owner writes there, and that it is free
//! only after its bytes are zero.

use super::seal;
use super::seal::{Seal, canary_of, held_bytes, is_unused};
use super::stray::{CANARY_BYTES, canary_at, check_beside, check_slack, first_other, is_zero};
use crate::base::sync::Ordering;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::cache::draw::Hold;
use crate::cache::flush::give_found;
use crate::cache::heap::HEAP;
use crate::cache::machine;
use crate::cache::magazine::{Start, Tag};
pub use crate::cache::measures::{Canary, Form, Measures};
use crate::cache::measures::{EARLY, Key, SECRETS};
use crate::cache::misuse::{self, Call};
use crate::cache::tags::{self, Unchecked};
use crate::cache::thread_cache::Blocks;
use crate::cache::thread_cache::Cache;
use crate::hook;
use crate::init::entered;
use crate::slab::Slab;
use crate::slab::class::{Class, TABLE_BYTES};
use core::ptr::{self, NonNull};

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

/// A block of `size` bytes at a multiple of 16 for the calling thread, whose cache is
/// [hardened](Cache::is_hardened). If freed blocks are filled with zeros, its bytes are zero.
/// `None` if this call cannot be short.
#[inline(never)]
pub(crate) fn allocate_short(cache: &'static Cache, size: usize) -> Option<NonNull<u8>> {
    // For a request of no bytes, the difference wraps around to the largest number.
    let tag = match size.wrapping_sub(1) < TABLE_BYTES - CANARY_BYTES {
        // The table has the classes of C requests, whose blocks are multiples of 16.
        true => match cache.tags[size + CANARY_BYTES] {
            tag if HEAP.is_no_bytes_tag(tag) => unusual_tag_for(size)?,
            tag => tag,
        },
        false => unusual_tag_for(size)?,
    };
    debug_assert_eq!(Some(tag), seal::class_for(size, 16).map(Tag::of));
    let (measures, bytes) = (HEAP.measures(), cache.start(tag).bytes as usize);
    // SAFETY: a class's; the calling thread's own.
    let block = unsafe { cache.try_open()?.draw(tag, bytes, measures)? };
    // SAFETY: drawn from the thread's magazine of that class, which holds free blocks.
    NonNull::new(unsafe { hand_out_sealed(block, size, bytes, measures) })
}

/// The tag of the class for `size` bytes and a canary behind them, where the table does not have
/// it. `None` if a block of this size has no canary.
#[inline(never)]
fn unusual_tag_for(size: usize) -> Option<Tag> {
    (size > 0).then(|| seal::class_for(size, 16).map(Tag::of))?
}

/// What a short call did with a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// This call did not take it, and the slow path must.
    Not,
    /// The thread holds it back.
    Held,
    /// The thread has brought freed blocks to quarantine, this one among them. The caller must end
    /// the call as the slow path does.
    Brought,
}

/// Takes a block back, if it has a canary that says that it is in use.
///
/// # Safety
/// - As [`crate::free::free`]; `cache` is the calling thread's, and hardened.
#[inline(always)]
pub(crate) unsafe fn free_short(cache: &'static Cache, block: *mut u8) -> Freed {
    let (address, measures) = (tags::strip(block.addr()), HEAP.measures());
    if !measures.has(Measures::DELAY) {
        return Freed::Not;
    }
    let Some((tag, start)) = starting_at(cache, address) else {
        return Freed::Not;
    };
    if HEAP.is_no_bytes_tag(tag) {
        return Freed::Not;
    }
    if tags::is_on()
        && let Some(class) = tag.class()
    {
        tags::refuse_other(Call::Free, block.addr(), class);
    }
    let bytes = start.bytes as usize;
    // SAFETY: a block with a canary starts there; the caller's promise.
    if !unsafe { close_if_in_use(address, bytes, measures) } {
        return Freed::Not;
    }
    // Only now: after a fault or an abort in the checks, a handler may run that never returns.
    let hold = match cache.try_open() {
        Some(mut open) => open.hold(address, tag, bytes),
        None => Hold::Refused,
    };
    match hold {
        Hold::Done => return Freed::Held,
        Hold::Last => bring_waiting(cache),
        Hold::Refused => bring_one(cache, address, tag),
    }
    Freed::Brought
}

/// The tag of the class of the block that starts at `address`, and its class's [`Start`]. `None` if
/// no block of a slab in the first arena starts there.
#[inline(always)]
fn starting_at(cache: &Cache, address: usize) -> Option<(Tag, Start)> {
    let base = HEAP.pages.primary_base.load(Ordering::Relaxed);
    let slice = address.wrapping_sub(base) >> SLICE_SHIFT;
    if slice >= HEAP.pages.primary_slices.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the first arena begins with its tag table, a byte of a tag for each slice.
    let tag = unsafe { Tag::from_byte(*((base + slice) as *const u8)) };
    let start = cache.start(tag);
    let offset = (address % SLICE_BYTES) as u32;
    // If the tag is not a class's, no offset is below the limit.
    let starts = offset.wrapping_mul(start.test) < start.limit;
    starts.then_some((tag, start))
}

/// Brings to quarantine the blocks that the calling thread holds back. Out of line, because their
/// copy takes room on the stack.
#[cold]
#[inline(never)]
fn bring_waiting(cache: &Cache) {
    bring(&HEAP.take_waiting(cache));
}

/// Brings closed blocks to quarantine.
#[cold]
#[inline(never)]
fn bring(blocks: &Blocks) {
    // SAFETY: freed by the program, and held back since.
    unsafe {
        if !hook::instruments().hold_back(blocks) {
            reuse_all(blocks);
        }
    }
}

/// Brings to quarantine a closed block that the thread could not hold back. Either the thread has
/// no memory for such blocks yet, or the cache's lock was taken, or this is a signal handler that
/// interrupted the thread before it could bring the blocks that it holds back.
#[cold]
#[inline(never)]
fn bring_one(cache: &'static Cache, address: usize, tag: Tag) {
    HEAP.prepare_waiting(cache);
    let mut blocks = Blocks::none();
    if let Some(class) = tag.class() {
        blocks.push(address, class);
    }
    bring(&blocks);
}

/// A block of `size` bytes, by [`seal::class_for`] of `class`. Null when out of memory.
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
/// interrupted the thread while it held its cache's lock.
fn closed_cache() -> Option<&'static Cache> {
    match HEAP.measures().has(Measures::CANARY) && EARLY.is_empty() {
        true => entered().filter(|cache| !cache.lock().is_mine()),
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
    if seal == Seal::Canary {
        // SAFETY: the caller's promise.
        return unsafe { hand_out_sealed(block, size, bytes, measures) };
    }
    if measures.has(Measures::ZERO) {
        // SAFETY: the block's own bytes, which were closed or never handed out.
        unsafe { refuse_written(address, class, seal) };
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
unsafe fn hand_out_sealed(
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
pub unsafe fn close_sealed(address: usize, class: Class) {
    let bytes = class.bytes();
    // SAFETY: the caller's promise.
    unsafe {
        if close_if_in_use(address, bytes, HEAP.measures()) {
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

/// [`close_sealed`] of a block of `bytes` bytes. False, and nothing happens, if the block's canary
/// does not say that it is in use, or if another thread that frees it at the same time was faster.
///
/// # Safety
/// - The program frees this block, which has a canary or is free, and uses it no more.
#[inline(always)]
unsafe fn close_if_in_use(address: usize, bytes: usize, measures: Measures) -> bool {
    let _unchecked = Unchecked::begin();
    let held = bytes - CANARY_BYTES;
    // SAFETY: a block with a canary starts there, or a free one.
    let word = unsafe { canary_at(address, bytes) };
    let live = word.load(Ordering::Acquire);
    let key = Key::of(address);
    let Some(Canary::Live(_, size)) = key.read(live) else {
        return false;
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
    let (freed, order) = (key.freed_word(tag), (Ordering::AcqRel, Ordering::Acquire));
    word.compare_exchange(live, freed, order.0, order.1).is_ok()
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
