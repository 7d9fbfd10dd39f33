//! Large blocks: spans of their own.

use super::MAX_BYTES;
use super::allocate::{count_allocation, entered};
use super::purge;
use super::resize::{move_block, note_kept};
use crate::base::units::{SLICE_BYTES, round_up, slices_for};
use crate::cache::heap::{HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::hook;
use crate::os::linux::Linux;
use crate::os::{Os, RemapError};
use crate::pages::{Dirty, SliceRef, Span, Use, Zero};
use crate::slab::class::MAX_BLOCK;
use core::ptr::{self, NonNull};

/// From this many bytes on, moving page-table entries is cheaper than copying.
/// `docs/decisions/0005-realloc.md` has the measurements.
const MOVE_BYTES: usize = 256 << 10;

/// The largest alignment that a block may ask for.
const MAX_ALIGN: usize = 1 << 30;

/// A large block at a multiple of `align`; null when out of memory.
#[inline(never)]
pub(super) fn allocate(size: usize, align: usize) -> *mut u8 {
    span_for(size, align).map_or(ptr::null_mut(), |span| span.base.as_ptr())
}

/// A large block whose bytes are zero, to the end of its last page. Pages that are known to be zero
/// are not written.
#[inline(never)]
pub(super) fn allocate_zeroed(size: usize, align: usize) -> *mut u8 {
    let Some(span) = span_for(size, align) else {
        return ptr::null_mut();
    };
    match span.zero {
        Zero::AllZero => HEAP.pages.count_known_zero(size),
        // SAFETY: the span is ours, committed, and in no thread's use.
        Zero::MaybeDirty => unsafe { HEAP.pages.zero_dirty(span.base, span.place.bytes()) },
    }
    span.base.as_ptr()
}

fn span_for(size: usize, align: usize) -> Option<Span<'static>> {
    if HEAP.mode() == Mode::Counting
        && let Some(cache) = entered()
    {
        count_allocation(cache, size, None);
    }
    let span = plain_span(size, align);
    purge::pass_by(0);
    span
}

fn plain_span(size: usize, align: usize) -> Option<Span<'static>> {
    if size > MAX_BYTES || align > MAX_ALIGN {
        return None;
    }
    let bytes = page_multiple(size.max(1))?;
    let align_slices = (align / SLICE_BYTES).max(1);
    let take = || {
        HEAP.pages
            .alloc(slices_for(bytes), align_slices, Use::Large, bytes)
    };
    let span = take().or_else(|| if HEAP.relieve(bytes) { take() } else { None })?;
    hook::large_made(&span.place, size, bytes);
    // SAFETY: just given out, for one block.
    unsafe { span.place.set_tag(Tag::LARGE.0) };
    HEAP.make_way(span.cold);
    Some(span)
}

fn page_multiple(size: usize) -> Option<usize> {
    round_up(size, Linux.page_bytes())
}

/// Usable bytes of the large block at `address`; aborts if it does not start there.
pub fn bytes(call: Call, place: &SliceRef<'_>, address: usize) -> usize {
    let bytes = place.bytes();
    if place.slice_base() != address {
        misuse::interior(call, address, bytes);
    }
    bytes
}

/// Takes a block back that has a span of its own, with this tag.
pub(super) fn free(place: &SliceRef<'_>, address: usize, tag: Tag) {
    let bytes = bytes(Call::Free, place, address);
    // Of two threads that free the block at once, one finds the tag gone.
    if place.take_tag() != tag.0 {
        misuse::no_block(Call::Free, address);
    }
    hook::large_freed(place);
    if let Some(base) = NonNull::new(address as *mut u8) {
        // SAFETY: a live large block, whose tag only this call took.
        unsafe { HEAP.pages.free(base, Dirty::Prefix(bytes)) };
        HEAP.tide.note_freed(bytes);
    }
}

/// Resizes a large block: in place where its end may move, else by moving its pages, else by
/// copying.
///
/// # Safety
/// - `block` starts the large block of `place`, is not given back, and no thread uses it meanwhile.
pub(super) unsafe fn reallocate(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let held = bytes(Call::Realloc, place, block.addr());
    if size <= MAX_BLOCK && align <= MAX_BLOCK {
        // SAFETY: the caller's promise.
        return unsafe { move_block(block, held, size, align) };
    }
    let Some(wanted) = page_multiple(size) else {
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
/// - As [`reallocate`].
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
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { HEAP.pages.grow_in_place(base, needed, wanted) }.is_some()
}

/// Gives the contents a new span, by moving pages if the kernel can, else by copying.
///
/// # Safety
/// - `base` starts a large block of `held` bytes that no thread uses meanwhile.
unsafe fn relocate(base: NonNull<u8>, held: usize, size: usize, align: usize) -> *mut u8 {
    let Some(span) = plain_span(size, align) else {
        return ptr::null_mut();
    };
    let moved = held.min(size).next_multiple_of(Linux.page_bytes());
    // SAFETY: two different committed spans, each at least `moved` bytes, both ours.
    match unsafe { HEAP.pages.move_pages(base, span.base, moved) } {
        Ok(()) => {}
        // SAFETY: as above.
        Err(RemapError::Refused) => unsafe {
            ptr::copy_nonoverlapping(base.as_ptr(), span.base.as_ptr(), held.min(size));
        },
        Err(RemapError::Lost) => {
            abandon(&span);
            return ptr::null_mut();
        }
    }
    note_kept(size, None);
    if let Some(place) = HEAP.pages.locate(base.as_ptr().addr()) {
        free(&place, base.as_ptr().addr(), Tag::LARGE);
    }
    span.base.as_ptr()
}

/// Leaves a span in use for good that the kernel took away: no block is there, and nothing is
/// written to it.
#[cold]
fn abandon(span: &Span<'_>) {
    hook::large_freed(&span.place);
    span.place.take_tag();
    // SAFETY: the span of a request, which this thread has.
    unsafe { HEAP.pages.set_bytes(span.base, 0, Dirty::AsBefore) };
}
