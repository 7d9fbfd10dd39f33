//! One behaviour per test, on the fake system.

use super::{heap, large, purge_due};
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions};
use crate::pages::{Dirty, Use, Zero};
use core::ptr::NonNull;
use std::vec::Vec;

const MIB: usize = 1 << 20;

#[test]
fn starting_takes_few_system_calls() {
    let heap = heap(Conditions::default());
    assert_eq!(heap.locate(0x1000).map(|place| place.index), None);
    large(&heap, 1).unwrap();
    let calls = || [Call::Reserve, Call::Commit].map(|call| heap.os().calls(call));
    let first = calls();
    assert_eq!(first[1], 3, "tags, the first group, the first slices");
    large(&heap, 8).unwrap();
    assert_eq!(calls(), first);
}

#[test]
fn a_freed_span_is_dirty_until_purged() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 4).unwrap();
    assert_eq!(span.zero, Zero::AllZero);
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::Prefix(5000)) };
    let again = large(&heap, 4).unwrap();
    assert_eq!(
        (again.base, again.zero, again.place.dirty_mask()),
        (span.base, Zero::MaybeDirty, 0b11)
    );
    // SAFETY: the span is ours; nothing was written.
    unsafe { heap.free(again.base, Dirty::AsBefore) };
    assert_eq!(heap.purge_all(), 2 * 4096);
    assert_eq!(large(&heap, 4).unwrap().zero, Zero::AllZero);
}

#[test]
fn zeroing_writes_only_dirty_pages() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 2).unwrap();
    // SAFETY: the span is ours.
    unsafe {
        span.base.as_ptr().write_bytes(7, 2 * SLICE_BYTES);
        heap.free(span.base, Dirty::Prefix(2 * 4096));
        // Correctly informed about only two pages, so the others keep what was written.
        let again = large(&heap, 2).unwrap();
        heap.zero_dirty(again.base, 2 * SLICE_BYTES);
        let at = |offset: usize| again.base.add(offset).read();
        assert_eq!(
            [at(0), at(8191), at(8192), at(2 * SLICE_BYTES - 1)],
            [0, 0, 7, 7]
        );
    }
}

#[test]
fn zeroing_stops_at_the_bytes_asked_for() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 1).unwrap();
    // SAFETY: the span is ours.
    unsafe {
        span.base.as_ptr().write_bytes(7, SLICE_BYTES);
        heap.free(span.base, Dirty::All);
        let again = large(&heap, 1).unwrap();
        heap.zero_dirty(again.base, 5000);
        assert_eq!(
            [again.base.add(4999).read(), again.base.add(5000).read()],
            [0, 7]
        );
    }
}

#[test]
fn warm_spans_are_reused_before_cold_ones() {
    let heap = heap(Conditions::default());
    let spans: Vec<_> = (0..5).map(|_| large(&heap, 2).unwrap().base).collect();
    // SAFETY: the spans are ours; each is freed once.
    unsafe {
        heap.free(spans[1], Dirty::AsBefore);
        heap.free(spans[3], Dirty::All);
    }
    assert_eq!(large(&heap, 1).unwrap().base, spans[3]);
    assert_eq!(large(&heap, 2).unwrap().base, spans[1]);
}

#[test]
fn neighbours_merge_and_the_rest_stays_in_use() {
    let heap = heap(Conditions::default());
    let spans: Vec<_> = (0..4).map(|_| large(&heap, 3).unwrap().base).collect();
    // SAFETY: the spans are ours; each is freed once.
    unsafe {
        heap.free(spans[0], Dirty::All);
        heap.free(spans[2], Dirty::AsBefore);
        heap.free(spans[1], Dirty::All);
    }
    assert_eq!(heap.check(), Ok(()));
    let merged = large(&heap, 9).unwrap();
    assert_eq!((merged.base, merged.zero), (spans[0], Zero::MaybeDirty));
}

#[test]
fn free_pages_decay() {
    let heap = heap(Conditions::default());
    let (first, _wall, second) = (
        large(&heap, 2).unwrap(),
        large(&heap, 1),
        large(&heap, 2).unwrap(),
    );
    heap.os().advance(5000);
    // SAFETY: the span is ours.
    unsafe { heap.free(first.base, Dirty::All) };
    heap.os().advance(600);
    // SAFETY: the span is ours.
    unsafe { heap.free(second.base, Dirty::All) };
    assert_eq!(heap.totals().free_dirty, 4 * SLICE_BYTES);
    heap.os().advance(999);
    assert_eq!(purge_due(&heap), 0);
    heap.os().advance(1);
    assert_eq!(purge_due(&heap), 4 * SLICE_BYTES);
    let third = large(&heap, 2).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(third.base, Dirty::All) };
    heap.os().advance(1000);
    // The heap's own activity is enough.
    large(&heap, 40).unwrap();
    assert_eq!(heap.totals().free_dirty, 0);
}

#[test]
fn without_decay_pages_go_at_once() {
    let heap = heap(Conditions::default());
    heap.limits().set_decay_ms(0);
    let span = large(&heap, 2).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!(
        (heap.totals().free_dirty, heap.os().calls(Call::Purge)),
        (0, 1)
    );
}

#[test]
fn small_neighbours_do_not_keep_a_large_span_young() {
    let heap = heap(Conditions::default());
    let (big, small) = (large(&heap, 32).unwrap(), large(&heap, 1).unwrap());
    let _wall = large(&heap, 1).unwrap();
    // SAFETY: the spans are ours.
    unsafe { heap.free(big.base, Dirty::All) };
    heap.os().advance(900);
    // SAFETY: as above.
    unsafe { heap.free(small.base, Dirty::All) };
    heap.os().advance(100);
    assert_eq!(purge_due(&heap), 33 * SLICE_BYTES);
}

#[test]
fn decay_on_the_way_is_bounded() {
    let heap = heap(Conditions {
        most_reserved: 128 * MIB,
        ..Conditions::default()
    });
    let span = large(&heap, 64 * MIB / SLICE_BYTES).unwrap();
    // Long enough to keep its own zero state beside the other's.
    let other = large(&heap, 65).unwrap();
    // SAFETY: the spans are ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.os().advance(1000);
    // SAFETY: as above.
    unsafe { heap.set_bytes(other.base, 1, Dirty::AsBefore) };
    assert_eq!(heap.totals().purged_bytes, 0);
    // SAFETY: as above.
    unsafe { heap.free(other.base, Dirty::AsBefore) };
    assert_eq!(heap.totals().purged_bytes, 8 * MIB);
    assert_eq!(purge_due(&heap), 56 * MIB);
}

#[test]
fn growing_takes_the_free_neighbour_or_the_frontier() {
    let heap = heap(Conditions::default());
    let (span, next) = (large(&heap, 2).unwrap(), large(&heap, 3).unwrap());
    // SAFETY: the spans are ours.
    unsafe {
        assert!(heap.grow_in_place(span.base, 3, 1).is_none());
        heap.free(next.base, Dirty::Prefix(1));
        let zero = heap.grow_in_place(span.base, 3, 1);
        assert_eq!((span.place.slices(), zero), (3, Some(Zero::MaybeDirty)));
        // The rest of the neighbour and 95 slices that never were in a span.
        let zero = heap.grow_in_place(span.base, 100, 1);
        assert_eq!(zero, Some(Zero::AllZero));
    }
    assert_eq!(
        (span.place.slices(), span.place.bytes(), heap.check()),
        (100, 1, Ok(()))
    );
}

#[test]
fn shrinking_knows_what_was_written_at_the_end() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 4).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.shrink_in_place(span.base, 1, 1, Dirty::Prefix(2 * SLICE_BYTES)) };
    assert_eq!(heap.totals().free_dirty, SLICE_BYTES);
    // SAFETY: as above; the pages beyond the byte asked for were reported by the shrink.
    unsafe { heap.free(span.base, Dirty::Prefix(1)) };
    assert_eq!(heap.totals().free_dirty, 2 * SLICE_BYTES);
}

#[test]
fn a_tag_is_taken_once_and_a_second_free_changes_nothing() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 2).unwrap();
    // SAFETY: a span in use, whose blocks no code frees by its tag.
    unsafe { span.place.set_tag(9) };
    assert_eq!([span.place.take_tag(), span.place.take_tag()], [9, 0]);
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!(
        (span.place.use_(), span.place.slices(), span.place.bytes()),
        (None, 0, 0)
    );
}

#[test]
fn the_table_of_side_entries_agrees_with_each_slice() {
    let heap = heap(Conditions::default());
    assert!(heap.sides().is_none());
    let span = large(&heap, 100).unwrap();
    let (base, sides) = (span.base.addr().get(), heap.sides().unwrap());
    for address in (0..100).map(|slice| base + slice * SLICE_BYTES + 8) {
        let side = heap.locate(address).unwrap().side();
        assert_eq!(sides.entry::<[u8; 64]>(address), Some(side.cast()));
    }
    assert_eq!(sides.entry::<[u8; 64]>(base - 100 * MIB), None);
}

#[test]
fn addresses_from_nowhere_are_harmless() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 1).unwrap();
    let base = heap
        .primary_base
        .load(crate::base::sync::plain::Ordering::Relaxed);
    for address in [
        base,
        base + 4096,
        span.base.as_ptr() as usize + 10 * SLICE_BYTES,
        base + 32 * MIB - 1,
    ] {
        let place = heap.locate(address).unwrap();
        assert_eq!(
            (
                place.tag(),
                place.use_(),
                place.slices(),
                place.dirty_mask()
            ),
            (0, None, 0, u16::MAX)
        );
    }
    for address in [0, 1, base - 1, base + 32 * MIB, usize::MAX] {
        assert!(heap.locate(address).is_none());
    }
    assert!(
        heap.alloc(usize::MAX / SLICE_BYTES, 1, Use::Large, 1)
            .is_none()
    );
}

#[test]
fn side_entries_are_apart_zero_and_stable() {
    let heap = heap(Conditions::default());
    let spans: Vec<_> = (0..40)
        .map(|_| heap.alloc(1, 1, Use::Slab, 1).unwrap())
        .collect();
    for (number, span) in spans.iter().enumerate() {
        let side: NonNull<u64> = span.place.side().cast();
        assert!((side.as_ptr() as usize).is_multiple_of(64));
        // SAFETY: an entry of 64 bytes, ours.
        unsafe {
            assert_eq!([side.read(), side.add(7).read()], [0, 0]);
            side.write(number as u64 + 1);
            side.add(7).write(number as u64 + 1);
            heap.free(span.base, Dirty::All);
        }
    }
    heap.purge_all();
    for (number, span) in spans.iter().enumerate() {
        // SAFETY: as above; entries outlive their spans.
        assert_eq!(
            // SAFETY: side entries of spans are readable and longer than a word.
            unsafe { span.place.side().cast::<u64>().read() },
            number as u64 + 1
        );
    }
}
