//! Large blocks between guards (`NEAP_HARDEN`, the measure `guards`), and so every block of 4 KiB
//! and more.
//!
//! Such a block begins a page or more after the start of its span. A note on the span's first slice
//! says where. While a freed block waits, all of its pages are guards.

use super::seal;
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};
use crate::base::units::{SLICE_BYTES, slices_for};
use crate::cache::heap::{HEAP, slab_of};
use crate::cache::magazine::Tag;
use crate::cache::measures::{Form, Measures};
use crate::cache::misuse::Call;
use crate::large::{self, MAX_BYTES, abandon, page_multiple};
use crate::mapped_over;
use crate::os::linux::Linux;
use crate::os::{Os, RemapError};
use crate::pages::{Dirty, SliceRef, Zero};
use core::ptr::{self, NonNull};

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
pub(super) fn allocate(size: usize, align: usize) -> Option<*mut u8> {
    let page = Linux.page_bytes();
    let lead = lead(align, page).filter(|_| seal::guards(size))?;
    Some(between_guards(size, lead, page).unwrap_or(ptr::null_mut()))
}

#[cold]
fn between_guards(size: usize, lead: usize, page: usize) -> Option<*mut u8> {
    let bytes = page_multiple(size).filter(|_| size <= MAX_BYTES)?;
    let span = large::take_span(slices_for(bytes + lead + page), 1, bytes, 0)?;
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
    large::publish(&span, size, bytes, Tag::FENCED);
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
    let (base, bytes, grows) = (place.pointer(), held.abs_diff(wanted), wanted > held);
    // SAFETY: the guards behind the block, or its last pages, which the caller gives up. The span
    // is in use, and only its block was written to.
    unsafe {
        let end = base.add(note.lead() + held.min(wanted));
        let changed = match grows {
            true => Linux.remove_guard(end, bytes).is_ok(),
            false => Linux.install_guard(end, bytes).is_ok(),
        };
        match changed {
            true => HEAP
                .pages
                .set_bytes(base, wanted, Dirty::Prefix(note.lead() + held)),
            false if grows => _ = Linux.install_guard(end, bytes),
            false => _ = Linux.remove_guard(end, bytes),
        }
        changed
    }
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
    let [source, target] = [from, to].map(SliceRef::pointer);
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

/// Usable bytes of the large block at `address`, between guards or not; aborts if it does not start
/// there.
pub fn bytes(call: Call, place: &SliceRef<'_>, address: usize) -> usize {
    large::bytes(call, place, lead_of(place), address)
}

/// Takes back a large block, between guards or not.
pub(super) fn free(place: &SliceRef<'static>, address: usize) {
    if !is_fenced(place) {
        return large::free(place, address, 0);
    }
    let bytes = bytes(Call::Free, place, address);
    large::unpublish(place, Tag::FENCED, address);
    large::take_back(place, open_up(place, bytes), 0);
}

/// Makes a freed block inaccessible while it waits, or at least zero. What the program mapped over
/// it is the program's, and stays as it is: the span is mapped afresh when it is taken back.
pub fn shut(place: &SliceRef<'static>) {
    if place.is_overmapped() {
        return;
    }
    let (note, bytes, is_fenced) = (Note::of(place), place.bytes(), is_fenced(place));
    let pages = bytes.next_multiple_of(Linux.page_bytes());
    if is_fenced && note.has(SHUT) {
        return;
    }
    // SAFETY: a freed block, of whole pages, in the span.
    unsafe {
        let block = place.pointer().add(lead_of(place));
        if is_fenced && note.has(ADVISED) {
            if Linux.install_guard(block, pages).is_ok() {
                return Note(note.0 | SHUT).set(place);
            }
            // The kernel may have installed guards up to a page that the program locked.
            let _ = Linux.remove_guard(block, pages);
        }
        if HEAP.measures().has(Measures::ZERO) && !HEAP.pages.purge_in_use(block, pages) {
            block.as_ptr().write_bytes(0, bytes);
        }
    }
}

/// Removes all guards of a span whose block was freed. Returns what was written to the span.
fn open_up(place: &SliceRef<'static>, bytes: usize) -> Dirty {
    let (note, page) = (Note::of(place), Linux.page_bytes());
    let (base, whole) = (place.pointer(), place.slices() * SLICE_BYTES);
    // SAFETY: of the span, which no thread uses.
    unsafe {
        if note.has(ADVISED) {
            let _ = Linux.remove_guard(base, whole);
        }
        if note.has(MAPPINGS) {
            MAPPED.fetch_sub(1, Relaxed);
            let guards = [note.lead() - page, note.lead() + bytes];
            if guards.map(|at| Linux.commit(base.add(at), page).is_ok()) != [true; 2] {
                // The process may have no more writable memory. Then the span is mapped afresh, or
                // no one gets it.
                mapped_over::note(place.slice_base(), whole);
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
