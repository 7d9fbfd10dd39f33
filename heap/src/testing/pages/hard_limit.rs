//! The hard limit: what counts, what comes back, and what is refused.

use super::bounds::{MIB, free, roomy, slab};
use super::large;
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};
use crate::base::units::SLICE_BYTES;
use crate::pages::{Age, Dirty, SpanSource, Use};
use std::thread;
use std::vec::Vec;

#[test]
fn over_the_hard_limit_nothing_is_had() {
    let heap = roomy();
    heap.limits().set_hard(MIB);
    let spans: Vec<_> = core::iter::from_fn(|| large(&heap, 4)).collect();
    assert_eq!(spans.len(), 4);
    // A stack counts as the bytes that it most likely touches.
    assert!(heap.alloc(1, 1, Use::Stack, SLICE_BYTES).is_none());
    free(&heap, spans[0], Dirty::All);
    assert!(heap.alloc(1, 1, Use::Stack, SLICE_BYTES).is_some());
    assert!(large(&heap, 4).is_none());
    assert!(large(&heap, 3).is_some());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn free_pages_give_way_before_the_hard_limit_refuses() {
    let heap = roomy();
    heap.limits().set_hard(4 * MIB);
    let (first, wall) = (large(&heap, 40).unwrap(), large(&heap, 1).unwrap());
    free(&heap, first, Dirty::All);
    // The request does not fit into the free span, so both would be resident.
    let longer = large(&heap, 50).unwrap();
    let held = heap.footprint();
    assert!(held.total() <= 4 * MIB, "{held:?}");
    // Growing is bounded as well.
    // SAFETY: the test's own span.
    assert!(unsafe { heap.grow_in_place(longer.base, 80, 80 * SLICE_BYTES) }.is_none());
    free(&heap, wall, Dirty::AsBefore);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn dirty_pages_that_a_request_takes_over_count_once() {
    let heap = roomy();
    heap.limits().set_hard(4 * MIB);
    let (first, wall) = (large(&heap, 40).unwrap(), large(&heap, 1).unwrap());
    heap.os().set_locked(true);
    free(&heap, first, Dirty::All);
    for slices in [40, 38, 32] {
        let again = large(&heap, slices).unwrap();
        assert_eq!(again.base, first.base);
        free(&heap, again, Dirty::All);
    }
    assert!(
        heap.alloc(40, 1, Use::Stack, 1).is_some(),
        "a stack counts as 8 KiB"
    );
    // Uses the free slices before the frontier, and more behind it.
    let last = large(&heap, 20).unwrap();
    free(&heap, last, Dirty::All);
    let longer = large(&heap, 60).unwrap();
    assert_eq!(longer.base, last.base);
    assert!(wall.slices == 1 && large(&heap, 4).is_none());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn pages_that_move_count_once() {
    let heap = roomy();
    heap.limits().set_hard(4 * MIB);
    let to = |slices: usize| {
        heap.alloc_untended(
            SpanSource::Any,
            slices,
            1,
            Use::Large,
            slices * SLICE_BYTES,
            40 * SLICE_BYTES,
        )
    };
    let (from, wall) = (large(&heap, 40).unwrap(), large(&heap, 4).unwrap());
    assert!(to(61).is_none());
    let longer = to(50).unwrap();
    assert_eq!(longer.absent, 40 * SLICE_BYTES);
    assert_eq!(heap.footprint().used, 54 * SLICE_BYTES);
    // If the block is copied instead, both copies are resident.
    assert!(!heap.readmit(longer.absent));
    // SAFETY: the test's own spans.
    unsafe {
        heap.move_pages(from.base, longer.base, 40 * SLICE_BYTES, 1)
            .unwrap();
        heap.free_untended(from.base, Dirty::AsBefore, Age::New, longer.absent);
    }
    assert_eq!(heap.footprint().used, 54 * SLICE_BYTES);
    assert_eq!(heap.footprint().dirty, 0);
    // Dirty pages in the new place make room for the moved ones.
    free(&heap, wall, Dirty::All);
    assert!(large(&heap, 14).is_some() && large(&heap, 1).is_none());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn what_slabs_keep_away_does_not_count() {
    let heap = roomy();
    let _slab = slab(&heap).unwrap();
    heap.count_absent(3 * 4096);
    assert_eq!(heap.footprint().used, SLICE_BYTES - 3 * 4096);
    heap.count_absent(-3 * 4096);
    assert_eq!(heap.footprint().used, SLICE_BYTES);
}

#[test]
fn what_slabs_kept_away_comes_back_within_the_hard_limit() {
    let heap = roomy();
    heap.limits().set_hard(MIB);
    let slabs = [(); 8].map(|()| slab(&heap).unwrap());
    heap.count_absent(4 * 61440);
    let others: Vec<_> = core::iter::from_fn(|| large(&heap, 1)).collect();
    assert_eq!(others.len(), 8 + 3);
    assert!(heap.readmit(49152), "there is room for twelve pages");
    let held = heap.footprint();
    assert!(!heap.readmit(4096));
    assert_eq!(heap.footprint(), held, "and for no more");
    // Free dirty pages make room.
    free(&heap, others[0], Dirty::All);
    assert!(heap.readmit(61440) && heap.footprint().total() <= MIB);
    assert!(slabs.len() == 8 && large(&heap, 1).is_none());
}

#[test]
fn threads_together_stay_within_the_hard_limit() {
    const KEPT_AWAY: usize = SLICE_BYTES - 4096;
    let (heap, resident) = (roomy(), AtomicUsize::new(0));
    heap.limits().set_hard(3 * SLICE_BYTES);
    let grows = |bytes| {
        let all = resident.fetch_add(bytes, Relaxed) + bytes;
        assert!(all <= 3 * SLICE_BYTES, "{all} bytes");
    };
    let shrinks = |bytes| resident.fetch_sub(bytes, Relaxed);
    let turn = || {
        let Some(span) = slab(&heap) else { return };
        grows(SLICE_BYTES);
        shrinks(KEPT_AWAY);
        heap.count_absent(KEPT_AWAY as isize);
        thread::yield_now();
        if heap.readmit(KEPT_AWAY) {
            grows(KEPT_AWAY);
            shrinks(SLICE_BYTES);
        } else {
            shrinks(4096);
            heap.count_absent(-(KEPT_AWAY as isize));
        }
        free(&heap, span, Dirty::All);
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|_| turn()));
        }
    });
    assert_eq!(heap.check(), Ok(()));
    assert_eq!(resident.load(Relaxed), 0);
}
