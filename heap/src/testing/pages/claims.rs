//! Arenas that claim addresses and map what they use, on the fake system.

use super::bounds::free;
use super::{heap, large};
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions};
use crate::pages::{Dirty, Use};
use std::vec::Vec;

const MIB: usize = 1 << 20;

/// A system in which arenas claim addresses.
fn claiming() -> Conditions {
    Conditions {
        most_claimed: 1 << 30,
        ..Conditions::default()
    }
}

#[test]
fn a_claimed_arena_maps_no_more_than_it_commits_and_some_tables() {
    let heap = heap(claiming());
    let mut spans = Vec::new();
    for slices in [1, 1, 40, 700, 3, 2000] {
        spans.push(large(&heap, slices).unwrap());
        let (mapped, committed) = (heap.os().mapped(), heap.os().committed());
        assert!(mapped - committed <= 4 * MIB, "{mapped} of {committed}");
        assert_eq!(heap.totals().reserved, mapped);
        assert_eq!((heap.totals().arenas, heap.check()), (1, Ok(())));
    }
    for span in spans {
        free(&heap, span, Dirty::All);
    }
    assert_eq!(heap.check(), Ok(()));
}

/// Another process may lower the limit, and raise it again.
#[test]
fn a_lowered_limit_leaves_others_what_the_heap_does_not_use() {
    let heap = heap(claiming());
    let span = large(&heap, 20 * MIB / SLICE_BYTES).unwrap();
    let mapped = heap.os().mapped();
    assert!(mapped < 32 * MIB, "{mapped}");
    heap.os().set_address_limit(Some(mapped + 64 * MIB));
    let one = || large(&heap, MIB / SLICE_BYTES);
    let spans: Vec<_> = core::iter::from_fn(one).take(1000).collect();
    assert!((60..=66).contains(&spans.len()), "{} MiB", spans.len());
    assert!(heap.os().mapped() <= mapped + 64 * MIB);
    free(&heap, span, Dirty::All);
    assert!(
        core::iter::from_fn(one).take(20).count() >= 19,
        "what was freed serves"
    );
    heap.os().set_address_limit(None);
    assert_eq!(core::iter::from_fn(one).take(200).count(), 200);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_claimed_arena_ends_where_something_else_is_mapped_and_another_follows() {
    for slices in [1, 16, 600] {
        for after in 0..4 {
            let heap = heap(claiming());
            let first = large(&heap, slices).unwrap();
            // Slices, tags or groups cannot grow.
            heap.os().fail(Call::Place, after, 2);
            let spans: Vec<_> = (0..40).map(|_| large(&heap, 64).unwrap()).collect();
            assert!((2..=3).contains(&heap.totals().arenas), "{slices} {after}");
            for span in spans.iter().chain([&first]) {
                let at = span.base.as_ptr().addr();
                assert_eq!(heap.locate(at).unwrap().slice_base(), at);
                // SAFETY: the span is ours.
                unsafe { heap.free(span.base, Dirty::All) };
            }
            heap.purge_all();
            assert_eq!((heap.totals().free_dirty, heap.check()), (0, Ok(())));
            assert_eq!(heap.totals().reserved, heap.os().mapped());
        }
    }
}

/// An alignment leaves slices that are mapped and have no tables, and then the tables cannot grow.
#[test]
fn a_claimed_arena_ends_before_slices_that_get_no_tables() {
    for (call, after, times) in [
        (Call::Place, 2, 2),
        (Call::Place, 3, 2),
        (Call::Commit, 0, 2),
    ] {
        let heap = heap(claiming());
        let aligned = || heap.alloc(1, 4096, Use::Large, 1);
        let first = aligned().unwrap();
        heap.os().fail(call, after, times);
        assert!(call == Call::Place || aligned().is_none());
        let second = (call == Call::Place).then(aligned).flatten();
        heap.os().fail(Call::Place, 0, 1);
        let spans: Vec<_> = (0..80).filter_map(|_| large(&heap, 64)).collect();
        assert_eq!(spans.len(), 80, "{call:?} {after}");
        assert_eq!(heap.check(), Ok(()));
        for span in spans.iter().chain([&first]).chain(&second) {
            // SAFETY: the spans are ours.
            unsafe { heap.free(span.base, Dirty::All) };
        }
        heap.purge_all();
        assert_eq!((heap.totals().free_dirty, heap.check()), (0, Ok(())));
        assert_eq!(heap.totals().reserved, heap.os().mapped());
    }
}

/// The process has as many mappings as it may, so mappings only extend.
#[test]
fn where_no_mapping_can_be_added_a_claimed_arena_doubles() {
    let heap = heap(claiming());
    let grow = || (0..48).map(|_| large(&heap, 100).unwrap());
    let mut spans: Vec<_> = grow().collect();
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    spans.push(heap.alloc(1, 64, Use::Large, 1).unwrap());
    spans.extend(grow());
    assert_eq!((heap.totals().arenas, heap.check()), (1, Ok(())));
    for span in spans {
        free(&heap, span, Dirty::All);
    }
    assert_eq!(heap.check(), Ok(()));
}

/// Then a further arena lies at the break.
#[test]
fn where_no_mapping_can_be_added_the_heap_grows_at_the_break() {
    let heap = heap(Conditions {
        most_at_break: 1 << 30,
        ..claiming()
    });
    large(&heap, 100).unwrap();
    heap.os().fail(Call::Reserve, 0, u32::MAX);
    let spans: Vec<_> = (0..100).map(|_| large(&heap, 100)).collect();
    assert!(spans.iter().all(Option::is_some));
    assert!(heap.totals().arenas > 1);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_claimed_arena_that_a_limit_stops_grows_on_when_the_limit_is_gone() {
    let heap = heap(claiming());
    large(&heap, 1).unwrap();
    let limit = heap.os().mapped() + 300 * MIB;
    heap.os().set_address_limit(Some(limit));
    let one = || large(&heap, 1);
    assert!(core::iter::from_fn(one).count() > 4600);
    heap.os().set_address_limit(None);
    assert_eq!(core::iter::from_fn(one).take(5000).count(), 5000);
    assert_eq!((heap.totals().arenas, heap.check()), (1, Ok(())));
}

#[test]
fn a_claim_that_cannot_be_opened_becomes_a_reservation() {
    for (call, calls) in [(Call::Place, 3), (Call::Commit, 1)] {
        for after in 0..calls {
            let heap = heap(claiming());
            heap.os().fail(call, after, 1);
            assert!(large(&heap, 1).is_some());
            let totals = heap.totals();
            assert!(heap.os().failed() > 0, "{call:?} {after}");
            assert_eq!(totals.reserved, heap.os().mapped(), "{call:?} {after}");
            assert_eq!((totals.arenas, heap.check()), (1, Ok(())));
            assert_eq!(totals.committed, heap.os().committed());
        }
    }
}

/// The program's own mappings take the addresses at once.
#[test]
fn a_claim_that_ends_at_its_start_is_followed_by_another() {
    for after in 0..8 {
        let heap = heap(claiming());
        heap.os().fail(Call::Place, after, 2);
        let span = large(&heap, 2 * MIB / SLICE_BYTES);
        assert!(span.is_some(), "{after}, {} failed", heap.os().failed());
        free(&heap, span.unwrap(), Dirty::All);
        assert_eq!((heap.totals().arenas <= 2, heap.check()), (true, Ok(())));
    }
}

/// Linux 6.7 to 6.11 places a mapping of 2 MiB or more elsewhere if it has just enough room.
#[test]
fn groups_of_tables_are_mapped_where_long_mappings_are_placed_elsewhere() {
    let heap = heap(Conditions {
        most_claimed: 4 << 30,
        most_before: 2 * MIB - 1,
        ..Conditions::default()
    });
    let spans = [1, 800 * MIB / SLICE_BYTES].map(|slices| large(&heap, slices).unwrap());
    assert_eq!((heap.totals().arenas, heap.check()), (1, Ok(())));
    let arena = &heap.arenas()[0];
    let ahead = arena.layout().groups_ahead(arena.ready.get());
    assert_eq!(arena.groups_from.get(), ahead, "room for twice the groups");
    assert_eq!(heap.totals().reserved, heap.os().mapped());
    for span in spans {
        free(&heap, span, Dirty::All);
    }
}

/// Where addresses are few, a later arena is between the tables of the first.
#[test]
fn an_address_belongs_to_the_arena_whose_slices_hold_it() {
    let heap = heap(Conditions {
        claims_overlap: Some(2 * MIB),
        most_claimed: 4 << 30,
        ..Conditions::default()
    });
    let first = large(&heap, 1).unwrap();
    let (tables, groups) = heap.arenas()[0].tables();
    assert!(tables < groups && heap.locate((tables + groups) / 2).is_none());
    heap.os().fail(Call::Place, 0, 2);
    let spans: Vec<_> = (0..120).map(|_| large(&heap, 1).unwrap()).collect();
    let last = spans.last().unwrap().base.as_ptr().addr();
    assert!(heap.arenas().len() == 2 && (tables..groups).contains(&last));
    let used = heap.primary_used();
    assert!(used.contains(&first.base.as_ptr().addr()) && !used.contains(&last));
    for span in spans.iter().chain([&first]) {
        let at = span.base.as_ptr().addr();
        assert_eq!(heap.locate(at).map(|place| place.slice_base()), Some(at));
        // SAFETY: the span is ours.
        unsafe { heap.free(span.base, Dirty::All) };
    }
    assert_eq!(heap.check(), Ok(()));
}

/// What alignment skips over is mapped, and committed when it is used.
#[test]
fn a_claimed_arena_serves_alignments() {
    let heap = heap(claiming());
    for shift in 0..=12 {
        let span = heap.alloc(3, 1 << shift, Use::Large, 1).unwrap();
        assert!((span.base.as_ptr() as usize).is_multiple_of(SLICE_BYTES << shift));
    }
    assert!(heap.os().committed() < 128 * MIB);
    assert!(large(&heap, 100 * MIB / SLICE_BYTES).is_some());
    assert_eq!((heap.totals().arenas, heap.check()), (1, Ok(())));
}

/// Otherwise the arena could not grow at this moment, and would end. The fake system looks.
#[test]
fn pages_move_from_the_end_of_a_claimed_arena_while_it_does_not_grow() {
    let heap = heap(claiming());
    let (target, _) = (large(&heap, 100).unwrap(), large(&heap, 1).unwrap());
    let arena = &heap.arenas()[0];
    let last = large(&heap, arena.end.get() - arena.frontier.get()).unwrap();
    assert_eq!(arena.end.get(), arena.frontier.get());
    let bytes = last.slices * SLICE_BYTES;
    // SAFETY: two spans of ours.
    unsafe {
        last.base.as_ptr().write_bytes(1, bytes);
        let moved = heap.move_pages(last.base, target.base, bytes, 1);
        assert_eq!(moved, Ok(()));
        assert_eq!(target.base.add(bytes - 1).read(), 1);
    }
    assert_eq!(heap.check(), Ok(()));
}
