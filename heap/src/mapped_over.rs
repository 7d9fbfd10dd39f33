//! Blocks that the program mapped something over.
//!
//! A program may map a file or shared memory over pages of its block, or let another process fill
//! them (userfaultfd), and free the block. What is mapped there is not the heap's: if the next
//! owner of the block wrote to it, the file would change, or the memory of a forked child. So these
//! pages are mapped afresh when the block is freed.
//!
//! The page heap marks the spans in use that a mapping touches, and maps such a span afresh when it
//! is freed. That suffices for large blocks. A slab becomes free long after its blocks, so it also
//! gets [`Tag::MAPPED`]. No magazine has this tag, so each `free` of a block of the slab takes the
//! slow path, which maps the block's own pages afresh. The tag stays until the slab is empty.
//!
//! The pool of guarded blocks is a span that is never freed; there it is the pool that asks.

use crate::base::sync::{AtomicBool, Ordering};
use crate::cache::heap::HEAP;
use crate::cache::magazine::Tag;
use crate::harden;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::Use;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr::NonNull;

/// Whether any slab was marked: all that a slow path reads in most processes.
static SLABS: AtomicBool = AtomicBool::new(false);
/// Whether any memory was marked that is neither a block nor a slab of blocks.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// Notes that the program mapped something of its own over `bytes` bytes at `address`, or fills
/// these pages itself. They are mapped afresh when the blocks that have them, which are the
/// caller's, are freed. Takes no lock.
pub fn note(address: usize, bytes: usize) {
    HEAP.pages
        .note_mapped_over(address, bytes, |place, use_| match use_ {
            Use::Slab => {
                // Before the tag, by which other threads come here.
                SLABS.store(true, Ordering::Release);
                // SAFETY: a slab of which a block is the caller's, so it stays one.
                unsafe { place.set_tag(Tag::MAPPED.byte()) };
            }
            Use::Meta => OTHERS.store(true, Ordering::Relaxed),
            Use::Large | Use::Stack => {}
        });
}

/// What became of the pages of a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// They are the heap's.
    Own,
    /// They were mapped afresh, and read as zero.
    Renewed,
    /// The kernel refuses to map them afresh, so no one may have the block.
    Refused,
}

/// Makes the pages of a slab's block the heap's again.
///
/// # Safety
/// - The program frees the block of `class` at `address`, and nothing uses it any more.
#[inline]
pub(crate) unsafe fn restore(address: usize, slab: &Slab, class: Class) -> Pages {
    match SLABS.load(Ordering::Acquire) {
        false => Pages::Own,
        // SAFETY: the caller's promise.
        true => unsafe { restore_marked(address, slab, class) },
    }
}

/// [`restore`] in a process that has marked slabs.
///
/// # Safety
/// - As [`restore`].
#[cold]
#[inline(never)]
unsafe fn restore_marked(address: usize, slab: &Slab, class: Class) -> Pages {
    let place = HEAP.pages.locate(address);
    let is_marked = place.is_some_and(|place| place.tag() == Tag::MAPPED.byte());
    let number = class.block_at(address - slab.base());
    // What is not the start of a block in use is the caller's to report.
    let in_use = number.is_some_and(|number| !slab.is_free(class, number));
    if !is_marked || !in_use {
        return Pages::Own;
    }
    match harden::bytes_in_use(address, class) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { renew(address, bytes) },
        None => Pages::Own,
    }
}

/// Maps the whole pages of a block afresh.
///
/// # Safety
/// - A block of so many bytes starts there, in a span in use, and nothing uses it any more.
unsafe fn renew(address: usize, bytes: usize) -> Pages {
    let page = Linux.page_bytes();
    let (from, to) = (
        address.next_multiple_of(page),
        (address + bytes) / page * page,
    );
    let Some(start) = NonNull::new(from as *mut u8).filter(|_| from < to) else {
        return Pages::Own;
    };
    // SAFETY: the caller's promise: these pages are the block's alone.
    match unsafe { HEAP.pages.renew_in_use(start, to - from) } {
        true => Pages::Renewed,
        false => Pages::Refused,
    }
}

/// Makes a page of the pool of guarded blocks the heap's again, if the program may have mapped
/// something over it. False if the kernel refuses: then no one may have the page.
///
/// # Safety
/// - A page of the pool that nothing uses.
pub unsafe fn restore_guarded(page: NonNull<u8>) -> bool {
    // SAFETY: the caller's promise; the pool is a span in use.
    !OTHERS.load(Ordering::Relaxed) || unsafe { HEAP.pages.renew_in_use(page, Linux.page_bytes()) }
}
