//! The page heap on the real kernel.

use super::{ends, large};
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::child::{Limit, succeeds};
use crate::os::linux::Linux;
use crate::pages::{Dirty, PageHeap, Sides, Tables, Zero};
use core::ptr::NonNull;
use std::boxed::Box;
use std::vec::Vec;

fn heap() -> Box<PageHeap<Linux>> {
    let tables = Box::leak(Box::new(Tables::new()));
    // SAFETY: new tables.
    Box::new(unsafe { PageHeap::new(Linux, Sides { near: 64, far: 64 }, tables) })
}

#[test]
fn pages_said_to_be_zero_are() {
    let heap = heap();
    for round in 0..4 {
        let spans: Vec<_> = (1..60)
            .map(|slices| large(&heap, slices).unwrap())
            .collect();
        for span in &spans {
            for page in 0..span.slices * (SLICE_BYTES / Linux.page_bytes()) {
                let dirty = span.zero == Zero::MaybeDirty;
                for word in ends(span.place, page, Linux.page_bytes()) {
                    // SAFETY: pages of a span that is ours.
                    unsafe {
                        assert!(dirty || *word == 0);
                        *word = 1;
                    }
                }
            }
        }
        for span in spans {
            // SAFETY: the span is ours.
            unsafe { heap.free(span.base, Dirty::All) };
        }
        assert_eq!(heap.check(), Ok(()));
        if round % 2 == 1 {
            assert!(heap.purge_all() > 0);
            assert_eq!(heap.totals().free_dirty, 0);
        }
    }
}

#[test]
fn an_arena_ends_where_the_program_mapped_something() {
    let heap = heap();
    let first = large(&heap, 1).unwrap();
    let ahead = first.base.as_ptr().wrapping_add(200 << 20).cast();
    let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a wish for a new mapping, which takes nothing from others.
    let theirs = unsafe { libc::mmap(ahead, 4096, access, flags, -1, 0) };
    assert_eq!(theirs, ahead, "the heap does not reserve what it may need");
    let spans: Vec<_> = (0..30).map(|_| large(&heap, 160).unwrap()).collect();
    assert_eq!((heap.totals().arenas, heap.check()), (2, Ok(())));
    for span in spans.iter().chain([&first]) {
        // SAFETY: the spans are ours, and written to from end to end.
        unsafe {
            let bytes = span.slices * SLICE_BYTES;
            span.base.as_ptr().write_bytes(1, bytes);
            heap.free(span.base, Dirty::All);
        }
    }
    heap.purge_all();
    // SAFETY: the mapping made above.
    unsafe {
        assert_eq!(theirs.cast::<u8>().read(), 0);
        libc::munmap(theirs, 4096);
    }
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn moved_pages_keep_their_contents_and_leave_zeros() {
    let heap = heap();
    let (from, to) = (large(&heap, 8).unwrap(), large(&heap, 9).unwrap());
    // SAFETY: both spans are ours.
    unsafe {
        from.base.as_ptr().write_bytes(3, 8 * SLICE_BYTES);
        if heap
            .move_pages(from.base, to.base, 8 * SLICE_BYTES, 1)
            .is_err()
        {
            // Before Linux 5.7 the caller copies.
            return;
        }
        assert_eq!(
            [to.base.read(), to.base.add(8 * SLICE_BYTES - 1).read()],
            [3, 3]
        );
        assert_eq!(
            [from.base.read(), to.base.add(8 * SLICE_BYTES).read()],
            [0, 0]
        );
        heap.free(from.base, Dirty::Prefix(from.place.bytes()));
    }
    assert_eq!((heap.totals().free_dirty, heap.check()), (0, Ok(())));
}

/// Allocates until refused, frees all, and allocates as much again. Keeps spans in a list through
/// their first words, because it must not allocate.
fn exhaust_twice(heap: &PageHeap<Linux>, slices: usize) -> bool {
    let mut counts = [0; 2];
    for count in &mut counts {
        let mut list: Option<NonNull<Option<NonNull<u8>>>> = None;
        while let Some(span) = large(heap, slices) {
            let first = span.base.cast();
            // SAFETY: the first words of a span that is ours.
            unsafe { first.write(list.map(NonNull::cast)) };
            list = Some(first);
            *count += 1;
        }
        while let Some(first) = list {
            // SAFETY: written above; the span is ours, and this is its only free.
            list = unsafe { first.read() }.map(NonNull::cast);
            // SAFETY: as above.
            unsafe { heap.free(first.cast(), Dirty::All) };
        }
    }
    counts[0] > 0 && counts[0] == counts[1] && heap.check().is_ok()
}

#[test]
fn a_limited_address_space_is_used_up_and_again() {
    let heap = heap();
    for slices in [1, 7, 40] {
        let limit = Limit::MoreAddresses(64 << 20);
        assert!(succeeds(limit, || {
            exhaust_twice(&heap, slices) && heap.totals().peak >= 48 << 20
        }));
    }
}

#[test]
fn limited_data_is_used_up_and_again() {
    // What other tests hold when the child is made counts as the child's.
    let (bytes, heap) = (64 << 20, heap());
    let beside = Linux.reserve(bytes, SLICE_BYTES).unwrap();
    // SAFETY: a reservation of ours.
    unsafe { Linux.commit(beside, bytes).unwrap() };
    for slices in [1, 40] {
        assert!(succeeds(Limit::MoreData(bytes as u64), || {
            exhaust_twice(&heap, slices) && heap.totals().peak >= bytes / 4 * 3
        }));
    }
    // SAFETY: the whole reservation, which no thread uses.
    unsafe { Linux.unmap(beside, bytes) };
}

#[test]
fn everything_locked() {
    let heap = heap();
    let works = || {
        let Some(span) = large(&heap, 20) else {
            return true;
        };
        // SAFETY: the span is ours.
        unsafe {
            span.base.as_ptr().write_bytes(1, 20 * SLICE_BYTES);
            heap.free(span.base, Dirty::All);
        }
        heap.purge_all();
        let again = large(&heap, 20);
        // SAFETY: as above.
        again.is_some_and(|span| span.zero == Zero::MaybeDirty || unsafe { span.base.read() == 0 })
    };
    assert!(succeeds(Limit::Locked, works) || !succeeds(Limit::Locked, || true));
}

/// Two threads near the hard limit: the pages that are in the way of one are being purged by the
/// other.
#[test]
fn a_request_is_granted_when_another_thread_made_room_for_it() {
    let heap = heap();
    let (first, wall) = (large(&heap, 64).unwrap(), large(&heap, 1));
    // SAFETY: the span is ours; nothing was written to it, but it counts as if.
    unsafe { heap.free(first.base, Dirty::All) };
    heap.limits().set_hard(97 * SLICE_BYTES);
    let purging = heap.purging.lock();
    std::thread::scope(|scope| {
        // It has to wait for the purge; if it comes too late for that, it is granted at once.
        let request = scope.spawn(|| large(&heap, 80).map(|span| span.slices));
        std::thread::sleep(std::time::Duration::from_millis(100));
        heap.limits().set_hard(usize::MAX);
        let dirty = large(&heap, 64).unwrap();
        // SAFETY: the span is ours.
        unsafe { heap.free(dirty.base, Dirty::Zeroed) };
        heap.limits().set_hard(97 * SLICE_BYTES);
        drop(purging);
        assert_eq!(request.join().unwrap(), Some(80));
    });
    assert!(wall.is_some());
}
