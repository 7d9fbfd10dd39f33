//! The fast path in plain Rust, for every machine.

use crate::base::sync::Ordering;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::cache::heap::HEAP;
use crate::cache::magazine::Tag;
use crate::cache::slot;
use crate::cache::thread::Cache;

/// Takes a block for a request of `size` bytes; `None` if its magazine has none or holds it twice,
/// if requests of that size are not in the table, or if the door is shut.
#[inline(always)]
pub fn pop_sized(cache: &Cache, size: usize) -> Option<*mut u8> {
    // Acquire: the guards that were written before the door was opened are seen.
    if size >= cache.below.load(Ordering::Acquire) {
        return None;
    }
    let magazine = cache.magazine(cache.tags[size]);
    // SAFETY: with the door open every class's top stands above an entry or the guard.
    unsafe { magazine.take(magazine.top.load(Ordering::Relaxed)) }
}

/// Takes the newest block of a magazine; `None` if there is none, if it lies again two entries
/// below, or if the magazine is closed.
#[inline(always)]
pub fn pop(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    cache.magazine(tag).pop()
}

/// Takes the newest block of a magazine while the profiler counts what is given out; `None` if this
/// one is to be sampled, if there is none, or if nothing is counted. For the owner only.
#[inline(always)]
pub fn pop_counted(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    let counted = cache.counted_of(tag);
    let magazine = cache.magazine(tag);
    let bottom = counted.bottom.load(Ordering::Relaxed);
    if magazine.top.load(Ordering::Relaxed) <= bottom {
        return None;
    }
    let ahead = counted.ahead.load(Ordering::Relaxed).wrapping_sub(1);
    counted.ahead.store(ahead, Ordering::Relaxed);
    if ahead < 0 {
        return None;
    }
    magazine.pop_above(bottom)
}

/// Pushes a block onto the calling thread's magazine of its class. False if that takes the slow
/// path: not in the primary arena, no block of a slab, no room, no cache, or freed by the call
/// before.
///
/// # Safety
/// - `block` is a block of this heap that is not given back, or no block of it at all.
#[inline(always)]
pub unsafe fn release(block: *mut u8) -> bool {
    let base = HEAP.pages.primary_base.load(Ordering::Relaxed);
    let slice = block.addr().wrapping_sub(base) >> SLICE_SHIFT;
    if slice >= HEAP.pages.primary_slices.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the primary arena begins with its tag table, a byte a slice.
    let tag = unsafe { *((base + slice) as *const u8) };
    // SAFETY: the slot holds a sentinel or the thread's cache, which lives until the slot changes.
    let cache = unsafe { &*slot::get() };
    // A slab is one slice at a multiple of its size: the product tells whether a block starts here.
    let start = cache.start(Tag(tag));
    let offset = (block.addr() % SLICE_BYTES) as u32;
    if offset.wrapping_mul(start.test) >= start.limit {
        return false;
    }
    let magazine = cache.magazine(Tag(tag));
    // SAFETY: the word below the top of a magazine that has room can be read (see `Magazine`).
    if magazine.has_room() && unsafe { magazine.below_top() } == block {
        return false;
    }
    magazine.push(block)
}
