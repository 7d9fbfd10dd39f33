//! What a thread gets while another one purges, on the fake system.

use super::{heap, large};
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Dirty, PageHeap, SpanSource, Use};
use core::ptr::NonNull;
use std::boxed::Box;
use std::thread;
use std::time::Duration;

/// A heap in which 64 slices are free and dirty, and the slice after them is in use.
fn with_free_slices() -> Box<PageHeap<Fake>> {
    let heap = heap(Conditions::default());
    let (free, wall) = (large(&heap, 64).unwrap(), large(&heap, 1));
    // SAFETY: the span is ours.
    unsafe { heap.free(free.base, Dirty::All) };
    assert!(wall.is_some());
    heap
}

/// The result of `request`, which another thread makes while a purge of all free pages waits in the
/// kernel. The purge continues when the request waits for it. If the request does not wait, or
/// comes too late, the result shows it.
fn during_a_purge<T: Send>(heap: &PageHeap<Fake>, request: impl FnOnce() -> T + Send) -> T {
    let gate = heap.os().stop_purges();
    thread::scope(|scope| {
        scope.spawn(|| heap.purge_all());
        while !heap.os().is_purging() {
            thread::yield_now();
        }
        let answer = scope.spawn(request);
        thread::sleep(Duration::from_millis(100));
        drop(gate);
        answer.join().unwrap()
    })
}

#[test]
fn a_request_gets_the_only_room_there_is_when_its_purge_ends() {
    let heap = heap(Conditions::default());
    let only = large(&heap, 64).unwrap();
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    while large(&heap, 1).is_some() {}
    // SAFETY: the span is ours.
    unsafe { heap.free(only.base, Dirty::All) };
    let granted = during_a_purge(&heap, || large(&heap, 60).is_some());
    assert!(granted, "refused while its room was purged");
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn pages_count_against_the_hard_limit_while_they_are_purged() {
    let heap = with_free_slices();
    heap.limits().set_hard(96 * SLICE_BYTES);
    let granted = during_a_purge(&heap, || large(&heap, 80).map(|_| heap.os().is_purging()));
    assert_eq!(granted, Some(false), "granted while 64 slices are purged");
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_request_for_resident_pages_waits_for_no_purge() {
    let heap = with_free_slices();
    let answered = during_a_purge(&heap, || {
        let resident = heap.alloc_untended(SpanSource::Resident, 1, 1, Use::Slab, 1, 0);
        (resident.is_none(), heap.os().is_purging())
    });
    assert_eq!(answered, (true, true));
}

/// A realloc of a large block that cannot grow in place moves it. That must not wait for the
/// kernel.
#[test]
fn a_block_that_cannot_grow_in_place_waits_for_no_purge() {
    let heap = with_free_slices();
    let (block, wall) = (large(&heap, 4).unwrap(), large(&heap, 80));
    assert!(wall.is_some());
    let address = block.base.as_ptr().expose_provenance();
    let answered = during_a_purge(&heap, || {
        let base = core::ptr::with_exposed_provenance_mut(address);
        let base = NonNull::new(base).expect("not null");
        // SAFETY: the span is ours.
        let grown = unsafe { heap.grow_in_place(base, 8, 8 * SLICE_BYTES) };
        (grown.is_none(), heap.os().is_purging())
    });
    assert_eq!(answered, (true, true));
}

/// In a fork's child a piece that another thread had set aside never comes back.
#[test]
fn a_request_is_refused_though_a_piece_never_comes_back() {
    let heap = with_free_slices();
    heap.locked().inner.aside += 1;
    heap.limits().set_hard(66 * SLICE_BYTES);
    assert!(large(&heap, 70).is_none());
}
