//! Changing a block's size.
//!
//! Each call asks whether it is checked or counted, and then leaves all of itself to
//! [`crate::watched`]. The rest of this file knows of no mode.

use crate::cache::heap::{Found, HEAP};
use crate::cache::tags;
use crate::free::free;
use crate::large::{self, MAX_BYTES, Resized};
use crate::malloc::allocate_layout;
use crate::slab::class::Class;
use crate::supply::{self, refuse_freed};
use crate::watched::resize;
use core::ptr;

/// Resizes a block of [`crate::malloc::allocate`], moving it if necessary, and keeps the common
/// part of the contents. Returns null when out of memory, and then leaves the block as it was.
///
/// # Safety
/// - `block` is a block of this heap that is not given back; no thread uses it meanwhile.
#[unsafe(link_section = "neap_text")]
pub unsafe fn reallocate(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { reallocate_layout(block, size, 16) }
}

/// Resizes a block of [`allocate_layout`] with the same `align`.
///
/// # Safety
/// - As [`reallocate`].
#[unsafe(link_section = "neap_text")]
pub unsafe fn reallocate_layout(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    if size > MAX_BYTES {
        return ptr::null_mut();
    }
    let Some((slab, class)) = HEAP.find_slab(block.addr()) else {
        // SAFETY: the caller's promise.
        return unsafe { reallocate_elsewhere(block, size, align) };
    };
    refuse_freed(block, slab, class);
    if !HEAP.is_plain() {
        // SAFETY: the caller's promise.
        return unsafe { resize::reallocate(block, class, size, align) };
    }
    if Class::of_layout(size, align) == Some(class) {
        return block;
    }
    // SAFETY: the caller's promise; a slab block of this class holds that many bytes.
    unsafe { move_block(block, class.bytes(), size, align) }
}

/// [`reallocate_layout`] of a block of no slab, or of what is no block.
///
/// # Safety
/// - As [`reallocate`].
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_elsewhere(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    let place = match HEAP.find(tags::strip(block.addr())) {
        Found::Large(place) if HEAP.is_plain() => place,
        // SAFETY: the caller's promise.
        found => return unsafe { resize::reallocate_found(found, block, size, align) },
    };
    // SAFETY: the caller's promise.
    match unsafe { large::resize(&place, block, size, align) } {
        Resized::Stays => block,
        Resized::Moved(moved) => moved,
        // SAFETY: the caller's promise.
        Resized::ToCopy(held) => unsafe { move_block(block, held, size, align) },
    }
}

/// Moves a block's contents to a new one of `size` bytes, by copying them.
///
/// # Safety
/// - `block` holds `held` bytes, is not given back, and no thread uses it meanwhile.
#[unsafe(link_section = "neap_text")]
unsafe fn move_block(block: *mut u8, held: usize, size: usize, align: usize) -> *mut u8 {
    let moved = allocate_layout(size, align);
    if moved.is_null() {
        return supply::unmoved(block, held, size);
    }
    // SAFETY: two different blocks, each at least that long; the caller's promise.
    unsafe {
        ptr::copy_nonoverlapping(block, moved, held.min(size));
        free(block);
    }
    moved
}
