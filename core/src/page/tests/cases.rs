//! One behaviour a test, on the fake system.

use super::{heap, large};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::fake::{Call, Conditions};
use crate::page::{Dirty, Use, Zero};
use core::ptr::NonNull;
use std::vec::Vec;

const MIB: usize = 1 << 20;

#[test]
fn starting_takes_few_system_calls() {
    let heap = heap(Conditions::default());
    assert_eq!(heap.locate(0x1000).map(|place| place.index), None);
    large(&heap, 1).unwrap();
    let calls = heap.totals().calls;
    assert_eq!(calls.commit, 2);
    large(&heap, 8).unwrap();
    assert_eq!(heap.totals().calls, calls);
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
        // Told the truth about two pages only, so the others keep what was written.
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
    heap.os().advance(399);
    assert_eq!(heap.purge_due(), 0);
    heap.os().advance(1);
    assert_eq!(heap.purge_due(), 2 * SLICE_BYTES);
    heap.os().advance(600);
    // The heap's own activity is enough.
    large(&heap, 40).unwrap();
    assert_eq!(heap.totals().free_dirty, 0);
}

#[test]
fn without_decay_pages_go_at_once() {
    let heap = heap(Conditions::default());
    heap.set_decay_ms(0);
    let span = large(&heap, 2).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!(
        (heap.totals().free_dirty, heap.totals().calls.purge),
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
    assert_eq!(heap.purge_due(), 33 * SLICE_BYTES);
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
    assert_eq!(heap.purge_due(), 56 * MIB);
}

#[test]
fn a_refused_purge_leaves_pages_dirty_and_ends() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 4).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.os().fail(Call::Purge, 0, u32::MAX);
    assert_eq!((heap.purge_all(), heap.check()), (0, Ok(())));
    let refused = heap.totals().refused_purges;
    heap.os().advance(10_000);
    assert_eq!(
        (heap.purge_due(), heap.totals().refused_purges),
        (0, refused)
    );
    heap.os().fail(Call::Purge, 0, 0);
    assert_eq!(heap.purge_all(), 4 * SLICE_BYTES);
    assert_eq!(large(&heap, 4).unwrap().zero, Zero::AllZero);
}

#[test]
fn a_strict_system_gets_whole_huge_pages_back() {
    let heap = heap(Conditions {
        strict: true,
        ..Conditions::default()
    });
    let span = large(&heap, 6 * HUGE_SLICES).unwrap();
    let committed = heap.os().committed();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.purge_all();
    assert!(heap.os().committed() <= committed - 5 * HUGE_BYTES);
    assert_eq!(large(&heap, 6 * HUGE_SLICES).unwrap().zero, Zero::AllZero);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn free_memory_is_given_up_for_a_commit() {
    let conditions = Conditions {
        strict: true,
        most_committed: 20 * MIB,
        ..Conditions::default()
    };
    let heap = heap(conditions);
    let slices = 12 * MIB / SLICE_BYTES;
    let first = large(&heap, slices).unwrap();
    let _wall = large(&heap, 1).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(first.base, Dirty::All) };
    // No room in what is free, so 12 of 20 MiB must go back first.
    let second = large(&heap, slices + 1).unwrap();
    assert_eq!((second.zero, heap.check()), (Zero::AllZero, Ok(())));
    assert!(large(&heap, slices).is_none());
}

#[test]
fn refused_commits_fall_back_to_the_exact_need() {
    let heap = heap(Conditions::default());
    heap.os().fail(Call::Commit, 1, 1);
    assert!(large(&heap, 1).is_some());
    heap.os().fail(Call::Commit, 0, 1);
    assert!(large(&heap, 100).is_some());
    heap.os().fail(Call::Commit, 0, u32::MAX);
    assert!(large(&heap, 300).is_none());
    assert_eq!(heap.check(), Ok(()));
    heap.os().fail(Call::Commit, 0, 0);
    assert!(large(&heap, 300).is_some());
}

#[test]
fn a_refused_request_leaves_no_tables_behind() {
    let heap = heap(Conditions {
        most_reserved: 1 << 30,
        most_committed: 32 * MIB,
        ..Conditions::default()
    });
    large(&heap, 1).unwrap();
    let before = heap.totals();
    assert!(large(&heap, 8000).is_none());
    let after = heap.totals();
    assert_eq!(after.metadata, before.metadata);
    assert_eq!(heap.os().committed(), after.committed);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn slices_whose_tables_are_refused_are_uncommitted() {
    let heap = heap(Conditions {
        most_reserved: 1 << 30,
        ..Conditions::default()
    });
    large(&heap, 1).unwrap();
    let before = heap.totals();
    heap.os().fail(Call::Commit, 1, 1);
    assert!(large(&heap, 8000).is_none());
    assert_eq!(heap.totals().committed, before.committed);
    assert_eq!(heap.os().committed(), before.committed);
    assert!(large(&heap, 8000).is_some());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn an_arena_whose_tables_fail_is_released() {
    let heap = heap(Conditions::default());
    heap.os().fail(Call::Commit, 0, u32::MAX);
    assert!(large(&heap, 1).is_none());
    let totals = heap.totals();
    assert_eq!(
        (
            totals.arenas,
            totals.reserved,
            totals.committed,
            totals.metadata
        ),
        (0, 0, 0, 0)
    );
    heap.os().fail(Call::Commit, 0, 0);
    assert!(large(&heap, 1).is_some());
}

#[test]
fn more_arenas_are_opened_until_there_is_no_address_space() {
    let heap = heap(Conditions {
        most_reserved: 2 * MIB,
        ..Conditions::default()
    });
    let spans: Vec<_> = (0..200).map(|_| large(&heap, 1).unwrap()).collect();
    let arenas = heap.totals().arenas;
    assert!(arenas > 5);
    for span in &spans {
        assert_eq!(
            heap.locate(span.base.as_ptr() as usize + 77)
                .unwrap()
                .slice_base(),
            span.base.as_ptr() as usize
        );
    }
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    let rest = (0..).find(|_| large(&heap, 1).is_none()).unwrap();
    assert!(rest < 32);
    assert_eq!((heap.totals().arenas, heap.check()), (arenas, Ok(())));
}

#[test]
fn reservations_shrink_until_the_system_agrees() {
    let heap = heap(Conditions {
        most_reserved: 5 * MIB,
        ..Conditions::default()
    });
    assert!(large(&heap, 1).is_some());
    assert!((2 * MIB..=5 * MIB).contains(&heap.totals().reserved));
    assert!(large(&heap, 6 * MIB / SLICE_BYTES).is_none());
}

#[test]
fn a_limited_address_space_gets_small_arenas_but_large_requests_their_own() {
    let heap = heap(Conditions {
        address_limit: Some(64 * MIB),
        ..Conditions::default()
    });
    assert!(large(&heap, 1).is_some());
    assert_eq!(heap.totals().reserved, 8 * MIB);
    assert!(large(&heap, 24 * MIB / SLICE_BYTES).is_some());
    assert_eq!(heap.totals().arenas, 2);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn alignments_up_to_a_gibibyte() {
    let heap = heap(Conditions {
        most_reserved: 4096 * MIB,
        ..Conditions::default()
    });
    for shift in 0..=14 {
        let span = heap.alloc(3, 1 << shift, Use::Large, 1).unwrap();
        assert!((span.base.as_ptr() as usize).is_multiple_of(SLICE_BYTES << shift));
    }
    assert_eq!(heap.check(), Ok(()));
    // What alignment skipped over is free, and serves.
    let arenas = heap.totals().arenas;
    assert!(large(&heap, 256 * MIB / SLICE_BYTES).is_some());
    assert_eq!(heap.totals().arenas, arenas);
}

#[test]
fn growing_takes_the_free_neighbour_or_the_frontier() {
    let heap = heap(Conditions::default());
    let (span, next) = (large(&heap, 2).unwrap(), large(&heap, 3).unwrap());
    // SAFETY: the spans are ours.
    unsafe {
        assert!(heap.grow_in_place(span.base, 3, 1).is_none());
        heap.free(next.base, Dirty::Prefix(1));
        let extension = heap.grow_in_place(span.base, 3, 1).unwrap();
        assert_eq!((extension.slices, extension.zero), (1, Zero::MaybeDirty));
        // The rest of the neighbour and 95 slices that never were in a span.
        let extension = heap.grow_in_place(span.base, 100, 1).unwrap();
        assert_eq!((extension.slices, extension.zero), (97, Zero::AllZero));
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
    span.place.set_tag(9);
    assert_eq!([span.place.take_tag(), span.place.take_tag()], [9, 0]);
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!(
        (span.place.use_(), span.place.slices(), span.place.bytes()),
        (None, 0, 0)
    );
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
