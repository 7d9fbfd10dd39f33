//! Blocks that the program mapped something over.
//!
//! A program may map a file or shared memory over pages of its block, or let another process fill
//! them (userfaultfd), and then free the block. If the next owner of the block wrote to these
//! pages, it would change the file, or the memory of a forked child. Or the program may have
//! advised the kernel to leave the pages out of children. So Neap maps the pages afresh when the
//! program frees the block.
//!
//! The page heap marks the spans in use that a mapping touches, and maps such a span afresh when it
//! is freed. That suffices for large blocks. A slab, however, may become free long after one of its
//! blocks. So the slab's record notes the pages, and its slice gets [`Tag::MAPPED`]. No magazine
//! has this tag, so each `free` of a block of the slab takes the slow path, which maps the noted
//! pages of the block afresh. The tag stays until the slab is empty. Blocks that are too small for
//! a whole page need none of this, because a program that may map something over their page owns
//! all blocks on it.
//!
//! The span of the pool of guarded blocks is never freed. So the pool calls [`restore_guarded`] for
//! each of its pages.

use crate::base::sync::{AtomicBool, Ordering};
use crate::base::units::SLICE_BYTES;
use crate::cache::heap::{HEAP, class_of, slab_of};
use crate::cache::magazine::Tag;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{SliceRef, Use};
use crate::slab::Slab;
use crate::slab::class::Class;
use crate::slab::page_set::PageSet;
use core::ops::Range;
use core::ptr::NonNull;

/// Whether pages of any slab were noted. In most processes, a slow path reads only this.
static SLABS: AtomicBool = AtomicBool::new(false);
/// Whether any memory was marked that is neither a block nor a slab of blocks.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// Notes that the program mapped something of its own over `bytes` bytes at `address`, or fills
/// these pages itself. The blocks on them are the caller's. When the program frees these blocks,
/// Neap maps the pages afresh. Takes no lock.
pub fn note(address: usize, bytes: usize) {
    let range = address..address.saturating_add(bytes);
    HEAP.pages
        .note_mapped_over(address, bytes, |place, use_| match use_ {
            Use::Slab => note_slab(&place, range.clone()),
            Use::Meta => OTHERS.store(true, Ordering::Relaxed),
            Use::Large | Use::Stack => {}
        });
}

/// Notes the pages of a slab that are in `range`, if its blocks have whole pages.
fn note_slab(place: &SliceRef<'_>, range: Range<usize>) {
    let (base, page) = (place.slice_base(), Linux.page_bytes());
    let Some(class) = class_of(place).filter(|class| class.bytes() >= page) else {
        return;
    };
    let (from, to) = (
        range.start.saturating_sub(base),
        (range.end - base).min(SLICE_BYTES),
    );
    slab_of(place).note_mapped_over(PageSet::touched_by(from..to));
    // Before the tag, by which other threads come here.
    SLABS.store(true, Ordering::Release);
    // SAFETY: `class_of` finds the class of a slab with the new tag, too, whosever slab it is.
    unsafe { place.change_tag(Tag::of(class).byte(), Tag::MAPPED.byte()) };
}

/// Whether a free has to [restore] what may be a slab's block.
#[inline(always)]
pub(crate) fn is_noted() -> bool {
    SLABS.load(Ordering::Acquire)
}

/// Maps the noted pages of a slab's block afresh, so that they are the heap's again. `held` is how
/// many bytes of the block the program has; `None`: it has none. False if the kernel refuses. Then
/// Neap must never hand out the block again.
///
/// # Safety
/// - The program frees the block of `class` at `address`, and nothing uses it any more.
#[cold]
#[inline(never)]
pub(crate) unsafe fn restore(
    address: usize,
    slab: &Slab,
    class: Class,
    held: Option<usize>,
) -> bool {
    let offset = address - slab.base();
    // What is not the start of a block in use is the caller's to report.
    let in_use = class
        .block_at(offset)
        .is_some_and(|number| !slab.is_free(class, number));
    let pages = held
        .filter(|_| in_use)
        .and_then(|bytes| whole_pages(offset, bytes));
    let Some(pages) = pages else {
        return true;
    };
    if slab
        .take_mapped_over(PageSet::touched_by(pages.clone()))
        .is_empty()
    {
        return true;
    }
    NonNull::new((slab.base() + pages.start) as *mut u8)
        // SAFETY: the caller's promise: these pages are the block's alone.
        .is_some_and(|start| unsafe { HEAP.pages.renew_in_use(start, pages.len()) })
}

/// The whole OS pages of `bytes` bytes at an offset in a slice, if there are any.
fn whole_pages(offset: usize, bytes: usize) -> Option<Range<usize>> {
    let page = Linux.page_bytes();
    let (from, to) = (
        offset.next_multiple_of(page),
        (offset + bytes) / page * page,
    );
    (from < to).then_some(from..to)
}

/// Maps a page of the pool of guarded blocks afresh, if the program may have mapped something over
/// it. False if the kernel refuses. Then Neap must never hand out the page again.
///
/// # Safety
/// - A page of the pool that nothing uses.
pub unsafe fn restore_guarded(page: NonNull<u8>) -> bool {
    // SAFETY: the caller's promise; the pool is a span in use.
    !OTHERS.load(Ordering::Relaxed) || unsafe { HEAP.pages.renew_in_use(page, Linux.page_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_pages_that_it_covers() {
        let page = Linux.page_bytes();
        assert_eq!(whole_pages(0, page - 1), None);
        assert_eq!(whole_pages(0, page), Some(0..page));
        assert_eq!(whole_pages(16, 2 * page - 17), None);
        assert_eq!(whole_pages(16, 2 * page - 16), Some(page..2 * page));
        assert_eq!(
            whole_pages(3 * page, 2 * page + 1),
            Some(3 * page..5 * page)
        );
    }

    #[test]
    fn a_page_is_taken_once() {
        let slab = Slab::blank();
        slab.note_mapped_over(PageSet::touched_by(4096..12289));
        assert_eq!(slab.take_mapped_over(PageSet(0b0011)), PageSet(0b0010));
        assert_eq!(slab.take_mapped_over(PageSet(0b0011)), PageSet::NONE);
        assert_eq!(slab.take_mapped_over(PageSet(u16::MAX)), PageSet(0b1100));
    }
}
