//! Large blocks: spans of their own.
//!
//! Under `NEAP_HARDEN`, a large block lies between guards, and so does every block of 4 KiB and
//! more. It begins a page or more after the start of its span. A note on the span's first slice
//! says where. While a freed block waits, all of its pages are guards.

use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};
use crate::base::units::{SLICE_BYTES, round_up, slices_for};
use crate::cache::heap::{HEAP, slab_of};
use crate::cache::magazine::Tag;
use crate::cache::measures::{Form, Measures};
use crate::cache::misuse::{self, Call};
use crate::hook;
use crate::init::{count_allocation, entered};
use crate::mapped_over;
use crate::os::linux::Linux;
use crate::os::{Os, RemapError};
use crate::pages::{Dirty, SliceRef, Span, Use, Zero};
use crate::reclaim::start::end_slow_path;
use crate::rule;
use core::ptr::{self, NonNull};

/// The largest alignment of a block.
const MAX_ALIGN: usize = 1 << 30;

/// No block is larger: pointer differences inside it must fit `isize`.
pub const MAX_BYTES: usize = isize::MAX as usize;

/// A large block at a multiple of `align`; null when out of memory.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    begin(size);
    let block = match fenced(size, align) {
        Some(block) => block,
        None => plain_span(size, align, 0).map_or(ptr::null_mut(), |span| span.base.as_ptr()),
    };
    end_slow_path(0);
    block
}

/// A large block whose bytes are zero, to the end of its last page. Pages that are known to be zero
/// are not written.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn allocate_zeroed(size: usize, align: usize) -> *mut u8 {
    begin(size);
    let block = match fenced(size, align) {
        Some(block) => block,
        None => plain_span(size, align, 0).map_or(ptr::null_mut(), |span| zeroed(&span, size)),
    };
    end_slow_path(0);
    block
}

/// Makes a span that was just given out zero.
fn zeroed(span: &Span<'_>, size: usize) -> *mut u8 {
    match span.zero {
        Zero::AllZero => HEAP.pages.count_known_zero(size),
        // SAFETY: the span is ours, committed, and in no thread's use.
        Zero::MaybeDirty => unsafe { HEAP.pages.zero_dirty(span.base, span.place.bytes()) },
    }
    span.base.as_ptr()
}

fn begin(size: usize) {
    // The purge thread lives as long as a thread has a cache. So one that has only large blocks has
    // one, too.
    let cache = entered();
    if HEAP.is_counting()
        && let Some(cache) = cache
    {
        count_allocation(cache, size, None);
    }
}

/// A span for a large block, into which `moved` bytes of pages are to be moved; `None` when out of
/// memory.
pub(crate) fn plain_span(size: usize, align: usize, moved: usize) -> Option<Span<'static>> {
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
fn take_span(
    slices: usize,
    align_slices: usize,
    bytes: usize,
    moved: usize,
) -> Option<Span<'static>> {
    let pages = &HEAP.pages;
    let take = || pages.alloc_moving(slices, align_slices, Use::Large, bytes, moved);
    let span = take().or_else(|| {
        if HEAP.relieve(bytes - moved) {
            take()
        } else {
            None
        }
    });
    if span.is_none() {
        HEAP.pressure.note_refused();
    }
    span
}

/// Lets `free` find the block in a span that was just given out.
fn publish(span: &Span<'static>, size: usize, bytes: usize, tag: Tag) {
    hook::large_made(&span.place, size, bytes);
    // SAFETY: just given out, for one block.
    unsafe { span.place.set_tag(tag.byte()) };
    HEAP.watch_pressure();
    HEAP.make_way(span.cold);
}

pub(crate) fn page_multiple(size: usize) -> Option<usize> {
    round_up(size, Linux.page_bytes())
}

/// Usable bytes of the large block at `address`; aborts if it does not start there.
pub fn bytes(call: Call, place: &SliceRef<'_>, address: usize) -> usize {
    let bytes = place.bytes();
    if place.slice_base() + lead_of(place) != address {
        misuse::interior(call, address, bytes);
    }
    bytes
}

/// Takes back a large block. `absent` bytes were counted as absent, because pages were to be moved
/// there.
#[unsafe(link_section = "neap_text")]
pub(crate) fn free(place: &SliceRef<'static>, address: usize, absent: usize) {
    let bytes = bytes(Call::Free, place, address);
    let is_fenced = is_fenced(place);
    let tag = if is_fenced { Tag::FENCED } else { Tag::LARGE };
    // Of two threads that free the block at once, one finds the tag gone.
    if place.take_tag() != tag.byte() {
        misuse::no_block(Call::Free, address);
    }
    hook::large_freed(place);
    let dirty = match is_fenced {
        true => open_up(place, bytes),
        false => Dirty::Prefix(bytes),
    };
    if let Some(base) = NonNull::new(place.slice_base() as *mut u8) {
        // SAFETY: a live large block, whose tag only this call took.
        unsafe { HEAP.pages.free_moved(base, dirty, absent) };
        HEAP.tide.note_freed(bytes);
    }
}

/// How many mappings the process may have for each guard that is a mapping. Such a guard adds two.
const MAPPINGS_EACH: usize = 8;

/// Guards that are mappings of their own, because the kernel has no others.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The note on the first slice of a fenced block's span: the pages before the block, by which call
/// it was allocated, and what its guards are.
#[derive(Clone, Copy)]
struct Note(u16);

const FORM_SHIFT: u32 = 8;
const ADVISED: u16 = 1 << 12;
const MAPPINGS: u16 = 1 << 13;
/// All pages are guards, because the block was freed or its pages were moved.
const SHUT: u16 = 1 << 14;

impl Note {
    fn of(place: &SliceRef<'_>) -> Note {
        Note(slab_of(place).note())
    }

    fn set(self, place: &SliceRef<'_>) {
        slab_of(place).set_note(self.0);
    }

    fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    fn lead(self) -> usize {
        (self.0 as usize & 0xff) * Linux.page_bytes()
    }
}

/// How far from the start of its span a block at a multiple of `align` begins, where OS pages have
/// `page` bytes. `None` if the first slice has no room for a guard and the block's start.
fn lead(align: usize, page: usize) -> Option<usize> {
    Some(align.max(page)).filter(|&lead| lead < SLICE_BYTES)
}

/// Whether the large block at a place lies between guards.
pub fn is_fenced(place: &SliceRef<'_>) -> bool {
    place.tag() == Tag::FENCED.byte()
}

/// How far from the start of its span a large block begins, in bytes.
pub fn lead_of(place: &SliceRef<'_>) -> usize {
    match is_fenced(place) {
        true => Note::of(place).lead(),
        false => 0,
    }
}

/// By which call the large block at a place was allocated.
pub(crate) fn form_of(place: &SliceRef<'_>) -> Form {
    match is_fenced(place) {
        true => Form::of(u64::from(Note::of(place).0 >> FORM_SHIFT)),
        false => Form::Any,
    }
}

/// Notes by which call the large block at a place was allocated.
pub(crate) fn set_form(place: &SliceRef<'_>, form: Form) {
    if is_fenced(place) {
        let others = Note::of(place).0 & !(3 << FORM_SHIFT);
        Note(others | (form as u16) << FORM_SHIFT).set(place);
    }
}

/// A block of zeros between guards, null when out of memory; `None` if it gets no guards: they are
/// not in force, or the alignment leaves no room for one in the block's first slice.
fn fenced(size: usize, align: usize) -> Option<*mut u8> {
    let page = Linux.page_bytes();
    let lead = lead(align, page).filter(|_| rule::guards(size))?;
    Some(between_guards(size, lead, page).unwrap_or(ptr::null_mut()))
}

#[cold]
fn between_guards(size: usize, lead: usize, page: usize) -> Option<*mut u8> {
    let bytes = page_multiple(size).filter(|_| size <= MAX_BYTES)?;
    let span = take_span(slices_for(bytes + lead + page), 1, bytes, 0)?;
    let whole = span.slices * SLICE_BYTES;
    if span.zero == Zero::MaybeDirty {
        // SAFETY: the span is ours, committed, and in no thread's use.
        unsafe { HEAP.pages.zero_dirty(span.base, whole) };
    }
    let mut note = (lead / page) as u16 | (Form::Malloc as u16) << FORM_SHIFT;
    // SAFETY: the block's first byte, and the byte past its end, in the span.
    let (block, end) = unsafe { (span.base.add(lead), span.base.add(lead + bytes)) };
    let rest = whole - lead - bytes;
    // SAFETY: parts of the span on both sides of the block, which nothing uses.
    note |= unsafe { install([(span.base, lead), (end, rest)], page) };
    Note(note).set(&span.place);
    publish(&span, size, bytes, Tag::FENCED);
    Some(block.as_ptr())
}

/// Installs guards. Returns what they are: the kernel may have none, and then the process may have
/// few mappings left for them.
///
/// # Safety
/// - Two ranges of a span in use, which no thread uses, a page or more.
unsafe fn install(ranges: [(NonNull<u8>, usize); 2], page: usize) -> u16 {
    let advise = |(start, bytes)| {
        // SAFETY: the caller's promise.
        unsafe { Linux.install_guard(start, bytes) }.is_ok()
    };
    if ranges.into_iter().all(advise) {
        return ADVISED;
    }
    for (start, bytes) in ranges {
        // The kernel installs guards up to the first page that it refuses.
        // SAFETY: the caller's promise.
        let _ = unsafe { Linux.remove_guard(start, bytes) };
    }
    let [(start, before), (end, rest)] = ranges;
    let most = Linux.most_mappings() / MAPPINGS_EACH;
    if MAPPED.fetch_add(1, Relaxed) >= most {
        MAPPED.fetch_sub(1, Relaxed);
        return 0;
    }
    // One page each: the rest of the span stays of one mapping with its neighbours.
    // SAFETY: the caller's promise; the page before the block is the last one of the first range.
    unsafe {
        let first = start.add(before - page);
        debug_assert!(rest >= page);
        let _ = Linux.protect(first, page);
        let _ = Linux.protect(end, page);
    }
    MAPPINGS
}

/// Moves the end of a block between guards within its span. Returns false, and leaves the block as
/// it was, if its guards or its span do not allow that.
///
/// # Safety
/// - A block of the caller's starts in the span at `place`, and no thread uses it meanwhile.
/// - `wanted` bytes are whole pages.
pub(crate) unsafe fn resize_fenced(place: &SliceRef<'static>, wanted: usize) -> bool {
    let (note, held, page) = (Note::of(place), place.bytes(), Linux.page_bytes());
    debug_assert!(is_fenced(place) && wanted.is_multiple_of(page));
    let fits = slices_for(note.lead() + wanted + page) == place.slices();
    // Moved pages are a mapping of their own. If the block grew past it, it would lie in two
    // mappings, and its pages could not be moved again.
    if !fits || !note.has(ADVISED) || place.is_overmapped() || place.is_moved() {
        return false;
    }
    let at = |offset| NonNull::new((place.slice_base() + offset) as *mut u8);
    let end = at(note.lead() + held.min(wanted));
    let (Some(base), Some(end)) = (at(0), end) else {
        return false;
    };
    let (bytes, grows) = (held.abs_diff(wanted), wanted > held);
    // SAFETY: the guards behind the block, or its last pages, which the caller gives up.
    let changed = unsafe {
        match grows {
            true => Linux.remove_guard(end, bytes).is_ok(),
            false => Linux.install_guard(end, bytes).is_ok(),
        }
    };
    // SAFETY: as above; the span is in use, and no more was written to it than its block.
    unsafe {
        match changed {
            true => HEAP
                .pages
                .set_bytes(base, wanted, Dirty::Prefix(note.lead() + held)),
            false if grows => _ = Linux.install_guard(end, bytes),
            false => _ = Linux.remove_guard(end, bytes),
        }
    }
    changed
}

/// Moves the pages with the first `bytes` bytes of a block between guards to another such block,
/// instead of copying them. The old block is then inaccessible, but still in use. On an error, both
/// blocks stay as they were, except that the new one may be lost ([`RemapError::Lost`]).
///
/// # Safety
/// - Blocks of the caller's start in the spans at `from` and `to`, of at least `bytes` bytes, which
///   are whole pages. No thread uses them meanwhile, and nothing was written to the new block.
pub(crate) unsafe fn move_fenced(
    from: &SliceRef<'static>,
    to: &SliceRef<'static>,
    bytes: usize,
) -> Result<(), RemapError> {
    let (note, held) = (Note::of(from), from.bytes());
    debug_assert!(is_fenced(from) && bytes <= held.min(to.bytes()));
    let [source, target] = [from, to]
        .map(|place| NonNull::new(place.slice_base() as *mut u8).ok_or(RemapError::Refused));
    let (source, target) = (source?, target?);
    let alike = is_fenced(to) && Note::of(to).lead() == note.lead();
    if !alike || !note.has(ADVISED) || !Note::of(to).has(ADVISED) {
        return Err(RemapError::Refused);
    }
    let end = note.lead() + held;
    // The page heap moves the first pages of a span, so the guards before the blocks move as well.
    // SAFETY: spans in use; the caller's promise.
    unsafe {
        HEAP.pages.set_bytes(source, end, Dirty::Prefix(end));
        let moved = HEAP
            .pages
            .move_pages(source, target, note.lead() + bytes, 1);
        HEAP.pages.set_bytes(source, held, Dirty::AsBefore);
        if moved == Err(RemapError::Lost) {
            abandon(to);
        }
        moved?;
        if Linux.install_guard(source, end).is_ok() {
            Note(note.0 | SHUT).set(from);
        }
    }
    Ok(())
}

/// Marks a span that the kernel took away as in use for good, so that Neap never puts a block there
/// and never writes to it.
#[cold]
pub(crate) fn abandon(place: &SliceRef<'static>) {
    hook::large_freed(place);
    place.take_tag();
    if let Some(base) = NonNull::new(place.slice_base() as *mut u8) {
        // SAFETY: the span of a request, which this thread has.
        unsafe { HEAP.pages.set_bytes(base, 0, Dirty::AsBefore) };
    }
}

/// Makes a freed block inaccessible while it waits, or at least zero. What the program mapped over
/// it is the program's, and stays as it is: the span is mapped afresh when it is taken back.
pub fn shut(place: &SliceRef<'static>) {
    if place.is_overmapped() {
        return;
    }
    let zero = HEAP.measures().has(Measures::ZERO);
    let (note, lead, bytes) = (Note::of(place), lead_of(place), place.bytes());
    let Some(block) = NonNull::new((place.slice_base() + lead) as *mut u8) else {
        return;
    };
    let pages = bytes.next_multiple_of(Linux.page_bytes());
    if is_fenced(place) && note.has(SHUT) {
        return;
    }
    if is_fenced(place) && note.has(ADVISED) {
        // SAFETY: a freed block, of whole pages.
        let shut = unsafe { Linux.install_guard(block, pages) };
        if shut.is_ok() {
            Note(note.0 | SHUT).set(place);
            return;
        }
        // It may have come as far as a page that the program locked.
        // SAFETY: as above.
        let _ = unsafe { Linux.remove_guard(block, pages) };
    }
    if zero {
        // SAFETY: as above.
        unsafe {
            if !HEAP.pages.purge_in_use(block, pages) {
                block.as_ptr().write_bytes(0, bytes);
            }
        }
    }
}

/// Removes all guards of a span whose block was freed. Returns what was written to the span.
fn open_up(place: &SliceRef<'static>, bytes: usize) -> Dirty {
    let (note, page) = (Note::of(place), Linux.page_bytes());
    let (start, whole) = (place.slice_base(), place.slices() * SLICE_BYTES);
    let at = |address| NonNull::new(address as *mut u8);
    let (Some(base), Some(before), Some(end)) = (
        at(start),
        at(start + note.lead() - page),
        at(start + note.lead() + bytes),
    ) else {
        return Dirty::All;
    };
    // SAFETY: of the span, which no thread uses.
    unsafe {
        if note.has(ADVISED) {
            let _ = Linux.remove_guard(base, whole);
        }
        if note.has(MAPPINGS) {
            MAPPED.fetch_sub(1, Relaxed);
            let opened = [before, end].map(|guard| Linux.commit(guard, page).is_ok());
            if opened != [true; 2] {
                // The process may have no more writable memory. Then the span is mapped afresh, or
                // no one gets it.
                mapped_over::note(start, whole);
            }
        }
    }
    match note.has(SHUT) {
        true => Dirty::Zeroed,
        false => Dirty::Prefix(note.lead() + bytes),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_are_guards_where_a_slice_has_more_than_one_page() {
        assert_eq!(lead(1, 4 << 10), Some(4 << 10));
        assert_eq!(lead(32 << 10, 4 << 10), Some(32 << 10));
        assert_eq!(lead(1, 16 << 10), Some(16 << 10));
        assert_eq!(lead(64 << 10, 4 << 10), None);
        assert_eq!(lead(1, 64 << 10), None);
    }
}
