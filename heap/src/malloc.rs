//! Allocation, and changing a block's size: the fast path and the slow path.
//!
//! Past the fast path, each call asks whether it is [watched](crate::watched), and then leaves all
//! of itself to that module. The rest of this file knows of no mode.

use crate::base::units::SLICE_BYTES;
use crate::cache::heap::{Found, HEAP, slab_of};
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

/// A block of at least `size` bytes at a multiple of `align`, if the calling thread's magazine
/// alone can serve it; otherwise `None`.
///
/// # Panics
/// In debug builds, if `align` is no power of two.
#[inline(always)]
pub fn allocate_aligned_hit(size: usize, align: usize) -> Option<*mut u8> {
    debug_assert!(align.is_power_of_two());
    // No smaller class can serve it: blocks of the right alignment are multiples of it.
    let whole = (size.min(TABLE_BYTES + 1) + (align - 1)) & align.wrapping_neg();
    let cache = current();
    let tag = *cache.tags.get(whole)?;
    if cache.start(tag).bytes as usize & (align - 1) != 0 {
        return None;
    }
    // SAFETY: the calling thread's own cache, or a sentinel.
    unsafe { machine::pop_sized(cache, whole) }
}

/// A block of at least `size` bytes at a multiple of `align` (and of 16); null when out of memory.
///
/// # Panics
/// In debug builds, if `align` is no power of two.
#[inline(never)]
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

/// Whether a block can stay where it is, as far as the fast path's tables tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It stays: it has the class of the new size.
    InPlace,
    /// It needs another class than its own, whose blocks have this many bytes.
    Move(usize),
    /// Not known: the block may be free or none of a slab, or some calls are watched.
    Unknown,
}

/// Where a block at a multiple of `align` is to be if it is resized to `size` bytes. Reads nothing
/// of the block.
#[inline(always)]
pub fn placement(block: *mut u8, size: usize, align: usize) -> Placement {
    let (cache, address) = (current(), block.addr());
    if align > 16 || !machine::serves(cache, size) {
        return Placement::Unknown;
    }
    let Some(place) = HEAP.pages.locate_primary(address) else {
        return Placement::Unknown;
    };
    // SAFETY: only bytes of tags are written to the table.
    let old = unsafe { Tag::from_byte(place.tag()) };
    let Some(number) = cache.start(old).block_at(address % SLICE_BYTES) else {
        return Placement::Unknown;
    };
    // SAFETY: the calling thread's own cache, which serves requests.
    let is_recent = unsafe { machine::may_be_recent(cache, old, address) };
    if is_recent || slab_of(&place).may_be_free(cache.start(old).bytes, number) {
        return Placement::Unknown;
    }
    let new = match align {
        ..=8 => Tag::of(Class::of_size_align8(size)),
        _ => cache.tags[size],
    };
    if old == new {
        Placement::InPlace
    } else {
        Placement::Move(cache.start(old).bytes as usize)
    }
}

/// Resizes a block of [`allocate_layout`] with the same `align`, moving it if necessary, and keeps
/// the common part of the contents. Returns null when out of memory, and then leaves the block as
/// it was.
///
/// # Safety
/// - `block` is a block of this heap that is not given back; no thread uses it meanwhile.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub unsafe fn reallocate_layout(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        match placement(block, size, align) {
            Placement::InPlace => block,
            Placement::Move(held) => move_block(block, held, size, allocate_layout(size, align)),
            Placement::Unknown => reallocate_missed(block, size, align),
        }
    }
}

/// Moves a block of [`allocate`] as [`reallocate_layout`] does, after
/// [`Placement::Move`].
///
/// # Safety
/// - As [`reallocate_layout`]; `held` is what [`placement`] said.
#[inline(always)]
pub unsafe fn reallocate_moving(block: *mut u8, held: usize, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { move_block(block, held, size, allocate(size)) }
}

/// [`reallocate_layout`] after [`Placement::Unknown`].
///
/// # Safety
/// - As [`reallocate_layout`].
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub unsafe fn reallocate_missed(block: *mut u8, size: usize, align: usize) -> *mut u8 {
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
    unsafe { move_block(block, class.bytes(), size, allocate_layout(size, align)) }
}

/// [`reallocate_layout`] of a block of no slab, or of what is no block.
///
/// # Safety
/// - As [`reallocate_layout`].
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
        Resized::ToCopy(held) => unsafe {
            move_block(block, held, size, allocate_layout(size, align))
        },
    }
}

/// Moves the contents of a block of `held` bytes to `moved`, which has `size`, unless that is null.
///
/// # Safety
/// - `block` holds `held` bytes, is not given back, and no thread uses it meanwhile.
/// - `moved` is null, or a block of `size` bytes of the caller's own.
#[inline(always)]
unsafe fn move_block(block: *mut u8, held: usize, size: usize, moved: *mut u8) -> *mut u8 {
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
