//! Allocation, and changing a block's size: the fast path and the slow path.
//!
//! Past the fast path, each call asks whether it is [watched](crate::watched), and then leaves all
//! of itself to that module. The rest of this file knows of no mode.

use crate::cache::heap::{Found, HEAP};
use crate::cache::magazine::Tag;
use crate::cache::thread_cache::Cache;
use crate::cache::{machine, tags};
use crate::free::free;
use crate::init::{current, entered};
use crate::large::{self, MAX_BYTES, Resized};
use crate::reclaim::start::end_slow_path;
use crate::slab::class::{Class, FRESH_BYTES, MAX_BLOCK, TABLE_BYTES};
use crate::supply::{self, Extent, refuse_freed, zeroed};
use crate::watched::calls as watched;
use core::ptr;

/// A block of at least `size` bytes at a multiple of 16; null when out of memory. A `size` of 0
/// gives a block of its own.
#[inline(always)]
pub fn allocate(size: usize) -> *mut u8 {
    match allocate_hit(size) {
        Some(block) => block,
        None => allocate_missed(size),
    }
}

/// [`allocate`], if the calling thread's magazine alone can serve it, whether or not the profiler
/// samples; otherwise `None`. For frontends that keep everything else off their hot path.
#[inline(always)]
pub fn allocate_hit(size: usize) -> Option<*mut u8> {
    let cache = current();
    // SAFETY: the calling thread's own cache, or a sentinel.
    match unsafe { machine::pop_sized(cache, size) } {
        // SAFETY: as above; tags by size are classes'.
        None if size <= TABLE_BYTES => unsafe { machine::pop_sampling(cache, cache.tags[size]) },
        hit => hit,
    }
}

/// Like [`allocate`], all usable bytes zero, as the C library's `calloc` has it.
#[inline]
#[unsafe(link_section = "neap_text")]
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    match allocate_zeroed_hit(size) {
        Some(block) => block,
        None => allocate_zeroed_missed(size),
    }
}

/// [`allocate_zeroed`], if the calling thread's magazine alone can serve it; otherwise `None`.
#[inline(always)]
pub fn allocate_zeroed_hit(size: usize) -> Option<*mut u8> {
    let cache = current();
    // SAFETY: the calling thread's own cache, or a sentinel.
    let block = unsafe { machine::pop_sized(cache, size) }?;
    let bytes = cache.start(cache.tags[size]).bytes as usize;
    // SAFETY: a fresh block of that many bytes.
    unsafe { ptr::write_bytes(block, 0, bytes) };
    Some(block)
}

/// [`allocate_zeroed`] after [`allocate_zeroed_hit`] had nothing.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub fn allocate_zeroed_missed(size: usize) -> *mut u8 {
    if size >= FRESH_BYTES {
        return allocate_layout_zeroed_large(size, 16, Extent::Usable);
    }
    let class = Class::serving(size);
    if let Some(block) = allocate_hit(size) {
        return zeroed(block, class.bytes());
    }
    let cache = entered();
    if HEAP.is_watched() {
        return watched::allocate_zeroed(size, 16, Extent::Usable);
    }
    zeroed(allocate_plain(cache, class, size), class.bytes())
}

/// A block of at least `size` bytes at a multiple of `align` (and of 16); null when out of memory.
///
/// # Panics
/// In debug builds, if `align` is no power of two.
#[inline]
#[unsafe(link_section = "neap_text")]
pub fn allocate_aligned(size: usize, align: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    if align > 16 {
        return allocate_layout(size, align);
    }
    if size >= 16 {
        return allocate(size);
    }
    // Not by its size: there may be a class of 8 bytes.
    let class = Class::serving(16);
    pop(Tag::of(class), class, size, 16)
}

/// A block for a caller that states the alignment, so that an alignment of 8 suffices if 8 is
/// stated.
#[inline(always)]
pub fn allocate_layout(size: usize, align: usize) -> *mut u8 {
    if size <= TABLE_BYTES && align <= 16 {
        if align <= 8 {
            // Known to the compiler where the size is, so not looked up.
            let class = Class::of_size_align8(size);
            return pop(Tag::of(class), class, size, align);
        }
        let tag = current().tags[size];
        return pop(tag, Class::serving(size), size, align);
    }
    allocate_layout_over_table(size, align)
}

/// Like [`allocate_layout`], the bytes zero.
#[inline]
#[unsafe(link_section = "neap_text")]
pub fn allocate_layout_zeroed(size: usize, align: usize) -> *mut u8 {
    if size < FRESH_BYTES && align < FRESH_BYTES {
        return zeroed(allocate_layout(size, align), size);
    }
    allocate_layout_zeroed_large(size, align, Extent::Asked)
}

/// Zeroed blocks of sizes where it pays to know what is zero.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_layout_zeroed_large(size: usize, align: usize, extent: Extent) -> *mut u8 {
    let cache = entered();
    if HEAP.is_watched() {
        return watched::allocate_zeroed(size, align, extent);
    }
    let Some(class) = Class::of_layout(size, align) else {
        return large::allocate_zeroed(size, align);
    };
    let bytes = extent.bytes(size, class);
    match supply::take_zero(class, bytes) {
        Some(block) => block.as_ptr(),
        None => zeroed(allocate_plain(cache, class, size), bytes),
    }
}

#[inline(always)]
fn pop(tag: Tag, class: Class, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the calling thread's own cache, or a sentinel.
    match unsafe { machine::pop(current(), tag) } {
        Some(block) => block,
        None => allocate_sampling(size, class, align),
    }
}

/// The magazine is empty, or the profiler counts what it gives out.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_sampling(size: usize, class: Class, align: usize) -> *mut u8 {
    // SAFETY: the calling thread's own cache, or a sentinel.
    match unsafe { machine::pop_sampling(current(), Tag::of(class)) } {
        Some(block) => block,
        None => allocate_slow(size, class, align),
    }
}

/// [`allocate`] after [`allocate_hit`] had nothing.
#[inline]
#[unsafe(link_section = "neap_text")]
pub fn allocate_missed(size: usize) -> *mut u8 {
    if size > MAX_BLOCK {
        return allocate_large(size, 1);
    }
    if size > TABLE_BYTES {
        let class = Class::serving(size);
        return pop(Tag::of(class), class, size, 16);
    }
    let class = Class::serving(size);
    if HEAP.is_watched() {
        return watched::allocate_class(size, class, 16);
    }
    allocate_slow(size, class, 16)
}

#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_layout_over_table(size: usize, align: usize) -> *mut u8 {
    match Class::of_layout(size, align) {
        Some(class) => pop(Tag::of(class), class, size, align),
        None => allocate_large(size, align),
    }
}

fn allocate_large(size: usize, align: usize) -> *mut u8 {
    entered();
    if HEAP.is_watched() {
        return watched::allocate_large(size, align, large::allocate);
    }
    large::allocate(size, align)
}

/// The magazine is empty, or there is none.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_slow(size: usize, class: Class, align: usize) -> *mut u8 {
    // In the first call of a process, this reads the options.
    let cache = entered();
    if HEAP.is_watched() {
        return watched::allocate_class(size, class, align);
    }
    allocate_plain(cache, class, size)
}

/// A call that is not watched, past the magazine.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_plain(cache: Option<&'static Cache>, class: Class, size: usize) -> *mut u8 {
    let mut block = supply::take(cache, class);
    if block.is_null() {
        block = supply::take_after_relief(&|| supply::take(cache, class), size, Some(class));
    }
    end_slow_path(0);
    block
}

/// Resizes a block of [`allocate`], moving it if necessary, and keeps the common
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
        return unsafe { watched::reallocate(block, class, size, align) };
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
        found => return unsafe { watched::reallocate_found(found, block, size, align) },
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
