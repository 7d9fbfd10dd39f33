//! What the kernel refuses or limits: purges, commits, address space. One behaviour per test, on
//! the fake system.

use super::{heap, large, purge_due};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::fake::{Call, Conditions};
use crate::os::{Huge, Os};
use crate::pages::{Dirty, HugePolicy, Use, Zero};
use std::vec::Vec;

const MIB: usize = 1 << 20;

#[test]
fn a_refused_purge_leaves_pages_dirty_and_ends() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 4).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.os().fail(Call::Purge, 0, u32::MAX);
    assert_eq!((heap.purge_all(), heap.check()), (0, Ok(())));
    let refused = heap.os().failed();
    heap.os().advance(9_999);
    assert_eq!((purge_due(&heap), heap.os().failed()), (0, refused));
    heap.os().advance(1);
    assert!(purge_due(&heap) == 0 && heap.os().failed() > refused);
    heap.os().fail(Call::Purge, 0, 0);
    assert_eq!(heap.purge_all(), 4 * SLICE_BYTES);
    assert_eq!(large(&heap, 4).unwrap().zero, Zero::AllZero);
}

#[test]
fn a_locked_page_stays_alone_and_goes_when_it_is_unlocked() {
    // Of the second run, and in two neighbouring slices.
    for pages in [&[3000][..], &[0], &[15, 16, 2047, 4095]] {
        let heap = heap(Conditions::default());
        let (span, wall) = (large(&heap, 256).unwrap(), large(&heap, 1));
        let page = |number: &usize| span.base.as_ptr().addr() + number * 4096;
        // SAFETY: the test's own span.
        unsafe { span.base.as_ptr().write_bytes(1, 256 * SLICE_BYTES) };
        pages
            .iter()
            .for_each(|number| heap.os().set_page_locked(page(number), true));
        // SAFETY: as above.
        unsafe { heap.free(span.base, Dirty::All) };
        heap.os().advance(1000);
        let left = pages.len() * 4096;
        assert_eq!(purge_due(&heap), 256 * SLICE_BYTES - left);
        assert_eq!((heap.totals().free_dirty, heap.check()), (left, Ok(())));
        // The second try fails, and the third succeeds once the pages are unlocked.
        for locked in [true, false] {
            assert_eq!(heap.next_purge(), Some(heap.os().now_ms() + 10_000));
            pages
                .iter()
                .for_each(|number| heap.os().set_page_locked(page(number), locked));
            heap.os().advance(10_000);
            assert_eq!(purge_due(&heap), if locked { 0 } else { left });
            assert_eq!(heap.check(), Ok(()));
        }
        assert_eq!((heap.next_purge(), heap.totals().free_dirty), (None, 0));
        let again = large(&heap, 256).unwrap();
        assert!(wall.is_some() && again.base == span.base && again.zero == Zero::AllZero);
    }
}

#[test]
fn what_is_locked_all_over_takes_few_calls() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 128).unwrap();
    let pages = (0..2048).map(|number| span.base.as_ptr().addr() + number * 4096);
    pages.for_each(|page| heap.os().set_page_locked(page, true));
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!((heap.purge_all(), heap.check()), (0, Ok(())));
    assert!(heap.os().calls(Call::Purge) <= 65);
    assert_eq!(heap.totals().free_dirty, 128 * SLICE_BYTES);
}

/// Where address space is short, two halves with a locked page between them serve as one.
#[test]
fn a_locked_page_keeps_no_room_from_a_request() {
    let heap = heap(Conditions {
        most_reserved: 20 * MIB,
        ..Conditions::default()
    });
    let span = large(&heap, 256).unwrap();
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    heap.os()
        .set_page_locked(span.base.as_ptr().addr() + 8 * MIB, true);
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.purge_all();
    let half = large(&heap, 100).unwrap();
    // SAFETY: as above.
    unsafe { heap.free(half.base, Dirty::AsBefore) };
    assert_eq!(large(&heap, 256).map(|again| again.base), Some(span.base));
    assert_eq!(heap.check(), Ok(()));
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

/// Also pages before the first whole huge page, beside committed pages that are clean.
#[test]
fn where_no_commit_goes_back_pages_are_purged() {
    let heap = heap(Conditions {
        strict: true,
        ..Conditions::default()
    });
    let (span, wall) = (large(&heap, 6 * HUGE_SLICES).unwrap(), large(&heap, 1));
    heap.os().fail(Call::Uncommit, 0, u32::MAX);
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    heap.os().advance(1000);
    assert_eq!(purge_due(&heap), 6 * HUGE_BYTES);
    assert_eq!((heap.totals().free_dirty, heap.check()), (0, Ok(())));
    assert!(wall.is_some());
}

/// A new mapping has none of the advice that the arena got at its start.
#[test]
fn what_is_uncommitted_is_advised_again() {
    for (policy, advice) in [
        (HugePolicy::Never, Some(Huge::Avoid)),
        (HugePolicy::Always, Some(Huge::Want)),
        (HugePolicy::Auto, None),
    ] {
        let heap = heap(Conditions {
            strict: true,
            ..Conditions::default()
        });
        heap.set_huge(policy);
        let span = large(&heap, 6 * HUGE_SLICES).unwrap();
        let before = heap.os().advice().len();
        let committed = heap.os().committed();
        // SAFETY: the span is ours.
        unsafe { heap.free(span.base, Dirty::All) };
        heap.purge_all();
        let returned = committed - heap.os().committed();
        assert!(returned >= 5 * HUGE_BYTES);
        let said = heap.os().advice().split_off(before);
        let told: usize = said.iter().map(|&(_, bytes, _)| bytes).sum();
        let wanted = advice.map_or(0, |_| returned);
        assert_eq!(told, wanted, "{policy:?}: {said:?}");
        assert!(said.iter().all(|said| Some(said.2) == advice), "{said:?}");
    }
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
    // The first two commits are for the first tables.
    heap.os().fail(Call::Commit, 2, 1);
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
    for most_claimed in [0, 1 << 30] {
        let heap = heap(Conditions {
            most_reserved: 1 << 30,
            most_claimed,
            most_committed: 32 * MIB,
            ..Conditions::default()
        });
        large(&heap, 1).unwrap();
        let before = heap.totals();
        assert!(large(&heap, 3500).is_none());
        let after = heap.totals();
        assert_eq!(after.metadata, before.metadata);
        assert_eq!(after.reserved, before.reserved);
        assert_eq!(heap.os().committed(), after.committed);
        assert_eq!(heap.check(), Ok(()));
    }
}

#[test]
fn slices_whose_tables_are_refused_are_uncommitted() {
    for most_claimed in [0, 1 << 30] {
        let heap = heap(Conditions {
            most_reserved: 1 << 30,
            most_claimed,
            ..Conditions::default()
        });
        large(&heap, 1).unwrap();
        let before = heap.totals();
        heap.os().fail(Call::Commit, 1, 1);
        assert!(large(&heap, 3500).is_none());
        assert_eq!(heap.totals().committed, before.committed);
        assert_eq!(heap.os().committed(), before.committed);
        assert!(large(&heap, 3500).is_some());
        assert_eq!(heap.check(), Ok(()));
    }
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
fn free_memory_is_uncommitted_for_a_refused_commit_only_where_commit_is_charged() {
    for (data_limit, uncommits) in [(None, false), (Some(1 << 30), true)] {
        let heap = heap(Conditions {
            data_limit,
            ..Conditions::default()
        });
        let (span, wall) = (large(&heap, 4 * HUGE_SLICES).unwrap(), large(&heap, 1));
        // SAFETY: the span is ours.
        unsafe { heap.free(span.base, Dirty::All) };
        heap.os().fail(Call::Commit, 0, u32::MAX);
        assert!(wall.is_some() && large(&heap, 5 * HUGE_SLICES).is_none());
        let uncommitted = heap.os().calls(Call::Uncommit) > 0;
        assert_eq!(uncommitted, uncommits, "{data_limit:?}");
        assert_eq!(heap.check(), Ok(()));
    }
}

#[test]
fn an_open_heap_has_an_arena_and_is_opened_once() {
    let heap = heap(Conditions::default());
    heap.open();
    heap.open();
    assert_eq!((heap.totals().arenas, heap.totals().in_use), (1, 0));
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    assert!(large(&heap, 1).is_some());
}

#[test]
fn where_nothing_can_be_mapped_the_break_serves() {
    let heap = heap(Conditions {
        most_at_break: 64 * MIB,
        ..Conditions::default()
    });
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    let spans: Vec<_> = (0..300).map(|_| large(&heap, 1).unwrap()).collect();
    assert!(spans.iter().all(|span| span.zero == Zero::AllZero));
    assert!((2..6).contains(&heap.totals().arenas));
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn reserved_arenas_double() {
    let heap = heap(Conditions {
        most_reserved: 1 << 40,
        ..Conditions::default()
    });
    let reserved = |slices: usize| {
        large(&heap, slices).unwrap();
        heap.totals().reserved / MIB
    };
    let steps = [reserved(1), reserved(3500), reserved(3500), reserved(6000)];
    assert_eq!(steps, [256, 256, 512, 1024]);
}

#[test]
fn under_a_small_limit_on_data_a_span_costs_little_more_than_itself() {
    let heap = heap(Conditions {
        data_limit: Some(4 * MIB),
        ..Conditions::default()
    });
    for spans in 1..20 {
        large(&heap, 1).unwrap();
        let committed = heap.os().committed();
        assert!(
            committed <= spans * SLICE_BYTES + 64 * 1024,
            "{spans}: {committed}"
        );
    }
}
