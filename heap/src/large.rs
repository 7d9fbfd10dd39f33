//! Large blocks: spans of their own.

use crate::base::policy::Driver;
use crate::base::sync::Ordering;
use crate::base::units::{SLICE_BYTES, round_up, slices_for};
use crate::cache::heap::HEAP;
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::cache::thread_cache::CACHE_BYTES;
use crate::hook::{self, REQUESTS};
use crate::init::current;
use crate::os::linux::Linux;
use crate::os::{Os, RemapError};
use crate::pages::{Age, Dirty, Kept, MOST_PIECES, SliceRef, Span, SpanSource, Use, Zero};
use crate::reclaim::start::end_slow_path;
use crate::slab::class::MAX_BLOCK;
use core::ptr::{self, NonNull};

/// The largest alignment of a block.
const MAX_ALIGN: usize = 1 << 30;

/// No block is larger: pointer differences inside it must fit `isize`.
pub const MAX_BYTES: usize = isize::MAX as usize;

/// From this many bytes on, moving page-table entries is cheaper than copying.
/// `docs/decisions/0005-realloc.md` has the measurements.
const MOVE_BYTES: usize = 256 << 10;

/// Up to this many bytes, copying to resident pages is cheaper: a move drops these pages and takes
/// the block's own away from where they are, and both are faulted in again.
const COPY_BYTES: usize = 4 << 20;

/// A large block at a multiple of `align`; null when out of memory. The purge thread lives as long
/// as a thread has a cache, so the caller has [entered](crate::init::entered) the heap.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    match take_cached(size, align) {
        Some(found) => give(found, size),
        None => allocate_span(size, align),
    }
}

/// [`allocate`] where the thread's shard of cached spans does not serve.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn allocate_span(size: usize, align: usize) -> *mut u8 {
    if let Some(found) = take_others(size, align) {
        return give(found, size);
    }
    let block = plain_span(size, align, 0).map_or(ptr::null_mut(), |span| span.base.as_ptr());
    tend_rarely();
    end_slow_path(0);
    block
}

/// [`allocate`], the bytes zero to the end of the last page. Pages that are known to be zero are
/// not written.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate_zeroed(size: usize, align: usize) -> *mut u8 {
    if let Some(place) = reuse(size, align) {
        return zero_dirty(&place);
    }
    let block = plain_span(size, align, 0).map_or(ptr::null_mut(), |span| zeroed(&span, size));
    tend_rarely();
    end_slow_path(0);
    block
}

/// A cached span for a large block that needs no more alignment than a slice has, and its usable
/// bytes.
#[inline(always)]
fn take_cached(size: usize, align: usize) -> Option<(SliceRef<'static>, usize)> {
    let has_place = align <= SLICE_BYTES;
    has_place.then(|| HEAP.pages.take_cached(shard(), size))?
}

/// [`take_cached`] from other shards than the thread's.
fn take_others(size: usize, align: usize) -> Option<(SliceRef<'static>, usize)> {
    let has_place = align <= SLICE_BYTES;
    has_place.then(|| HEAP.pages.take_others(shard(), size))?
}

/// Makes a cached span that was just taken a block of `size` bytes, without a change of its usable
/// bytes if these suffice.
#[inline(always)]
fn give((place, bytes): (SliceRef<'static>, usize), size: usize) -> *mut u8 {
    if bytes < size || hook::was_sampled() {
        return give_out(place, size);
    }
    // SAFETY: just given out, for one block.
    unsafe { place.set_tag(Tag::LARGE.byte()) };
    place.slice_base() as *mut u8
}

/// A block in a cached span, for callers that do more than a call costs.
#[inline(never)]
fn reuse(size: usize, align: usize) -> Option<SliceRef<'static>> {
    let (place, _) = take_cached(size, align).or_else(|| take_others(size, align))?;
    give_out(place, size);
    Some(place)
}

/// Makes a cached span that was just taken a block of `size` bytes.
#[cold]
#[inline(never)]
fn give_out(place: SliceRef<'static>, size: usize) -> *mut u8 {
    // SAFETY: just taken, for one block.
    unsafe { HEAP.pages.restate(&place, size) };
    hook::large_made(&place, size, place.bytes());
    // SAFETY: as above.
    unsafe { place.set_tag(Tag::LARGE.byte()) };
    place.slice_base() as *mut u8
}

/// The shard of cached spans that the calling thread uses: caches of threads lie side by side.
#[inline]
fn shard() -> usize {
    ptr::from_ref(current()).addr() / CACHE_BYTES
}

/// Takes back the large block at `address`, if possible into the cache of spans. False, and nothing
/// happened, if no such block starts there in the first arena.
#[inline]
pub(crate) fn free_short(address: usize, caller: usize) -> bool {
    let Some(place) = HEAP.pages.locate_primary(address) else {
        return false;
    };
    if place.tag() != Tag::LARGE.byte() || !address.is_multiple_of(SLICE_BYTES) {
        return false;
    }
    take_tag(&place, Tag::LARGE, address);
    match hook::was_sampled() {
        true => keep_apart(place, caller),
        false => keep(place, caller),
    }
    true
}

/// Takes back the span of a block whose tag only this call took.
#[inline(always)]
fn keep(place: SliceRef<'static>, caller: usize) {
    // SAFETY: a live large block, the caller's, whose tag is gone.
    match unsafe { HEAP.pages.keep_cached(shard(), &place) } {
        Kept::Yes if !REQUESTS.is_status_page_missing() => {}
        Kept::Yes => tend_cached(0, caller),
        Kept::Due(freed) => tend_cached(freed, caller),
        Kept::No => free_span(place, caller),
    }
}

/// [`keep`] of a block that may have been sampled.
#[cold]
#[inline(never)]
fn keep_apart(place: SliceRef<'static>, caller: usize) {
    hook::large_freed(&place);
    keep(place, caller);
}

/// [`keep`] of a span that is not cached at once.
#[inline(never)]
fn free_span(place: SliceRef<'static>, caller: usize) {
    // SAFETY: as in `keep`.
    match unsafe { HEAP.pages.keep_late(shard(), &place) } {
        Kept::Yes => {}
        Kept::Due(freed) => tend_cached(freed, caller),
        Kept::No => {
            take_back(&place, Dirty::Prefix(place.bytes()), 0);
            end_slow_path(caller);
        }
    }
}

/// After some of the frees into the cache of spans; `freed` bytes are to be noted.
#[cold]
#[inline(never)]
fn tend_cached(freed: usize, caller: usize) {
    HEAP.tide.note_freed(freed);
    HEAP.decay_on_the_way();
    end_slow_path(caller);
}

/// Makes a span that was just given out zero.
fn zeroed(span: &Span<'_>, size: usize) -> *mut u8 {
    match span.zero {
        Zero::AllZero => HEAP.pages.count_known_zero(size),
        Zero::MaybeDirty => return zero_dirty(&span.place),
    }
    span.base.as_ptr()
}

/// Makes a span zero that was just given out and whose pages may have any contents.
fn zero_dirty(place: &SliceRef<'_>) -> *mut u8 {
    let base = place.pointer();
    // SAFETY: the span is ours, committed, and in no thread's use.
    unsafe { HEAP.pages.zero_dirty(base, place.bytes()) };
    base.as_ptr()
}

/// A span for a large block, into which `moved` bytes of pages are to be moved; `None` when out of
/// memory.
fn plain_span(size: usize, align: usize, moved: usize) -> Option<Span<'static>> {
    if size > MAX_BYTES || align > MAX_ALIGN {
        return None;
    }
    let bytes = page_multiple(size.max(1))?;
    let align_slices = (align / SLICE_BYTES).max(1);
    let span = take_span(slices_for(bytes), align_slices, bytes, moved)?;
    publish(&span, size, bytes, Tag::LARGE);
    Some(span)
}

/// A span for a block of `bytes` bytes; `None` when out of memory.
pub(crate) fn take_span(
    slices: usize,
    align_slices: usize,
    bytes: usize,
    moved: usize,
) -> Option<Span<'static>> {
    let pages = &HEAP.pages;
    let from = SpanSource::Any;
    let take = || pages.alloc_untended(from, slices, align_slices, Use::Large, bytes, moved);
    let span = take().or_else(|| {
        if HEAP.relieve(bytes - moved) {
            take()
        } else {
            None
        }
    });
    pages.tend_left();
    if span.is_none() {
        HEAP.pressure.refused.fetch_add(1, Ordering::Relaxed);
    }
    span
}

/// Lets `free` find the block in a span that was just given out.
pub(crate) fn publish(span: &Span<'static>, size: usize, bytes: usize, tag: Tag) {
    hook::large_made(&span.place, size, bytes);
    // SAFETY: just given out, for one block.
    unsafe { span.place.set_tag(tag.byte()) };
    HEAP.watch_pressure();
    HEAP.make_way(span.cold);
}

pub(crate) fn page_multiple(size: usize) -> Option<usize> {
    round_up(size, Linux.page_bytes())
}

/// Usable bytes of the large block at `address`; aborts if it does not start there, `lead` bytes
/// after the start of its span.
pub(crate) fn bytes(call: Call, place: &SliceRef<'_>, lead: usize, address: usize) -> usize {
    let bytes = place.bytes();
    if place.slice_base() + lead != address {
        misuse::interior(call, address, bytes);
    }
    bytes
}

/// Takes back a large block. `absent` bytes were counted as absent, because pages were to be moved
/// there.
#[unsafe(link_section = "neap_text")]
pub(crate) fn free(place: &SliceRef<'static>, address: usize, absent: usize) {
    let bytes = bytes(Call::Free, place, 0, address);
    unpublish(place, Tag::LARGE, address);
    take_back(place, Dirty::Prefix(bytes), absent);
}

/// From now on `free` does not find the block at `address`. Aborts if it does not now.
pub(crate) fn unpublish(place: &SliceRef<'static>, tag: Tag, address: usize) {
    take_tag(place, tag, address);
    hook::large_freed(place);
}

#[inline]
fn take_tag(place: &SliceRef<'static>, tag: Tag, address: usize) {
    // Of two threads that free the block at once, one finds the tag gone.
    if place.take_tag() != tag.byte() {
        misuse::no_block(Call::Free, address);
    }
}

/// Gives the span of a block back that only this call [unpublished](unpublish).
pub(crate) fn take_back(place: &SliceRef<'static>, dirty: Dirty, absent: usize) {
    let bytes = place.bytes();
    // SAFETY: a live large block, whose tag only this call took.
    unsafe {
        HEAP.pages
            .free_untended(place.pointer(), dirty, Age::New, absent)
    };
    HEAP.pages.tend_left();
    HEAP.tide.note_freed(bytes);
    tend_rarely();
}

/// In calls that bypass the cache of spans: rounds of callers go on while it holds any, and a
/// shortage of memory is seen to end.
fn tend_rarely() {
    let limits = HEAP.pages.limits();
    let waits = || limits.driver() == Driver::Callers && HEAP.pages.cached_bytes() > 0;
    if limits.is_pressed() || waits() {
        HEAP.decay_at_ticks();
    }
}

/// Marks a span that the kernel took away as in use for good, so that Neap never puts a block there
/// and never writes to it.
#[cold]
pub(crate) fn abandon(place: &SliceRef<'static>) {
    hook::large_freed(place);
    place.take_tag();
    // SAFETY: the span of a request, which this thread has.
    unsafe { HEAP.pages.set_bytes(place.pointer(), 0, Dirty::AsBefore) };
}

/// What became of a large block that was to be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resized {
    /// It has the new size, and stays where it is.
    Stays,
    /// Its contents are here, and it was freed; null when out of memory, and it stays as it was.
    Moved(*mut u8),
    /// The caller is to allocate a block, copy this many bytes at most, and free this one.
    ToCopy(usize),
}

/// Resizes a large block: in place where its end may move, else by moving its pages, unless copying
/// is cheaper.
///
/// # Safety
/// - `block` starts the large block of `place`, is not given back, and no thread uses it meanwhile.
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn resize(
    place: &SliceRef<'static>,
    block: *mut u8,
    size: usize,
    align: usize,
) -> Resized {
    let held = bytes(Call::Realloc, place, 0, block.addr());
    if size <= MAX_BLOCK && align <= MAX_BLOCK {
        return Resized::ToCopy(held);
    }
    let (Some(wanted), Some(base)) = (page_multiple(size), NonNull::new(block)) else {
        return Resized::Moved(ptr::null_mut());
    };
    // SAFETY: the caller's promise.
    if unsafe { resize_in_place(place, base, held, wanted) } {
        hook::large_freed(place);
        hook::large_made(place, size, wanted);
        return Resized::Stays;
    }
    if held < MOVE_BYTES {
        return Resized::ToCopy(held);
    }
    // SAFETY: the caller's promise.
    Resized::Moved(unsafe { relocate(base, held, size, align) })
}

/// Moves the end of a block. False if what follows it is taken.
///
/// # Safety
/// - As [`resize`].
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
    if moved <= COPY_BYTES
        && let Some(old) = HEAP.pages.locate_primary(base.as_ptr().addr())
        && old.tag() == Tag::LARGE.byte()
        && let Some(place) = reuse(size, align)
    {
        // SAFETY: two different blocks, each at least that long, both ours.
        unsafe {
            ptr::copy_nonoverlapping(base.as_ptr(), place.pointer().as_ptr(), held.min(size))
        };
        take_tag(&old, Tag::LARGE, base.as_ptr().addr());
        keep_apart(old, 0);
        return place.pointer().as_ptr();
    }
    let Some(span) = plain_span(size, align, moved) else {
        return ptr::null_mut();
    };
    let free_span = |base: NonNull<u8>, absent| {
        if let Some(place) = HEAP.pages.locate(base.as_ptr().addr()) {
            free(&place, base.as_ptr().addr(), absent);
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
            free_span(span.base, absent);
            return ptr::null_mut();
        }
        Err(RemapError::Lost) => {
            abandon(&span.place);
            return ptr::null_mut();
        }
    }
    free_span(base, absent);
    span.base.as_ptr()
}

/// Whether at least half as many bytes as `moved` may be resident in a span just given out.
fn is_warm(span: &Span<'_>, moved: usize) -> bool {
    (span.slices * SLICE_BYTES - span.cold) * 2 >= moved
}
