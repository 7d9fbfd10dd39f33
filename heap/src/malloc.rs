//! Allocation: the fast path and the slow path.

use crate::cache::heap::{Guarding, HEAP, Known, Mode};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::measures::Measures;
use crate::hook;
use crate::init::{begin_on_the_way, count_allocation, current, entered};
use crate::reclaim::start::end_slow_path;
use crate::rule;
use crate::slab::class::{Class, FRESH_BYTES, MAX_BLOCK, TABLE_BYTES};
use crate::{free, harden, large, turn};
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

/// Which bytes of a block are to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The requested ones.
    Asked,
    /// All usable ones.
    Usable,
}

impl Extent {
    fn bytes(self, size: usize, class: Class) -> usize {
        match self {
            Extent::Asked => size,
            Extent::Usable => class.bytes(),
        }
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
    if HEAP.mode() == Mode::Checking {
        return zeroed_closely(size, 16);
    }
    if size >= FRESH_BYTES {
        return allocate_layout_zeroed_large(size, 16, Extent::Usable);
    }
    if current().is_sentinel() && begins_checking() {
        return zeroed_closely(size, 16);
    }
    let (block, class) = (allocate(size), Class::serving(size));
    zeroed(block, room(block, size, class.bytes()))
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

/// A zeroed block in the checking mode, where the usable bytes are not those of the class.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn zeroed_closely(size: usize, align: usize) -> *mut u8 {
    if Class::of_layout(size, align).is_none() {
        return large::allocate_zeroed(size, align);
    }
    if align <= 16
        && let Some(block) = turn::allocate(size)
    {
        // What fills freed blocks with zeros has looked at these bytes.
        return match HEAP.measures().has(Measures::ZERO) {
            true => block.as_ptr(),
            false => zeroed(block.as_ptr(), size),
        };
    }
    let block = allocate_layout(size, align.max(16));
    // SAFETY: null, or a fresh block.
    let bytes = unsafe { free::usable_size(block) };
    zeroed(block, bytes)
}

/// Zeroed blocks of sizes where it pays to know what is zero.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_layout_zeroed_large(size: usize, align: usize, extent: Extent) -> *mut u8 {
    if HEAP.mode() == Mode::Checking {
        return zeroed_closely(size, align);
    }
    let Some(class) = Class::of_layout(size, align) else {
        return large::allocate_zeroed(size, align);
    };
    // SAFETY: the calling thread's own cache, or a sentinel.
    if let Some(block) = unsafe { machine::pop(current(), Tag::of(class)) } {
        return zeroed(block, extent.bytes(size, class));
    }
    if current().is_sentinel() && begins_checking() {
        return zeroed_closely(size, align);
    }
    // A thread without a cache gets one on the slow path; the other modes have code of their own.
    let simply = current().is_sentinel() || !HEAP.is_plain() || HEAP.is_sampling();
    if simply || HEAP.guarding() == Guarding::All || !HEAP.depots.next_is_fresh(class) {
        let block = allocate_sampling(size, class, align);
        return zeroed(block, room(block, size, extent.bytes(size, class)));
    }
    match HEAP.take_known(class) {
        (block, Known::Zero) => block,
        (block, Known::Unknown) if !block.is_null() => zeroed(block, extent.bytes(size, class)),
        _ => {
            let block = allocate_slow(size, class, align);
            zeroed(block, room(block, size, extent.bytes(size, class)))
        }
    }
}

/// How many of `bytes` bytes a block has for a request of `size`: a guarded one has no more than
/// were requested.
fn room(block: *mut u8, size: usize, bytes: usize) -> usize {
    match HEAP.is_in_pool(block.addr()) {
        true => size,
        false => bytes,
    }
}

/// Whether the checking mode is in force. In the first call of a process, the options say so.
#[cold]
#[inline(never)]
fn begins_checking() -> bool {
    begin_on_the_way();
    HEAP.mode() == Mode::Checking
}

/// Makes the first `bytes` bytes of a block zero.
#[inline(always)]
fn zeroed(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: a fresh block of at least that many bytes.
        unsafe { ptr::write_bytes(block, 0, bytes) };
    }
    block
}

#[inline(always)]
fn pop(tag: Tag, class: Class, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the calling thread's own cache, or a sentinel.
    match unsafe { machine::pop(current(), tag) } {
        Some(block) => block,
        None => allocate_sampling(size, class, align),
    }
}

/// [`allocate`] after [`allocate_hit`] had nothing.
#[inline]
#[unsafe(link_section = "neap_text")]
pub fn allocate_missed(size: usize) -> *mut u8 {
    if size <= TABLE_BYTES {
        return match turn::allocate(size) {
            Some(block) => block.as_ptr(),
            None => allocate_slower(size, Class::serving(size), 16),
        };
    }
    if size > MAX_BLOCK {
        return large::allocate(size, 1);
    }
    let class = Class::serving(size);
    pop(Tag::of(class), class, size, 16)
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

#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_layout_over_table(size: usize, align: usize) -> *mut u8 {
    match Class::of_layout(size, align) {
        Some(_) if align > 16 && harden::is_on() => allocate_hardened(size, align),
        Some(class) => pop(Tag::of(class), class, size, align),
        None => large::allocate(size, align),
    }
}

/// A block under `NEAP_HARDEN`; null when out of memory.
#[cold]
fn allocate_hardened(size: usize, align: usize) -> *mut u8 {
    match take_hardened(size, align) {
        block if block.is_null() && HEAP.relieve(size) => take_hardened(size, align),
        block => block,
    }
}

/// A block of a slab, or a large one between guards.
#[cold]
fn take_hardened(size: usize, align: usize) -> *mut u8 {
    match rule::class_for(size, align) {
        Some(class) => {
            count(size, class);
            harden::allocate(size, class)
        }
        None => large::allocate(size, align),
    }
}

/// The magazine is empty, or there is none.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_slow(size: usize, class: Class, align: usize) -> *mut u8 {
    let in_turn = (align <= 16).then(|| turn::allocate(size)).flatten();
    match in_turn {
        Some(block) => block.as_ptr(),
        None => allocate_slower(size, class, align),
    }
}

/// [`allocate_slow`] out of turn.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_slower(size: usize, class: Class, align: usize) -> *mut u8 {
    let block = match take(size, class, align) {
        block if block.is_null() && HEAP.relieve(size) => take(size, class, align),
        block => block,
    };
    let block = match block.is_null() {
        true => take_larger(class),
        false => block,
    };
    if block.is_null() {
        HEAP.pressure.note_refused();
    }
    end_slow_path(0);
    block
}

/// Where no slab of `class` can be made, a block of a larger class that has a free one is better
/// than none. Its place is a multiple of all that a block of `class` is a multiple of.
#[cold]
fn take_larger(class: Class) -> *mut u8 {
    if !HEAP.is_plain() || HEAP.is_sampling() {
        return ptr::null_mut();
    }
    larger(class, usize::MAX)
}

/// A block of a class larger than `class`, of at most `most` bytes, from a slab that has a free
/// one.
fn larger(class: Class, most: usize) -> *mut u8 {
    let sizes = class.bytes() + 1..=most;
    let larger = Class::all().filter(|other| sizes.contains(&other.bytes()));
    let fitting = larger.filter(|other| other.alignment() >= class.alignment());
    let mut blocks = fitting.map(|other| (HEAP.take_listed(other), other));
    match blocks.find(|(block, _)| !block.is_null()) {
        Some((block, other)) => {
            free::sizes_are_loose();
            let (held, beyond) = (class.bytes(), other.bytes() - class.bytes());
            // `calloc` knows of `class` only, and all usable bytes of its blocks are zero.
            // SAFETY: a fresh block of `other`.
            unsafe { ptr::write_bytes(block.add(held), 0, beyond) };
            block
        }
        None => ptr::null_mut(),
    }
}

/// A block of an existing slab, at most [`SCANT_WASTE`] times as large, or else of a new slab.
#[cold]
fn take_scantily(class: Class) -> *mut u8 {
    match HEAP.take_listed(class) {
        block if block.is_null() => {}
        block => return block,
    }
    match larger(class, class.bytes() * SCANT_WASTE) {
        block if block.is_null() => HEAP.take_one(class),
        block => block,
    }
}

/// How many times as large as its class a block may be while writable memory is scarce. A new slab
/// would take 64 KiB.
const SCANT_WASTE: usize = 8;

/// Counts an allocation of `size` bytes from a slab, if calls are counted.
fn count(size: usize, class: Class) {
    if HEAP.is_counting()
        && let Some(cache) = entered()
    {
        count_allocation(cache, size, Some(class));
    }
}

/// A sampled or guarded block. [`take`] counts other blocks, and hardened mode its own.
#[cold]
fn chosen(block: *mut u8, size: usize, class: Class) -> *mut u8 {
    if harden::is_on() {
        count(size, class);
    }
    block
}

fn take(size: usize, class: Class, align: usize) -> *mut u8 {
    let (cache, mode) = (entered(), HEAP.mode());
    if !harden::is_on() {
        count(size, class);
    }
    if let (true, Some(cache)) = (HEAP.is_sampling(), cache)
        && let Some(block) = hook::instruments().sample(cache, size, class)
    {
        return chosen(block, size, class);
    }
    if let (true, Some(cache)) = (HEAP.guarding() != Guarding::Off, cache)
        && let Some(block) = hook::instruments().guard(cache, size, align, class)
    {
        return chosen(block, size, class);
    }
    match (mode, cache) {
        (Mode::Checking, _) if harden::is_on() => take_hardened(size, align),
        (Mode::Checking, _) => HEAP.take_one(class),
        (_, None) if HEAP.pages.is_scant() => take_scantily(class),
        (_, None) => HEAP.take_one(class),
        // SAFETY: the calling thread's own cache.
        (Mode::Plain, Some(cache)) => unsafe { HEAP.refill(cache, class) },
    }
}
