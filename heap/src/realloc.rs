//! Changing a block's size.

use crate::base::units::{SLICE_BYTES, slices_for};
use crate::cache::heap::{Found, HEAP};
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::free::{free, refuse_free, refuse_quarantined, sizes_are_loose, start_of};
use crate::harden;
use crate::hook;
use crate::init::current;
use crate::large::{self, MAX_BYTES};
use crate::malloc::allocate_layout;
use crate::os::linux::Linux;
use crate::os::{Os, RemapError};
use crate::pages::{Dirty, MOST_PIECES, SliceRef, Span};
use crate::rule;
use crate::seal;
use crate::slab::Slab;
use crate::slab::class::{Class, MAX_BLOCK};
use crate::tags;
use core::ptr::{self, NonNull};

/// From this many bytes on, moving page-table entries is cheaper than copying.
/// `docs/decisions/0005-realloc.md` has the measurements.
const MOVE_BYTES: usize = 256 << 10;

/// Up to this many bytes, copying to resident pages is cheaper: a move drops these pages and takes
/// the block's own away from where they are, and both are faulted in again.
const COPY_BYTES: usize = 4 << 20;

/// From this many bytes on, moving pages between blocks with guards is cheaper than copying: the
/// pages of such blocks are never resident before their first use.
const MOVE_FENCED_BYTES: usize = 128 << 10;

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
        return unsafe { reallocate_watched(block, class, size, align) };
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
    let address = tags::strip(block.addr());
    match HEAP.find(address) {
        // By a pointer with a tag, or in a slab that the program mapped something over.
        Found::Slab(slab, class) => {
            refuse_freed(block.with_addr(address), slab, class);
            if tags::is_on() {
                tags::refuse_other(Call::Realloc, block.addr(), class);
            }
            // SAFETY: the caller's promise.
            unsafe { reallocate_watched(block, class, size, align) }
        }
        // SAFETY: the caller's promise.
        Found::Sampled(slab, class) => unsafe {
            reallocate_sampled(slab, class, block, size, align)
        },
        // SAFETY: the caller's promise.
        Found::Guarded => unsafe { reallocate_guarded(block, size, align) },
        Found::Large(place) => {
            refuse_quarantined(Call::Realloc, address);
            // SAFETY: the caller's promise.
            unsafe { reallocate_large(&place, block, size, align) }
        }
        Found::Foreign => misuse::foreign(Call::Realloc, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::Realloc, address),
    }
}

/// [`reallocate_layout`] of a block of a slab in the modes in which a call does more.
///
/// # Safety
/// - As [`reallocate`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_watched(block: *mut u8, class: Class, size: usize, align: usize) -> *mut u8 {
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
    unsafe { move_block(block, held, size, align) }
}

/// [`reallocate_layout`] of a large block between guards. The block stays where it is if its end
/// stays, or if `large::resize_fenced` can move its end.
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
    let held = large::bytes(Call::Realloc, place, block.addr());
    let wanted = large::page_multiple(size).filter(|_| rule::guards(size));
    let Some(wanted) = wanted else {
        // SAFETY: the caller's promise.
        return unsafe { move_block(block, held, size, align) };
    };
    if wanted == held {
        return block;
    }
    // SAFETY: the caller's promise.
    if unsafe { large::resize_fenced(place, wanted) } {
        hook::large_freed(place);
        hook::large_made(place, size, wanted);
        note_kept(size, None);
        return block;
    }
    match held < MOVE_FENCED_BYTES {
        // SAFETY: the caller's promise.
        true => unsafe { move_block(block, held, size, align) },
        // SAFETY: as above.
        false => unsafe { relocate_fenced(place, block, size, align) },
    }
}

/// [`move_block`] of a block between guards, by moving its pages if the kernel can.
///
/// # Safety
/// - As [`reallocate_fenced`].
#[unsafe(link_section = "neap_text")]
unsafe fn relocate_fenced(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let held = place.bytes();
    let move_pages = |moved: *mut u8| match HEAP.find(moved.addr()) {
        // SAFETY: the caller's promise; a new block of at least as many bytes.
        Found::Large(target) => unsafe {
            large::move_fenced(place, &target, held.min(target.bytes()))
        },
        // The profiler sampled it, or it is a guarded sample.
        _ => Err(RemapError::Refused),
    };
    // SAFETY: the caller's promise.
    unsafe { move_block_by(block, held, size, align, move_pages) }
}

/// [`reallocate_layout`] of a block that the profiler sampled.
///
/// # Safety
/// - As [`reallocate`]; the block is in this slab.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_sampled(
    slab: &Slab,
    class: Class,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    refuse_free(Call::Realloc, slab, class, block.addr());
    refuse_quarantined(Call::Realloc, block.addr());
    if Class::of_layout(size, align) == Some(class) {
        note_kept(size, Some(class));
        return block;
    }
    // SAFETY: the caller's promise; the block has that many usable bytes.
    unsafe { move_block(block, class.bytes(), size, align) }
}

/// [`reallocate_layout`] of a guarded block, which always moves.
///
/// # Safety
/// - As [`reallocate`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_guarded(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    let held = hook::instruments().guarded_bytes(Call::Realloc, block.addr());
    // SAFETY: the caller's promise; the block has that many bytes.
    unsafe { move_block(block, held, size, align) }
}

/// Aborts if the block is known to be free: its bit is set, or it is one of the newest of this
/// thread's magazine.
#[inline(always)]
fn refuse_freed(block: *mut u8, slab: &Slab, class: Class) {
    let number = start_of(Call::Realloc, slab, class, block.addr());
    // SAFETY: the calling thread's own cache, or a sentinel.
    let is_recent = || unsafe { current().magazine(Tag::of(class)).is_recent(block) };
    if slab.is_free(class, number) || is_recent() {
        misuse::already_free(Call::Realloc, block.addr());
    }
}

/// A block that is resized without another allocation: its new size also counts as requested.
fn note_kept(size: usize, class: Option<Class>) {
    if HEAP.is_counting() {
        hook::instruments().requested(size, class);
    }
}

/// Moves a block's contents to a new one of `size` bytes, by copying them.
///
/// # Safety
/// - `block` holds `held` bytes, is not given back, and no thread uses it meanwhile.
#[unsafe(link_section = "neap_text")]
unsafe fn move_block(block: *mut u8, held: usize, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { move_block_by(block, held, size, align, |_| Err(RemapError::Refused)) }
}

/// Moves a block's contents to a new one of `size` bytes by `move_pages`, which gets the new block.
/// Copies them if `move_pages` refuses.
///
/// # Safety
/// - As [`move_block`].
#[inline(always)]
#[unsafe(link_section = "neap_text")]
unsafe fn move_block_by(
    block: *mut u8,
    held: usize,
    size: usize,
    align: usize,
    move_pages: impl FnOnce(*mut u8) -> Result<(), RemapError>,
) -> *mut u8 {
    let moved = allocate_layout(size, align);
    let result = match moved.is_null() {
        true => Err(RemapError::Lost),
        false => move_pages(moved),
    };
    match result {
        Ok(()) => {}
        // SAFETY: two different blocks, each at least that long.
        Err(RemapError::Refused) => unsafe {
            ptr::copy_nonoverlapping(block, moved, held.min(size));
        },
        Err(RemapError::Lost) if size > held => return ptr::null_mut(),
        Err(RemapError::Lost) => {
            // A smaller size must not fail: the block stays where it is.
            sizes_are_loose();
            return block;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free(block) };
    moved
}

/// Resizes a large block: in place where its end may move, else by moving its pages, else by
/// copying.
///
/// # Safety
/// - `block` starts the large block of `place`, is not given back, and no thread uses it meanwhile.
#[unsafe(link_section = "neap_text")]
unsafe fn reallocate_large(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    if large::is_fenced(place) {
        // SAFETY: the caller's promise.
        return unsafe { reallocate_fenced(place, block, size, align) };
    }
    let held = large::bytes(Call::Realloc, place, block.addr());
    if size <= MAX_BLOCK && align <= MAX_BLOCK {
        // SAFETY: the caller's promise.
        return unsafe { move_block(block, held, size, align) };
    }
    let Some(wanted) = large::page_multiple(size) else {
        return ptr::null_mut();
    };
    let Some(base) = NonNull::new(block) else {
        return ptr::null_mut();
    };
    // SAFETY: the caller's promise.
    if unsafe { resize_in_place(place, base, held, wanted) } {
        hook::large_freed(place);
        hook::large_made(place, size, wanted);
        note_kept(size, None);
        return block;
    }
    if held < MOVE_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { move_block(block, held, size, align) };
    }
    // SAFETY: the caller's promise.
    unsafe { relocate(base, held, size, align) }
}

/// Moves the end of a block. False if what follows it is taken.
///
/// # Safety
/// - As [`reallocate_large`].
unsafe fn resize_in_place(
    place: &SliceRef<'_>,
    base: NonNull<u8>,
    held: usize,
    wanted: usize,
) -> bool {
    let (slices, needed) = (place.slices(), slices_for(wanted));
    if needed == slices {
        // SAFETY: the caller's promise.
        unsafe { HEAP.pages.set_bytes(base, wanted, Dirty::Prefix(held)) };
        return true;
    }
    if needed < slices {
        // SAFETY: the caller's promise.
        unsafe {
            HEAP.pages
                .shrink_in_place(base, needed, wanted, Dirty::Prefix(held))
        };
        HEAP.tide.note_freed((slices - needed) * SLICE_BYTES);
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { HEAP.pages.grow_in_place(base, needed, wanted) }.is_some()
}

/// Gives the contents a new span, by moving pages if the kernel can, else by copying.
///
/// # Safety
/// - `base` starts a large block of `held` bytes that no thread uses meanwhile.
#[unsafe(link_section = "neap_text")]
unsafe fn relocate(base: NonNull<u8>, held: usize, size: usize, align: usize) -> *mut u8 {
    let moved = held.min(size).next_multiple_of(Linux.page_bytes());
    let Some(span) = large::plain_span(size, align, moved) else {
        return ptr::null_mut();
    };
    let free = |base: NonNull<u8>, absent| {
        if let Some(place) = HEAP.pages.locate(base.as_ptr().addr()) {
            large::free(&place, base.as_ptr().addr(), absent);
        }
    };
    let mut absent = span.absent;
    // While the block is copied, both copies are resident.
    let mut may_copy = || {
        let admitted = absent == 0 || HEAP.pages.readmit(absent);
        absent *= usize::from(!admitted);
        admitted
    };
    let result = match moved <= COPY_BYTES && is_warm(&span, moved) && may_copy() {
        true => Err(RemapError::Refused),
        // SAFETY: two different committed spans, each at least `moved` bytes, both ours.
        false => unsafe { HEAP.pages.move_pages(base, span.base, moved, MOST_PIECES) },
    };
    match result {
        Ok(()) => {}
        // SAFETY: as above.
        Err(RemapError::Refused) if may_copy() => unsafe {
            ptr::copy_nonoverlapping(base.as_ptr(), span.base.as_ptr(), held.min(size));
        },
        Err(RemapError::Refused) => {
            free(span.base, absent);
            return ptr::null_mut();
        }
        Err(RemapError::Lost) => {
            large::abandon(&span.place);
            return ptr::null_mut();
        }
    }
    note_kept(size, None);
    free(base, absent);
    span.base.as_ptr()
}

/// Whether at least half as many bytes as `moved` may be resident in a span just given out.
fn is_warm(span: &Span<'_>, moved: usize) -> bool {
    (span.slices * SLICE_BYTES - span.cold) * 2 >= moved
}
