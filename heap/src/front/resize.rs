//! Changing a block's size.

use super::allocate::{allocate_layout, current};
use super::release::{free, sizes_are_loose, start_of};
use super::{MAX_BYTES, large};
use crate::cache::heap::{Found, HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::hook;
use crate::pages::SliceRef;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr;

/// Resizes a block of [`super::allocate`], moving it if need be; the common part of the contents
/// stays. Null when out of memory: then the block is as it was.
///
/// # Safety
/// - `block` is a block of this heap that is not given back; no thread uses it meanwhile.
pub unsafe fn reallocate(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { reallocate_layout(block, size, 16) }
}

/// Resizes a block of [`super::allocate_layout`] with the same `align`.
///
/// # Safety
/// - As [`reallocate`].
pub unsafe fn reallocate_layout(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    if size > MAX_BYTES {
        return ptr::null_mut();
    }
    let address = block.addr();
    match HEAP.find(address) {
        Found::Slab(slab, class) => {
            refuse_freed(block, slab, class);
            if HEAP.mode() != Mode::Plain {
                look_closer(address, class, size, align);
            }
            if Class::of_layout(size, align) == Some(class) {
                return block;
            }
            // SAFETY: the caller's promise; a slab block of this class holds that many bytes.
            unsafe { move_block(block, class.bytes(), size, align) }
        }
        // SAFETY: the caller's promise.
        Found::Sampled(place) => unsafe { reallocate_sampled(&place, block, size, align) },
        Found::Large(place) => {
            if is_quarantined(address) {
                misuse::realloc_freed(address);
            }
            // SAFETY: the caller's promise.
            unsafe { large::reallocate(&place, block, size, align) }
        }
        Found::Foreign => misuse::foreign(Call::Realloc, address),
        Found::Nothing | Found::Stack => misuse::no_block(Call::Realloc, address),
    }
}

/// [`reallocate_layout`] of a block that the profiler sampled: of a class, but in a span of its
/// own.
///
/// # Safety
/// - As [`reallocate`].
#[cold]
#[inline(never)]
unsafe fn reallocate_sampled(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let held = large::bytes(Call::Realloc, place, block.addr());
    if is_quarantined(block.addr()) {
        misuse::realloc_freed(block.addr());
    }
    let class = Class::of_layout(size, align).filter(|class| class.bytes() == held);
    if class.is_some() {
        note_kept(size, class);
        return block;
    }
    // SAFETY: the caller's promise; the block has that many usable bytes.
    unsafe { move_block(block, held, size, align) }
}

/// Aborts if the block is seen to be free: its bit is set, or it lies on top of this thread's
/// magazine.
fn refuse_freed(block: *mut u8, slab: &Slab, class: Class) {
    let number = start_of(Call::Realloc, slab, class, block.addr());
    if slab.is_free(class, number) || current().magazine(Tag::of(class)).newest() == Some(block) {
        misuse::realloc_freed(block.addr());
    }
}

/// What the other modes look at when the block of a slab is resized.
#[cold]
#[inline(never)]
fn look_closer(address: usize, class: Class, size: usize, align: usize) {
    if is_quarantined(address) {
        misuse::realloc_freed(address);
    }
    if Class::of_layout(size, align) == Some(class) {
        note_kept(size, Some(class));
    }
}

/// A block that is resized without another allocation: its new size counts as asked for, too.
pub(super) fn note_kept(size: usize, class: Option<Class>) {
    if HEAP.mode() == Mode::Counting {
        hook::instruments().requested(size, class);
    }
}

fn is_quarantined(address: usize) -> bool {
    HEAP.mode() == Mode::Checking && hook::instruments().holds(address)
}

/// Moves a block's contents to a new one of `size` bytes.
///
/// # Safety
/// - `block` holds `held` bytes, is not given back, and no thread uses it meanwhile.
pub(super) unsafe fn move_block(block: *mut u8, held: usize, size: usize, align: usize) -> *mut u8 {
    let moved = allocate_layout(size, align);
    if moved.is_null() {
        if size > held {
            return moved;
        }
        // A smaller size must not fail: the block stays where it is.
        sizes_are_loose();
        return block;
    }
    // SAFETY: two different blocks, each at least that long.
    unsafe { ptr::copy_nonoverlapping(block, moved, held.min(size)) };
    // SAFETY: the caller's promise.
    unsafe { free(block) };
    moved
}
