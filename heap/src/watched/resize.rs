//! Reallocation under watch: calls are checked or counted. Also that of blocks that were sampled or
//! guarded, in any mode.

use super::allocate::allocate_layout;
use super::fences;
use super::harden;
use super::release;
use super::rule;
use super::seal;
use crate::cache::heap::{Found, HEAP};
use crate::cache::machine;
use crate::cache::misuse::{self, Call};
use crate::cache::tags;
use crate::hook;
use crate::large::{self, Resized};
use crate::os::RemapError;
use crate::pages::SliceRef;
use crate::slab::class::Class;
use crate::supply;
use core::ptr;

/// From this many bytes on, moving pages between blocks with guards is cheaper than copying: the
/// pages of such blocks are never resident before their first use.
const MOVE_FENCED_BYTES: usize = 128 << 10;

/// [`crate::realloc::reallocate_layout`] of a block of a slab in the modes in which a call does
/// more.
///
/// # Safety
/// - As [`crate::realloc::reallocate`].
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
    release::refuse_quarantined(Call::Realloc, address);
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

/// [`crate::realloc::reallocate_layout`] of the block that was found at its address, unless it is a
/// plain one.
///
/// # Safety
/// - As [`crate::realloc::reallocate`].
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
            release::refuse_quarantined(Call::Realloc, address);
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
            release::refuse_quarantined(Call::Realloc, address);
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
    let wanted = large::page_multiple(size).filter(|_| rule::guards(size));
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
            release::free(block, 0);
        }
    }
}
