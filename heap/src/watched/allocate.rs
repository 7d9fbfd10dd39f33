//! Allocation under watch: calls are checked, counted, sampled or guarded.

use super::fences;
use super::harden;
use super::release;
use super::rule;
use crate::cache::countdown::Counts;
use crate::cache::heap::{Guarding, HEAP, Mode};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::measures::Measures;
use crate::cache::thread_cache::Cache;
use crate::hook;
use crate::init::{current, entered};
use crate::large;
use crate::reclaim::start::end_slow_path;
use crate::slab::class::{Class, TABLE_BYTES};
use crate::supply::{self, Extent, zeroed};
use core::ptr::NonNull;

/// A block of at least `size` bytes at a multiple of `align` (and of 16, unless the caller states
/// 8); null when out of memory.
pub(super) fn allocate_layout(size: usize, align: usize) -> *mut u8 {
    match Class::of_layout(size, align) {
        Some(class) => pop(class).unwrap_or_else(|| allocate_class(size, class, align)),
        None => allocate_large(size, align, large::allocate),
    }
}

/// A block of the thread's magazine, unless it is to be sampled.
fn pop(class: Class) -> Option<*mut u8> {
    let (cache, tag) = (current(), Tag::of(class));
    // SAFETY: the calling thread's own cache, or a sentinel.
    unsafe { machine::pop(cache, tag).or_else(|| machine::pop_sampling(cache, tag)) }
}

/// [`allocate_layout`] of what a slab of `class` would serve, after its magazine gave none. Calls
/// that may be another's last stay in the section of the entry points, so that traces leave them
/// out.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate_class(size: usize, class: Class, align: usize) -> *mut u8 {
    match allocate_short(size, align) {
        Some(block) => block.as_ptr(),
        None => allocate_long(size, class, align),
    }
}

/// [`harden::allocate_short`], if the call may be short.
#[inline(always)]
fn allocate_short(size: usize, align: usize) -> Option<NonNull<u8>> {
    let cache = current();
    let may_be = align <= 16 && cache.is_hardened();
    may_be
        .then(|| harden::allocate_short(cache, size))
        .flatten()
}

/// Like [`allocate_layout`], the bytes of `extent` zero.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate_zeroed(size: usize, align: usize, extent: Extent) -> *mut u8 {
    let Some(class) = Class::of_layout(size, align) else {
        return allocate_large(size, align, large::allocate_zeroed);
    };
    if HEAP.mode() == Mode::Checking {
        return zeroed_closely(size, align.max(16), extent);
    }
    let bytes = extent.bytes(size, class);
    let is_plain = HEAP.is_plain() && !HEAP.is_sampling() && HEAP.guarding() != Guarding::All;
    let may_be_zero = is_plain && class.tells_fresh();
    if let Some(block) = may_be_zero
        .then(|| supply::take_zero(class, bytes))
        .flatten()
    {
        return block.as_ptr();
    }
    // The fast path has looked for what the table has.
    let is_missed = size <= TABLE_BYTES && align <= 16;
    let popped = if is_missed { None } else { pop(class) };
    let block = popped.unwrap_or_else(|| allocate_class(size, class, align));
    // A guarded block has no more bytes than were requested.
    let is_guarded = HEAP.is_in_pool(block.addr());
    zeroed(block, if is_guarded { size } else { bytes })
}

/// A zeroed block in the checking mode, where the usable bytes may not be those of the class.
#[unsafe(link_section = "neap_text")]
fn zeroed_closely(size: usize, align: usize, extent: Extent) -> *mut u8 {
    if let Some(block) = allocate_short(size, align) {
        // What fills freed blocks with zeros has looked at these bytes.
        let is_zero = HEAP.measures().has(Measures::ZERO);
        return zeroed(block.as_ptr(), if is_zero { 0 } else { size });
    }
    let Some(class) = Class::of_layout(size, align) else {
        return allocate_large(size, align, large::allocate_zeroed);
    };
    let block = allocate_long(size, class, align);
    let is_plain = !harden::is_on() && HEAP.guarding() == Guarding::Off;
    let bytes = match is_plain || block.is_null() {
        true => extent.bytes(size, class),
        // SAFETY: a fresh block.
        false => unsafe { release::usable_size(block) },
    };
    zeroed(block, bytes)
}

/// A large block, by `plain` unless it lies between guards.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate_large(
    size: usize,
    align: usize,
    plain: fn(usize, usize) -> *mut u8,
) -> *mut u8 {
    // As large blocks require.
    entered();
    count(size, None);
    match fences::allocate(size, align) {
        Some(block) => {
            end_slow_path(0);
            block
        }
        None => plain(size, align),
    }
}

/// [`allocate_class`], unless the call is short.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_long(size: usize, class: Class, align: usize) -> *mut u8 {
    let take = || take(size, class, align);
    let mut block = take();
    if block.is_null() {
        let is_plain = HEAP.is_plain() && !HEAP.is_sampling();
        block = supply::take_after_relief(&take, size, is_plain.then_some(class));
    }
    end_slow_path(0);
    block
}

fn take(size: usize, class: Class, align: usize) -> *mut u8 {
    let cache = entered();
    if let Some(block) = cache.and_then(|cache| chosen(cache, size, class, align)) {
        count(size, Some(class));
        return block;
    }
    if harden::is_on() {
        return take_hardened(size, align);
    }
    count(size, Some(class));
    match HEAP.mode() {
        Mode::Checking => HEAP.take_one(class),
        Mode::Plain => supply::take(cache, class),
    }
}

/// A sampled or guarded block, if this one is to be one. Not instead of a block between guards.
fn chosen(cache: &'static Cache, size: usize, class: Class, align: usize) -> Option<*mut u8> {
    let (is_sampling, guarding) = (HEAP.is_sampling(), HEAP.guarding());
    if !is_sampling && guarding == Guarding::Off {
        return None;
    }
    if harden::is_on() {
        rule::class_for(size, align)?;
    }
    let sampled = || hook::instruments().sample(cache, size, class);
    let guarded = || hook::instruments().guard(cache, size, align, class);
    let block = is_sampling.then(sampled).flatten();
    block.or_else(|| (guarding != Guarding::Off).then(guarded).flatten())
}

/// A block of a slab, or a large one between guards, under `NEAP_HARDEN`.
fn take_hardened(size: usize, align: usize) -> *mut u8 {
    match rule::class_for(size, align) {
        Some(class) => {
            count(size, Some(class));
            harden::allocate(size, class)
        }
        None => allocate_large(size, align, large::allocate),
    }
}

/// Counts one call of `size` bytes, which a slab of `class` serves, or none, if calls are counted.
#[inline(never)]
fn count(size: usize, class: Option<Class>) {
    if HEAP.is_counting()
        && let Some(cache) = entered()
    {
        Counts::bump(&cache.counts.allocations, 1);
        Counts::bump(&cache.counts.requested, size as u64);
        hook::instruments().requested(size, class);
    }
}
