//! Tags of blocks of slabs (`NEAP_HARDEN`, the measure `tag`), where the machine has memory tags.
//!
//! ```text
//!   | requested bytes: a tag of 1 to 15 | slack, canary: tag 0 |   a block of the program's
//!   | tag 0                                                    |   a free block, or one held back
//! ```
//!
//! The program gets a pointer with the block's tag. The heap's own pointers have the tag 0, as does
//! all memory outside of the program's blocks. So the heap's accesses to this memory pass the
//! checks. Before the heap reads a block in use, it switches the checks [off](Unchecked). Large
//! blocks have the tag 0.

use crate::base::units::SLICE_BYTES;
use crate::cache::heap::{HEAP, Mode};
use crate::cache::measures::{EARLY, Measures};
use crate::cache::misuse::{self, Call};
use crate::os::tagging::{GRANULE, choose, paint, tag_at, tag_of};
pub(crate) use crate::os::tagging::{Unchecked, is_on, strip};
use crate::slab::class::Class;

/// Switches tags on, if the measures ask for them and the machine has them. Memory that was
/// committed before has none.
pub(crate) fn start(measures: Measures) {
    if measures.has(Measures::TAG) && !is_on() {
        crate::os::tagging::start();
    }
}

/// Whether blocks at `address` have tags.
#[inline(always)]
fn has(address: usize) -> bool {
    is_on() && !EARLY.has(address)
}

/// Gives the first `held` bytes of a fresh block of `bytes` bytes a random tag, which is neither
/// its neighbours' nor `last`. Returns the pointer for the program.
///
/// # Safety
/// - The block is the caller's, and of a slab whose pages may be read.
#[inline(always)]
pub(crate) unsafe fn tag_fresh(block: *mut u8, bytes: usize, held: usize, last: u8) -> *mut u8 {
    match has(block.addr()) {
        // SAFETY: the caller's promise.
        true => block.with_addr(unsafe { tag(block.addr(), bytes, held, last) }),
        false => block,
    }
}

/// # Safety
/// - As [`tag_fresh`]; memory is tagged.
unsafe fn tag(address: usize, bytes: usize, held: usize, last: u8) -> usize {
    let offset = address % SLICE_BYTES;
    debug_assert!(held <= bytes && bytes.is_multiple_of(GRANULE));
    let mut excluded = 1 | 1 << last;
    // SAFETY: the caller's promise: the blocks beside it in its slab. Their tags may change
    // meanwhile.
    unsafe {
        if offset >= bytes {
            excluded |= 1 << tag_at(address - bytes);
        }
        if offset + 2 * bytes <= SLICE_BYTES {
            excluded |= 1 << tag_at(address + bytes);
        }
        let pointer = choose(address, excluded);
        paint(pointer, held.next_multiple_of(GRANULE));
        pointer
    }
}

/// Clears the tag of a block that the program frees, and of which it had `held` bytes. Returns the
/// tag.
///
/// # Safety
/// - The block is of a slab, and its owner uses it no more.
#[inline(always)]
pub(crate) unsafe fn tag_freed(address: usize, held: usize) -> u8 {
    if !has(address) {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let tag = tag_at(address);
        paint(address, held.next_multiple_of(GRANULE));
        tag
    }
}

/// Moves the end of the tagged part of the program's block at a pointer from `old` bytes to `new`.
///
/// # Safety
/// - A block of a slab starts there that has room for both.
#[inline(always)]
pub(crate) unsafe fn tag_resized(pointer: usize, old: usize, new: usize) {
    let address = strip(pointer);
    if !has(address) {
        return;
    }
    let [old, new] = [old, new].map(|bytes| bytes.next_multiple_of(GRANULE));
    // SAFETY: the caller's promise.
    unsafe {
        match old <= new {
            true => paint(pointer + old, new - old),
            false => paint(address + new, old - new),
        }
    }
}

/// Aborts if the block of `class` at a pointer has a tag, and the pointer has another tag.
#[inline(always)]
pub(crate) fn refuse_other(call: Call, pointer: usize, class: Class) {
    let address = strip(pointer);
    if HEAP.mode() != Mode::Checking || !has(address) || HEAP.is_no_bytes(class) {
        return;
    }
    // SAFETY: of a slab in use, whose pages may be read.
    let tag = unsafe { tag_at(address) };
    if tag != 0 && tag != tag_of(pointer) {
        misuse::wrong_tag(call, address, class.bytes());
    }
}
