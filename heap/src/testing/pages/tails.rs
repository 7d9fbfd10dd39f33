//! Tails of spans in use, on the fake system.

use super::{heap, large};
use crate::base::policy::Scope;
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Dirty, PageHeap, Span, Use, Zero};
use core::ptr::{NonNull, from_ref};
use std::boxed::Box;
use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;
const TAG: u8 = 7;

/// A block of two slices in a span that was dirty throughout, which ends `pages` pages before the
/// span does.
fn block_with_tail(heap: &PageHeap<Fake>, pages: usize) -> Span<'_> {
    let before = large(heap, 2).unwrap();
    // SAFETY: the span is ours.
    unsafe {
        before.base.write_bytes(0x5a, 2 * SLICE_BYTES);
        heap.os().touch(before.base, 2 * SLICE_BYTES);
        heap.free(before.base, Dirty::All);
    }
    let bytes = 2 * SLICE_BYTES - pages * PAGE;
    let block = heap.alloc(2, 1, Use::Large, bytes).unwrap();
    assert_eq!(block.base, before.base);
    // SAFETY: the span is ours.
    unsafe { block.place.set_tag(TAG) };
    block
}

fn with_tail(pages: usize) -> (Box<PageHeap<Fake>>, NonNull<u8>) {
    let heap = heap(Conditions::default());
    let base = block_with_tail(&heap, pages).base;
    (heap, base)
}

/// The first byte of each page of the block's span.
fn first_bytes(base: NonNull<u8>) -> Vec<u8> {
    let read = |page: usize| {
        // SAFETY: pages of a span that the test holds.
        unsafe { base.add(page * PAGE).read() }
    };
    (0..2 * SLICE_BYTES / PAGE).map(read).collect()
}

#[test]
fn what_is_beyond_the_bytes_goes_at_the_second_sweep_and_no_page_before() {
    for pages in [1, 9, 15] {
        let (heap, base) = with_tail(pages);
        assert_eq!(heap.purge_tails(Scope::Idle, TAG), 0);
        assert_eq!(heap.purge_tails(Scope::Idle, TAG), pages * PAGE);
        let contents = first_bytes(base);
        let (used, tail) = contents.split_at(32 - pages);
        assert!(used.iter().all(|&byte| byte == 0x5a) && tail.iter().all(|&byte| byte == 0));
        assert_eq!(heap.locked().inner.tail_pages, 0);
        assert_eq!(heap.check(), Ok(()));
        // Of what was freed, the tail is clean.
        // SAFETY: the span is ours.
        unsafe { heap.free(base, Dirty::Prefix(2 * SLICE_BYTES - pages * PAGE)) };
        assert_eq!(heap.totals().free_dirty, (32 - pages) * PAGE);
    }
}

#[test]
fn a_page_that_is_partly_used_stays() {
    let (heap, base) = with_tail(3);
    // SAFETY: the span is ours.
    unsafe { heap.set_bytes(base, 2 * SLICE_BYTES - 3 * PAGE + 1, Dirty::AsBefore) };
    assert_eq!(heap.purge_tails(Scope::All, TAG), 2 * PAGE);
    assert_eq!(first_bytes(base)[28..], [0x5a, 0x5a, 0, 0]);
}

#[test]
fn a_block_that_changes_between_two_sweeps_is_seen_anew() {
    let (heap, base) = with_tail(3);
    assert_eq!(heap.purge_tails(Scope::Idle, TAG), 0);
    // SAFETY: the span is ours.
    unsafe { heap.set_bytes(base, 2 * SLICE_BYTES - 5 * PAGE, Dirty::AsBefore) };
    assert_eq!(heap.purge_tails(Scope::Idle, TAG), 0);
    assert_eq!(heap.purge_tails(Scope::Idle, TAG), 5 * PAGE);
}

#[test]
fn a_block_that_got_shorter_has_a_tail() {
    let heap = heap(Conditions::default());
    let base = large(&heap, 20).unwrap();
    // SAFETY: the span is ours.
    unsafe {
        base.place.set_tag(TAG);
        let bytes = 2 * SLICE_BYTES - 4 * PAGE;
        heap.shrink_in_place(base.base, 2, bytes, Dirty::All);
    }
    assert_eq!(heap.purge_tails(Scope::All, TAG), 4 * PAGE);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_block_that_grows_over_its_tail_finds_it_clean() {
    let (heap, base) = with_tail(6);
    assert_eq!(heap.purge_tails(Scope::All, TAG), 6 * PAGE);
    // SAFETY: the span is ours, and its pages are committed.
    unsafe {
        assert!(heap.grow_in_place(base, 3, 3 * SLICE_BYTES).is_some());
        heap.zero_dirty(base, 3 * SLICE_BYTES);
        base.add(2 * SLICE_BYTES - PAGE).write(1);
    }
    assert_eq!(heap.totals().zeroing.written, 26 * PAGE);
    assert_eq!(heap.purge_tails(Scope::All, TAG), 0);
    // SAFETY: the span is ours.
    unsafe { heap.free(base, Dirty::Prefix(3 * SLICE_BYTES)) };
    assert_eq!(
        (heap.totals().free_dirty, heap.check()),
        (48 * PAGE, Ok(()))
    );
}

#[test]
fn sweeps_come_to_rest() {
    let heap = heap(Conditions {
        most_reserved: 256 << 20,
        ..Conditions::default()
    });
    assert!(!heap.has_tails(Scope::All));
    let room = large(&heap, 1000).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(room.base, Dirty::All) };
    let blocks = (0..400).map(|_| heap.alloc(1, 1, Use::Large, SLICE_BYTES - PAGE).unwrap());
    for (number, block) in blocks.enumerate() {
        // Every second one is no block that a sweep knows.
        // SAFETY: the span is ours.
        unsafe { block.place.set_tag(TAG + number as u8 % 2) };
    }
    assert!(heap.has_tails(Scope::Idle), "400 pages of 6,400");
    heap.os().set_locked(true);
    assert!(!heap.has_tails(Scope::Idle) && !heap.has_tails(Scope::All));
    heap.os().set_locked(false);
    heap.limits().set_kept(usize::MAX);
    assert!(!heap.has_tails(Scope::Idle) && heap.has_tails(Scope::All));
    heap.limits().set_kept(0);
    heap.os().fail(Call::Purge, 3, 1);
    let purged = [(); 2].map(|()| heap.purge_tails(Scope::Idle, TAG));
    assert_eq!(purged, [0, 199 * PAGE], "all but the refused one");
    assert!(!heap.has_tails(Scope::All));
}

#[test]
fn what_is_not_the_heaps_alone_is_left() {
    let (heap, base) = with_tail(3);
    heap.note_mapped_over(base.addr().get(), PAGE, |_, _| {});
    assert_eq!(heap.purge_tails(Scope::All, TAG), 0);
    let (heap, base) = with_tail(3);
    heap.locate(base.addr().get()).unwrap().take_tag();
    assert_eq!(heap.purge_tails(Scope::All, TAG), 0);
    let (heap, base) = with_tail(3);
    let other = large(&heap, 2).unwrap();
    // SAFETY: both spans are ours.
    unsafe { heap.move_pages(other.base, base, PAGE, 1) }.unwrap();
    assert_eq!(heap.purge_tails(Scope::All, TAG), 0);
    assert_eq!(heap.check(), Ok(()));
}

/// Whether `change` of a block, made by another thread while the block's tail is on its way to the
/// kernel, ends before the kernel has answered.
fn is_early(change: impl FnOnce(&PageHeap<Fake>, NonNull<u8>) + Send) -> bool {
    let (heap, base) = with_tail(4);
    let (heap, address) = (&*heap, base.as_ptr().expose_provenance());
    let gate = heap.os().stop_purges();
    let early = thread::scope(|scope| {
        scope.spawn(|| heap.purge_tails(Scope::All, TAG));
        while !heap.os().is_purging() {
            thread::yield_now();
        }
        let changer = scope.spawn(move || {
            let base = core::ptr::with_exposed_provenance_mut(address);
            change(heap, NonNull::new(base).expect("not null"));
            heap.os().is_purging()
        });
        thread::sleep(Duration::from_millis(100));
        drop(gate);
        changer.join().unwrap()
    });
    assert!(heap.locked().inner.tail.is_null());
    assert_eq!(heap.check(), Ok(()));
    early
}

#[test]
fn a_free_waits_for_the_tail() {
    // SAFETY: the span is the test's.
    assert!(!is_early(|heap, base| unsafe {
        heap.free(base, Dirty::All)
    }));
}

#[test]
fn a_new_end_within_the_last_slice_waits_for_the_tail() {
    // SAFETY: the span is the test's.
    assert!(!is_early(|heap, base| unsafe {
        heap.set_bytes(base, 2 * SLICE_BYTES, Dirty::AsBefore);
        // Not purged any more.
        base.add(2 * SLICE_BYTES - PAGE).write(1);
    }));
}

#[test]
fn growth_waits_for_the_tail() {
    // SAFETY: the span is the test's.
    let grow = |heap: &PageHeap<Fake>, base| unsafe {
        assert!(heap.grow_in_place(base, 3, 3 * SLICE_BYTES).is_some());
    };
    assert!(!is_early(grow));
}

#[test]
fn a_shorter_block_waits_for_the_tail() {
    // SAFETY: the span is the test's.
    assert!(!is_early(|heap, base| unsafe {
        heap.shrink_in_place(base, 1, SLICE_BYTES, Dirty::All);
    }));
}

#[test]
fn a_new_mapping_waits_for_the_tail() {
    assert!(!is_early(|heap, base| {
        heap.note_mapped_over(base.addr().get(), PAGE, |_, _| {});
        // SAFETY: the span is the test's.
        unsafe { heap.free(base, Dirty::All) };
    }));
}

#[test]
fn other_blocks_wait_for_no_tail() {
    assert!(is_early(|heap, _| {
        let other = large(heap, 2).unwrap();
        // SAFETY: the span is ours.
        unsafe { heap.free(other.base, Dirty::All) };
    }));
}

/// In a fork's child, the thread that was purging it never comes back.
#[test]
fn a_tail_whose_purge_stayed_in_the_parent_holds_up_no_one() {
    let (heap, base) = with_tail(4);
    let place = heap.locate(base.addr().get()).unwrap();
    heap.locked().inner.tail = from_ref(place.record());
    // SAFETY: the span is ours.
    unsafe { heap.free(base, Dirty::All) };
    assert!(heap.locked().inner.tail.is_null());
    assert_eq!(large(&heap, 2).unwrap().zero, Zero::MaybeDirty);
}
