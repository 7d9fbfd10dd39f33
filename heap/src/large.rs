//! Large blocks: spans of their own.

use crate::base::units::{SLICE_BYTES, round_up, slices_for};
use crate::cache::heap::{HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::cache::thread_cache::EMPTY;
use crate::hook;
use crate::init::{begin_on_the_way, count_allocation, current, entered};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{Dirty, SliceRef, Span, Use, Zero};
use crate::reclaim::start::end_slow_path;
use core::ptr::{self, NonNull};

/// The largest alignment of a block.
const MAX_ALIGN: usize = 1 << 30;

/// No block is larger: pointer differences inside it must fit `isize`.
pub const MAX_BYTES: usize = isize::MAX as usize;

/// A large block at a multiple of `align`; null when out of memory.
#[inline(never)]
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    span_for(size, align).map_or(ptr::null_mut(), |span| span.base.as_ptr())
}

/// A large block whose bytes are zero, to the end of its last page. Pages that are known to be zero
/// are not written.
#[inline(never)]
pub(crate) fn allocate_zeroed(size: usize, align: usize) -> *mut u8 {
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
    if ptr::eq(current(), &EMPTY) {
        begin_on_the_way();
    }
    if HEAP.mode() == Mode::Counting
        && let Some(cache) = entered()
    {
        count_allocation(cache, size, None);
    }
    let span = plain_span(size, align);
    end_slow_path(0);
    span
}

pub(crate) fn plain_span(size: usize, align: usize) -> Option<Span<'static>> {
    if size > MAX_BYTES || align > MAX_ALIGN {
        return None;
    }
    let bytes = page_multiple(size.max(1))?;
    let align_slices = (align / SLICE_BYTES).max(1);
    let take = || {
        HEAP.pages
            .alloc(slices_for(bytes), align_slices, Use::Large, bytes)
    };
    let span = take().or_else(|| if HEAP.relieve(bytes) { take() } else { None });
    let Some(span) = span else {
        HEAP.pressure.note_refused();
        return None;
    };
    hook::large_made(&span.place, size, bytes);
    // SAFETY: just given out, for one block.
    unsafe { span.place.set_tag(Tag::LARGE.byte()) };
    HEAP.watch_pressure();
    HEAP.make_way(span.cold);
    Some(span)
}

pub(crate) fn page_multiple(size: usize) -> Option<usize> {
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
pub(crate) fn free(place: &SliceRef<'_>, address: usize, tag: Tag) {
    let bytes = bytes(Call::Free, place, address);
    // Of two threads that free the block at once, one finds the tag gone.
    if place.take_tag() != tag.byte() {
        misuse::no_block(Call::Free, address);
    }
    hook::large_freed(place);
    if let Some(base) = NonNull::new(address as *mut u8) {
        // SAFETY: a live large block, whose tag only this call took.
        unsafe { HEAP.pages.free(base, Dirty::Prefix(bytes)) };
        HEAP.tide.note_freed(bytes);
    }
}
