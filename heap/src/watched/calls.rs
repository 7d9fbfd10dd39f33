//! The calls under watch: allocation, frees and what the size of a block is, reallocation.
//!
//! Calls are checked, counted, sampled or guarded. Blocks that were sampled or guarded are freed
//! and reallocated here in any mode.

use super::harden::{self, Freed};
use super::{fences, seal};
use crate::cache::countdown::Counts;
use crate::cache::heap::{Found, Guarding, HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::measures::Measures;
use crate::cache::misuse::{self, Call};
use crate::cache::thread_cache::Cache;
use crate::cache::{machine, tags};
use crate::init::{current, entered, entered_to_free};
use crate::large::{self, Resized};
use crate::os::RemapError;
use crate::pages::SliceRef;
use crate::reclaim::start::end_slow_path;
use crate::slab::class::{Class, TABLE_BYTES};
use crate::supply::{self, Extent, zeroed};
use crate::{hook, mapped_over};
use core::ptr::{self, NonNull};

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
    let is_checking = HEAP.mode() == Mode::Checking;
    let align = if is_checking { align.max(16) } else { align };
    let Some(class) = Class::of_layout(size, align) else {
        return allocate_large(size, align, large::allocate_zeroed);
    };
    if is_checking {
        return zeroed_closely(size, class, align, extent);
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
fn zeroed_closely(size: usize, class: Class, align: usize, extent: Extent) -> *mut u8 {
    if let Some(block) = allocate_short(size, align) {
        // What fills freed blocks with zeros has looked at these bytes.
        let is_zero = HEAP.measures().has(Measures::ZERO);
        return zeroed(block.as_ptr(), if is_zero { 0 } else { size });
    }
    let block = allocate_long(size, class, align);
    let is_plain = !harden::is_on() && HEAP.guarding() == Guarding::Off;
    let bytes = match is_plain || block.is_null() {
        true => extent.bytes(size, class),
        // SAFETY: a fresh block.
        false => unsafe { usable_size(block) },
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
        seal::class_for(size, align)?;
    }
    let sampled = || hook::instruments().sample(cache, size, class);
    let guarded = || hook::instruments().guard(cache, size, align, class);
    let block = is_sampling.then(sampled).flatten();
    block.or_else(|| (guarding != Guarding::Off).then(guarded).flatten())
}

/// A block of a slab, or a large one between guards, under `NEAP_HARDEN`.
fn take_hardened(size: usize, align: usize) -> *mut u8 {
    match seal::class_for(size, align) {
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

/// Takes a block back whose free missed the fast path. `caller` is an address in the code that
/// called.
///
/// # Safety
/// - As [`crate::free::free`], of a block that is not null.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn free(block: *mut u8, caller: usize) {
    let cache = current();
    if !cache.is_hardened() {
        // SAFETY: the caller's promise.
        return unsafe { free_long(block, caller) };
    }
    // SAFETY: as above.
    match unsafe { harden::free_short(cache, block) } {
        Freed::Held => {}
        Freed::Brought => end_slow_path(caller),
        // SAFETY: as above.
        Freed::Not => unsafe { free_long(block, caller) },
    }
}

/// [`free`], unless the call is short.
///
/// # Safety
/// - As [`free`].
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn free_long(block: *mut u8, caller: usize) {
    let cache = entered_to_free();
    if HEAP.is_counting() {
        match cache {
            Some(cache) => Counts::bump(&cache.counts.frees, 1),
            None => HEAP.registry.count_free(),
        }
    }
    let address = tags::strip(block.addr());
    let found = HEAP.find(address);
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) if HEAP.mode() == Mode::Plain => unsafe {
            supply::take_back(cache, slab, class, block);
        },
        found => {
            if let Found::Slab(_, class) = &found {
                tags::refuse_other(Call::Free, block.addr(), *class);
            }
            // SAFETY: the caller's promise.
            unsafe { free_other(address, found) };
        }
    }
    end_slow_path(caller);
}

/// Takes back the block at `address`: any but a plain one.
///
/// # Safety
/// - As [`crate::free::free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at
///   `address`.
pub(crate) unsafe fn free_other(address: usize, found: Found) {
    // SAFETY: the caller's promise.
    if mapped_over::is_noted() && !unsafe { restore(address, &found) } {
        return;
    }
    if HEAP.mode() == Mode::Checking && hook::instruments().hold(address, &found) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_found(address, found) };
}

/// What [`mapped_over::restore`] returns for the block that was found at `address`.
///
/// # Safety
/// - As there.
#[cold]
unsafe fn restore(address: usize, found: &Found) -> bool {
    let (Found::Slab(slab, class) | Found::Sampled(slab, class)) = found else {
        return true;
    };
    // What is no start of a block is the caller's to report, and has no canary.
    let starts = class.block_at(address - slab.base()).is_some();
    let held = match found {
        Found::Slab(..) if starts => seal::bytes_in_use(address, *class),
        _ => Some(class.bytes()),
    };
    // SAFETY: the caller's promise.
    unsafe { mapped_over::restore(address, slab, *class, held) }
}

/// Takes back the block at `address`, past the fast path and, if it is of a slab, in the checking
/// mode.
///
/// # Safety
/// - As [`crate::free::free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at
///   `address`.
pub unsafe fn free_found(address: usize, found: Found) {
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) => unsafe { harden::give(slab, class, address) },
        Found::Large(place) => fences::free(&place, address),
        Found::Sampled(slab, class) => {
            misuse::start_of(Call::Free, slab, class, address);
            hook::sampled_freed(address);
            // SAFETY: the caller's promise.
            unsafe { HEAP.give_sampled(address, class) };
        }
        Found::Guarded => hook::instruments().guarded_freed(address),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::Free, address),
    }
}

/// The usable bytes of any block; 0 for null. Aborts if the block is known to be free.
///
/// # Safety
/// - As [`crate::free::usable_size`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn usable_size(block: *mut u8) -> usize {
    let (call, address) = (Call::UsableSize, tags::strip(block.addr()));
    if address == 0 {
        return 0;
    }
    let bytes = match HEAP.find(address) {
        Found::Slab(slab, class) => {
            misuse::start_of(call, slab, class, address);
            tags::refuse_other(call, block.addr(), class);
            refuse_newest(block, address, class);
            refuse_quarantined(call, address);
            return seal::usable(call, address, class);
        }
        Found::Large(place) => fences::bytes(call, &place, address),
        Found::Sampled(slab, class) => {
            misuse::refuse_free(call, slab, class, address);
            class.bytes()
        }
        Found::Guarded => return hook::instruments().guarded_bytes(call, address),
        Found::Foreign => misuse::foreign(call, address),
        Found::NoBlock | Found::Stack => misuse::no_block(call, address),
    };
    refuse_quarantined(call, address);
    bytes
}

/// Aborts if the block is the newest of the thread's magazine.
fn refuse_newest(block: *mut u8, address: usize, class: Class) {
    // SAFETY: the calling thread's own cache, or a sentinel.
    if unsafe { current().magazine(Tag::of(class)).newest() } == Some(block) {
        misuse::already_free(Call::UsableSize, address);
    }
}

/// Aborts if the block waits in quarantine.
fn refuse_quarantined(call: Call, address: usize) {
    if HEAP.mode() == Mode::Checking && hook::instruments().holds(address) {
        misuse::already_free(call, address);
    }
}

/// From this many bytes on, moving pages between blocks with guards is cheaper than copying: the
/// pages of such blocks are never resident before their first use.
const MOVE_FENCED_BYTES: usize = 128 << 10;

/// [`crate::malloc::reallocate_layout`] of a block of a slab in the modes in which a call does
/// more.
///
/// # Safety
/// - As [`crate::malloc::reallocate_layout`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn reallocate(
    block: *mut u8,
    class: Class,
    size: usize,
    align: usize,
) -> *mut u8 {
    let address = tags::strip(block.addr());
    refuse_quarantined(Call::Realloc, address);
    let (held, stays) = match harden::is_on() {
        true => {
            let held = seal::usable(Call::Realloc, address, class);
            // SAFETY: the caller's promise.
            (held, unsafe {
                seal::resize(block.addr(), class, size, align)
            })
        }
        false => (class.bytes(), Class::of_layout(size, align) == Some(class)),
    };
    if stays {
        note_kept(size, Some(class));
        return block;
    }
    // SAFETY: the caller's promise.
    unsafe { move_block(block, held, size, align, None) }
}

/// [`crate::malloc::reallocate_layout`] of the block that was found at its address, unless it is a
/// plain one.
///
/// # Safety
/// - As [`crate::malloc::reallocate_layout`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn reallocate_found(
    found: Found,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let address = tags::strip(block.addr());
    match found {
        // By a pointer with a tag, or in a slab that the program mapped something over.
        Found::Slab(slab, class) => {
            supply::refuse_freed(block.with_addr(address), slab, class);
            tags::refuse_other(Call::Realloc, block.addr(), class);
            // SAFETY: the caller's promise.
            unsafe { reallocate(block, class, size, align) }
        }
        Found::Sampled(slab, class) => {
            misuse::refuse_free(Call::Realloc, slab, class, address);
            refuse_quarantined(Call::Realloc, address);
            if Class::of_layout(size, align) == Some(class) {
                note_kept(size, Some(class));
                return block;
            }
            // SAFETY: the caller's promise; the block has that many usable bytes.
            unsafe { move_block(block, class.bytes(), size, align, None) }
        }
        // Such a block always moves.
        Found::Guarded => {
            let held = hook::instruments().guarded_bytes(Call::Realloc, address);
            // SAFETY: the caller's promise; the block has that many bytes.
            unsafe { move_block(block, held, size, align, None) }
        }
        Found::Large(place) => {
            refuse_quarantined(Call::Realloc, address);
            // SAFETY: the caller's promise.
            unsafe { reallocate_large(&place, block, size, align) }
        }
        Found::Foreign => misuse::foreign(Call::Realloc, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::Realloc, address),
    }
}

/// [`reallocate_found`] of a large block.
///
/// # Safety
/// - As there; the block is the one of `place`.
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_large(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    if fences::is_fenced(place) {
        // SAFETY: the caller's promise.
        return unsafe { reallocate_fenced(place, block, size, align) };
    }
    // SAFETY: the caller's promise.
    let result = match unsafe { large::resize(place, block, size, align) } {
        Resized::Stays => block,
        Resized::Moved(moved) => moved,
        // SAFETY: the caller's promise.
        Resized::ToCopy(held) => return unsafe { move_block(block, held, size, align, None) },
    };
    if !result.is_null() {
        note_kept(size, None);
    }
    result
}

/// [`reallocate_found`] of a large block between guards. The block stays where it is if its end
/// stays, or if `fences::resize_fenced` can move its end.
///
/// # Safety
/// - As [`reallocate`]; the block is the one of `place`.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_fenced(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let held = fences::bytes(Call::Realloc, place, block.addr());
    let wanted = large::page_multiple(size).filter(|_| seal::guards(size));
    let Some(wanted) = wanted else {
        // SAFETY: the caller's promise.
        return unsafe { move_block(block, held, size, align, None) };
    };
    if wanted == held {
        return block;
    }
    // SAFETY: the caller's promise.
    if unsafe { fences::resize_fenced(place, wanted) } {
        hook::large_freed(place);
        hook::large_made(place, size, wanted);
        note_kept(size, None);
        return block;
    }
    let pages_of = (held >= MOVE_FENCED_BYTES).then_some(place);
    // SAFETY: the caller's promise.
    unsafe { move_block(block, held, size, align, pages_of) }
}

/// A block that is resized without another allocation: its new size also counts as requested.
fn note_kept(size: usize, class: Option<Class>) {
    if HEAP.is_counting() {
        hook::instruments().requested(size, class);
    }
}

/// Moves a block's contents to a new one of `size` bytes: by moving the pages of the fenced block
/// at `pages_of`, if the kernel can, else by copying.
///
/// # Safety
/// - `block` holds `held` bytes, is not given back, and no thread uses it meanwhile.
/// - It is the block at `pages_of`, if there is one.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn move_block(
    block: *mut u8,
    held: usize,
    size: usize,
    align: usize,
    pages_of: Option<&SliceRef<'static>>,
) -> *mut u8 {
    let moved = allocate_layout(size, align);
    let result = match pages_of {
        _ if moved.is_null() => Err(RemapError::Lost),
        // SAFETY: the caller's promise; a new block.
        Some(place) => unsafe { move_pages(place, moved) },
        None => Err(RemapError::Refused),
    };
    match result {
        Ok(()) => {}
        // SAFETY: two different blocks, each at least that long.
        Err(RemapError::Refused) => unsafe {
            ptr::copy_nonoverlapping(block, moved, held.min(size));
        },
        Err(RemapError::Lost) => return supply::unmoved(block, held, size),
    }
    // SAFETY: the caller's promise.
    unsafe { give_back(block) };
    moved
}

/// [`fences::move_fenced`] to a new block. Refuses if that is a sample.
///
/// # Safety
/// - A fenced block of the caller's starts at `place`; no thread uses it or `moved` meanwhile.
unsafe fn move_pages(place: &SliceRef<'static>, moved: *mut u8) -> Result<(), RemapError> {
    let Found::Large(target) = HEAP.find(moved.addr()) else {
        return Err(RemapError::Refused);
    };
    let bytes = place.bytes().min(target.bytes());
    // SAFETY: the caller's promise; both have that many bytes.
    unsafe { fences::move_fenced(place, &target, bytes) }
}

/// Frees a block whose contents moved.
///
/// # Safety
/// - As [`crate::free::free`], of a block that is not null.
unsafe fn give_back(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if !machine::push_freed(block) {
            free(block, 0);
        }
    }
}
