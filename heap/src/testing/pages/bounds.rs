//! Bounds on free pages, which thread purges, and where huge pages are.

use super::{heap, large, purge_due};
use crate::base::policy::{Driver, START_BYTES};
use crate::base::sync::plain::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::Huge;
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Age, Dirty, GroupShare, HugePolicy, PageHeap, Span, SpanSource, Use};
use crate::pages::{MIRROR_WORDS, Mirror};
use std::boxed::Box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use std::vec::Vec;

pub(super) const MIB: usize = 1 << 20;

pub(super) fn roomy() -> Box<PageHeap<Fake>> {
    heap(Conditions {
        most_reserved: 256 * MIB,
        ..Conditions::default()
    })
}

pub(super) fn slab(heap: &PageHeap<Fake>) -> Option<Span<'_>> {
    heap.alloc(1, 1, Use::Slab, SLICE_BYTES)
}

pub(super) fn free(heap: &PageHeap<Fake>, span: Span<'_>, dirty: Dirty) {
    // SAFETY: the tests' own spans, each freed once.
    unsafe { heap.free(span.base, dirty) };
}

/// No two threads get the same room, whether they take spans or have pages readmitted.
#[test]
fn free_pages_stay_below_their_bound() {
    let heap = roomy();
    heap.limits().set_dirty(MIB);
    let (old, wall, new) = (
        large(&heap, 32).unwrap(),
        large(&heap, 1),
        large(&heap, 8).unwrap(),
    );
    for span in [old, new] {
        // SAFETY: the test's own span: every page is written to.
        unsafe { span.base.as_ptr().write_bytes(1, span.slices * SLICE_BYTES) };
    }
    free(&heap, old, Dirty::All);
    assert!(wall.is_some() && heap.totals().free_dirty <= MIB);
    free(&heap, new, Dirty::All);
    let totals = heap.totals();
    assert!(totals.free_dirty <= MIB && totals.purged_bytes >= MIB);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn untouched_pages_are_not_purged_for_a_bound() {
    let heap = roomy();
    heap.limits().set_dirty(0);
    let span = large(&heap, 32).unwrap();
    free(&heap, span, Dirty::All);
    let totals = heap.totals();
    assert_eq!((totals.free_dirty, heap.os().calls(Call::Purge)), (0, 0));
}

#[test]
fn the_soft_limit_leaves_free_pages_what_is_left() {
    let heap = roomy();
    heap.limits().set_soft(4 * MIB);
    let (first, _wall, second) = (
        large(&heap, 32).unwrap(),
        large(&heap, 1),
        large(&heap, 16).unwrap(),
    );
    free(&heap, first, Dirty::All);
    assert_eq!(heap.totals().free_dirty, 32 * SLICE_BYTES, "there is room");
    // The group leaves less.
    let share = GroupShare {
        most: 2 * MIB,
        near: MIB,
        demand: 0,
        ..GroupShare::ALL
    };
    heap.limits().set_group(share, 0);
    free(&heap, second, Dirty::AsBefore);
    assert!(heap.footprint().total() <= 2 * MIB);
}

#[test]
fn free_pages_leave_the_group_room_for_other_uses() {
    let heap = roomy();
    let share = GroupShare {
        most: 64 * MIB,
        near: 64 * MIB,
        demand: 32 * MIB,
        step: MIB,
    };
    heap.limits().set_group(share, 0);
    let take = || large(&heap, 16 * MIB / SLICE_BYTES).unwrap();
    let spans = [take(), take(), take()];
    assert!(!heap.limits().is_outdated());
    let [first, second, third] = spans;
    free(&heap, first, Dirty::All);
    // 32 MiB are in use, so the group leaves 32, and all of that may be wanted.
    assert!(heap.footprint().dirty <= 2 * MIB);
    assert!(heap.limits().is_outdated(), "free pages have grown");
    // The group has more room than that.
    heap.limits().set_group(
        GroupShare {
            demand: MIB,
            ..share
        },
        0,
    );
    free(&heap, second, Dirty::All);
    free(&heap, third, Dirty::All);
    assert!(heap.footprint().dirty >= 32 * MIB);
}

/// The purging thread may have lost its processor: free pages would pile up behind it.
#[test]
fn who_frees_far_past_a_bound_waits_for_the_purging_thread() {
    let heap = roomy();
    heap.limits().set_dirty(MIB);
    let spans = [32, 1, 32, 1].map(|slices| large(&heap, slices).unwrap());
    let (locked, given_up) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let purging = heap.purging.lock();
            locked.wait();
            thread::sleep(Duration::from_millis(300));
            given_up.store(true, Relaxed);
            drop(purging);
        });
        locked.wait();
        free(&heap, spans[0], Dirty::All);
        free(&heap, spans[2], Dirty::All);
        assert!(given_up.load(Relaxed), "it did not wait");
    });
    assert!(heap.totals().free_dirty <= MIB);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn callers_purge_nothing_while_a_thread_does() {
    let heap = roomy();
    heap.limits().set_driver(Driver::Thread);
    let (first, _wall) = (large(&heap, 32).unwrap(), large(&heap, 1));
    free(&heap, first, Dirty::All);
    heap.os().advance(10_000);
    heap.tend();
    assert_eq!(heap.totals().purged_bytes, 0);
    assert_eq!(purge_due(&heap), 32 * SLICE_BYTES);
    heap.limits().set_driver(Driver::Callers);
    heap.tend();
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn what_is_old_goes_first() {
    let heap = roomy();
    let (young, _wall, old) = (
        large(&heap, 4).unwrap(),
        large(&heap, 1),
        large(&heap, 2).unwrap(),
    );
    heap.os().advance(5000);
    free(&heap, young, Dirty::All);
    // SAFETY: the test's own span.
    unsafe { heap.free_untended(old.base, Dirty::All, Age::Old, 0) };
    heap.tend_left();
    assert_eq!(heap.check(), Ok(()));
    // At once, by the caller that freed it.
    assert_eq!(heap.totals().purged_bytes, 2 * SLICE_BYTES);
    assert_eq!(heap.totals().free_dirty, 4 * SLICE_BYTES);
}

#[test]
fn resident_pages_are_found_where_there_are_few() {
    let heap = roomy();
    let (first, _wall) = (large(&heap, 8).unwrap(), large(&heap, 1));
    // One page of a slice, as a stack leaves it.
    let one_page = Dirty::PrefixBut {
        bytes: SLICE_BYTES,
        clean: 0x7fff,
    };
    free(&heap, first, Dirty::AsBefore);
    let span = slab(&heap).unwrap();
    assert!(
        heap.alloc_untended(SpanSource::Resident, 1, 1, Use::Slab, 1, 0)
            .is_none()
    );
    free(&heap, span, one_page);
    assert_eq!(heap.totals().free_dirty, 4096);
    let again = heap
        .alloc_untended(SpanSource::Resident, 1, 1, Use::Slab, 1, 0)
        .unwrap();
    assert_eq!(again.base, span.base);
    assert_eq!(again.place.dirty_mask(), 0x8000);
    assert_eq!(again.cold, SLICE_BYTES - 4096);
}

#[test]
fn slabs_begin_on_resident_pages_where_guards_lie_between() {
    // As stacks leave it: a guard and what was never used, then a slice of which the last page was.
    let one_page = Dirty::PrefixBut {
        bytes: SLICE_BYTES,
        clean: 0x7fff,
    };
    for (slices, begins) in [(2, 0x8000), (8, 0x8000), (9, 0)] {
        let heap = roomy();
        let all: Vec<_> = (0..8 * slices).map(|_| large(&heap, 1).unwrap()).collect();
        for stack in all.chunks(slices) {
            let (top, rest) = stack.split_last().unwrap();
            rest.iter()
                .for_each(|&slice| free(&heap, slice, Dirty::AsBefore));
            free(&heap, *top, one_page);
        }
        for number in 0..8 {
            // One begins at the front of what is too long to be left aside, the next beyond it.
            let begins = if number % 2 == 0 { begins } else { 0x8000 };
            let slab = slab(&heap).unwrap();
            assert_eq!(slab.place.dirty_mask(), begins, "{slices}");
            assert_eq!(heap.check(), Ok(()));
        }
    }
}

#[test]
fn slabs_get_huge_pages_where_there_are_many_and_no_longer_when_they_are_purged() {
    let heap = roomy();
    let unit = |span: &Span<'_>| span.base.as_ptr().addr() / HUGE_BYTES * HUGE_BYTES;
    let fill = |mib: usize| {
        let slabs = (0..mib * MIB / SLICE_BYTES).map(|_| slab(&heap).unwrap());
        slabs.collect::<Vec<_>>()
    };
    let few = fill(8);
    assert_eq!(heap.os().advice(), [], "none for small processes");
    let mut more = fill(16);
    let one_by_one = |said: &(usize, usize, Huge)| said.1 == HUGE_BYTES && said.2 == Huge::Want;
    assert!(heap.os().advice().iter().all(one_by_one));
    let (before, dense) = loop {
        let before = heap.os().advice();
        let span = slab(&heap).unwrap();
        if heap.os().advice().last() == Some(&(unit(&span), 2 * HUGE_BYTES, Huge::Want)) {
            break (before.len(), span);
        }
        more.push(span);
    };
    let next = slab(&heap).unwrap();
    assert_eq!(unit(&next), unit(&dense), "the unit is filled first");
    let other = large(&heap, 1).unwrap();
    assert_ne!(unit(&other), unit(&dense), "by slabs alone");
    assert!(large(&heap, 1 << 20).is_none());
    let whole = large(&heap, HUGE_SLICES).unwrap();
    let untouched = unit(&dense) + HUGE_BYTES;
    assert_ne!(unit(&whole), untouched, "nor after one that no unit serves");
    assert_eq!(heap.check(), Ok(()));
    // Pages that no slab used are also resident, and go with those that a slab used.
    free(&heap, next, Dirty::All);
    heap.os().advance(2000);
    assert_eq!(purge_due(&heap), HUGE_BYTES - SLICE_BYTES);
    let said = heap.os().advice();
    let split_units = |advice| (unit(&dense), HUGE_BYTES, advice);
    assert_eq!(
        said[before + 1..],
        [split_units(Huge::Avoid), split_units(Huge::Split)]
    );
    // An ordinary part of the arena now.
    let wide = large(&heap, HUGE_SLICES - 2).unwrap();
    assert_eq!(unit(&wide), unit(&dense));
    assert_eq!(heap.check(), Ok(()));
    for span in few.into_iter().chain(more) {
        free(&heap, span, Dirty::AsBefore);
    }
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn free_units_are_purged_whole_and_others_open_again_once_they_are_free() {
    let heap = roomy();
    let unit = |span: &Span<'_>| span.place.index / HUGE_SLICES;
    let fill = |mib: usize| {
        let slabs = (0..mib * MIB / SLICE_BYTES).map(|_| slab(&heap).unwrap());
        slabs.collect::<Vec<_>>()
    };
    let purge = |spans: Vec<Span<'_>>| {
        for span in spans {
            free(&heap, span, Dirty::Prefix(1));
        }
        heap.os().advance(10_000);
        purge_due(&heap);
        assert_eq!(heap.totals().free_dirty, 0);
        assert_eq!(heap.check(), Ok(()));
        heap.os().advice()
    };
    let (low, more, kept) = (fill(8), fill(24), fill(16));
    let opened = heap.os().advice();
    let (gone, rest): (Vec<_>, Vec<_>) =
        (more.into_iter()).partition(|span| unit(span) < unit(&kept[0]));
    assert_eq!(purge(gone), opened, "whole units keep their advice");
    let more = fill(22);
    assert_eq!(
        heap.os().advice(),
        opened,
        "and serve slabs again as they are"
    );
    // Slices that never were a unit, and a unit that was split, become units once all are free.
    let (first, others): (Vec<_>, Vec<_>) =
        (more.into_iter()).partition(|span| unit(span) == unit(&kept[0]) - 1);
    let (one, first) = first.split_at(1);
    let (one, first) = (one.to_vec(), first.to_vec());
    let split = purge(first).split_off(opened.len());
    assert_eq!(
        split.iter().map(|said| said.2).collect::<Vec<_>>(),
        [Huge::Avoid, Huge::Split]
    );
    purge(low.into_iter().chain(one).collect());
    let again = fill(48);
    let said = heap.os().advice().split_off(opened.len() + 2);
    assert!(said.iter().all(|said| said.2 == Huge::Want));
    let wants = |start: usize| {
        said.iter()
            .any(|said| (said.0..said.0 + said.1).contains(&start))
    };
    assert!(wants(split[0].0), "the unit that was split");
    let is_low = |said: &(usize, usize, Huge)| said.0 < opened[0].0;
    assert!(said.iter().any(is_low), "below the first unit");
    for spans in [rest, others, again, kept] {
        purge(spans);
    }
}

/// The kernel would make a huge page of which only a part was purged resident again.
#[test]
fn where_huge_pages_are_everywhere_purged_ranges_have_none_at_their_edges() {
    for huge_everywhere in [true, false] {
        let heap = heap(Conditions {
            huge_everywhere,
            ..Conditions::default()
        });
        let low = large(&heap, 1).unwrap();
        for _ in 0..2 {
            let middle = large(&heap, 3 * HUGE_SLICES).unwrap();
            let high = large(&heap, 1).unwrap();
            let edges = [&middle, &high].map(|span| span.base.as_ptr().addr());
            free(&heap, middle, Dirty::All);
            heap.os().advance(10_000);
            purge_due(&heap);
            let units = edges.map(|edge| (edge / HUGE_BYTES * HUGE_BYTES, HUGE_BYTES, Huge::Avoid));
            let told = &units[..if huge_everywhere { 2 } else { 0 }];
            assert_eq!(heap.os().advice(), told);
            free(&heap, high, Dirty::AsBefore);
        }
        // SAFETY: the test's own span.
        assert!(unsafe { heap.purge_in_use(low.base, SLICE_BYTES) });
        let low = low.base.as_ptr().addr() / HUGE_BYTES * HUGE_BYTES;
        assert_eq!(
            heap.os().advice().iter().any(|said| said.0 == low),
            huge_everywhere
        );
        // What is mapped afresh there has the advice again.
        let middle = large(&heap, 3 * HUGE_SLICES).unwrap();
        let from = middle.base.as_ptr().addr();
        let to = from + 3 * HUGE_BYTES;
        heap.note_mapped_over(from, 1, |_, _| {});
        let before = heap.os().advice().len();
        free(&heap, middle, Dirty::All);
        let edges = [
            from.next_multiple_of(HUGE_BYTES),
            to / HUGE_BYTES * HUGE_BYTES,
        ];
        let parts = [(from, edges[0] - from), (edges[1], to - edges[1])];
        let said = parts.map(|(start, bytes)| (start, bytes, Huge::Avoid));
        let said = &said[..if huge_everywhere { 2 } else { 0 }];
        assert_eq!(&heap.os().advice()[before..], said);
        assert_eq!(heap.check(), Ok(()));
    }
}

/// The kernel would make the end of each block resident.
#[test]
fn where_huge_pages_are_everywhere_a_block_that_would_waste_them_gets_none() {
    for huge_everywhere in [true, false] {
        let heap = heap(Conditions {
            huge_everywhere,
            ..Conditions::default()
        });
        let block = |bytes: usize| {
            let before = heap.os().advice().len();
            let slices = bytes.div_ceil(SLICE_BYTES);
            let span = heap.alloc(slices, 1, Use::Large, bytes).unwrap();
            let start = span.base.as_ptr().addr() / HUGE_BYTES * HUGE_BYTES;
            (heap.os().advice()[before..].to_vec(), start, span)
        };
        let (said, _, full) = block(SLICE_BYTES - SLICE_BYTES / 8);
        assert_eq!(said, []);
        let (said, start, half) = block(SLICE_BYTES / 2 + 1);
        let told = [(start, HUGE_BYTES, Huge::Avoid)];
        assert_eq!(said, told[..usize::from(huge_everywhere)]);
        // Its neighbours in the huge page need no further call, nor does what is resident already.
        let (said, _, next) = block(SLICE_BYTES + 1);
        assert_eq!(said, []);
        let _ = [full, half, next].map(|span| free(&heap, span, Dirty::All));
        let (said, _, warm) = block(1);
        assert_eq!(said, []);
        free(&heap, warm, Dirty::All);
        assert_eq!(heap.check(), Ok(()));
    }
}

/// Once beyond the frontier of a heap that is no longer small, then in a free span.
#[test]
fn where_huge_pages_are_everywhere_what_came_with_a_block_goes_with_it() {
    for huge_everywhere in [true, false] {
        let heap = heap(Conditions {
            huge_everywhere,
            ..Conditions::default()
        });
        large(&heap, START_BYTES / SLICE_BYTES).unwrap();
        for turn in 1..=2 {
            let before = heap.os().resident();
            let block = large(&heap, 3).unwrap();
            let came = HUGE_BYTES - block.base.addr().get() % HUGE_BYTES;
            heap.os().touch(block.base, came);
            free(&heap, block, Dirty::All);
            heap.os().advance(10_000);
            purge_due(&heap);
            let stays = came - 3 * SLICE_BYTES;
            let stays = if huge_everywhere || turn == 2 {
                0
            } else {
                stays
            };
            assert_eq!(heap.os().resident(), before + stays);
            assert_eq!(heap.check(), Ok(()));
        }
    }
}

/// The kernel would make the unused ends of blocks resident.
#[test]
fn a_small_group_gets_no_huge_pages_unasked() {
    const GIB: usize = 1 << 30;
    for (most, demand, is_small) in [
        (GIB / 2, 0, true),
        (4 * GIB, 2 * GIB, false),
        (4 * GIB, 3 * GIB, true),
        (usize::MAX, 3 * GIB, false),
    ] {
        for huge_everywhere in [true, false] {
            let heap = heap(Conditions {
                huge_everywhere,
                most_claimed: GIB,
                ..Conditions::default()
            });
            let (share, first) = (GroupShare::ALL, large(&heap, 1).unwrap());
            let share = GroupShare {
                most,
                demand,
                ..share
            };
            heap.limits().set_group(share, 0);
            let block = large(&heap, 4 * HUGE_SLICES).unwrap();
            let end = block.base.addr().get() + 4 * HUGE_BYTES;
            let said = heap.os().advice();
            let avoids = |said: &(usize, usize, Huge)| {
                said.2 == Huge::Avoid && (said.0..=said.0 + said.1).contains(&end)
            };
            assert_eq!(said.iter().any(avoids), is_small && huge_everywhere);
            assert_eq!(said.is_empty(), !(is_small && huge_everywhere));
            free(&heap, first, Dirty::AsBefore);
            assert_eq!(heap.check(), Ok(()));
        }
    }
}

#[test]
fn the_policy_is_told_to_the_kernel() {
    for (policy, advice) in [
        (HugePolicy::Never, Some(Huge::Avoid)),
        (HugePolicy::Always, Some(Huge::Want)),
        (HugePolicy::Auto, None),
    ] {
        for most_claimed in [0, 1 << 30] {
            let heap = heap(Conditions {
                most_claimed,
                ..Conditions::default()
            });
            heap.set_huge(policy);
            // Tags, groups and slices grow.
            let _ = [1, 20, 4500].map(|slices| large(&heap, slices));
            let said = heap.os().advice();
            let told: usize = said.iter().map(|said| said.1).sum();
            let all = advice.map_or(0, |_| heap.os().mapped());
            assert_eq!(told, all, "{policy:?} {most_claimed}");
            assert!(said.iter().all(|said| Some(said.2) == advice));
        }
    }
}

#[test]
fn locked_pages_stay_until_they_are_unlocked_or_asked_for() {
    let heap = roomy();
    heap.limits().set_hard(4 * MIB);
    let (first, wall) = (large(&heap, 32).unwrap(), large(&heap, 1).unwrap());
    heap.os().set_locked(true);
    free(&heap, first, Dirty::All);
    heap.os().advance(10_000);
    heap.tend();
    assert_eq!((purge_due(&heap), heap.purge_all()), (0, 0));
    assert_eq!((heap.purge_above(0), heap.os().calls(Call::Purge)), (0, 0));
    // Nor do they give way to a request that the limit then refuses.
    assert!(large(&heap, 48).is_none());
    // SAFETY: the test's own span.
    assert!(!unsafe { heap.purge_in_use(wall.base, SLICE_BYTES) });
    assert_eq!(heap.purge_locked(), 32 * SLICE_BYTES);
    let again = large(&heap, 32).unwrap();
    free(&heap, again, Dirty::All);
    heap.os().set_locked(false);
    heap.os().advance(10_000);
    assert_eq!(purge_due(&heap), 32 * SLICE_BYTES);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn kept_bytes_stay_at_any_age() {
    let heap = roomy();
    heap.limits().set_kept(usize::MAX);
    let span = large(&heap, 32).unwrap();
    free(&heap, span, Dirty::All);
    heap.os().advance(10_000);
    heap.tend();
    assert_eq!(purge_due(&heap), 0);
    heap.limits().set_kept(MIB);
    assert_eq!(purge_due(&heap), MIB);
    assert_eq!(heap.totals().free_dirty, MIB);
    assert_eq!(heap.purge_all(), MIB);
    assert_eq!(heap.check(), Ok(()));
}

/// How many ranges of one advice there are, as the kernel would have mappings for them.
fn ranges(heap: &PageHeap<Fake>) -> usize {
    let mut units = std::collections::BTreeMap::new();
    for (start, bytes, advice) in heap.os().advice() {
        if advice != Huge::Split {
            let range = (start..start + bytes).step_by(HUGE_BYTES);
            units.extend(range.map(|unit| (unit, advice)));
        }
    }
    let units: Vec<_> = units.into_values().collect();
    units.chunk_by(|one, next| one == next).count()
}

#[test]
fn units_that_end_here_and_there_part_few_mappings() {
    let heap = heap(Conditions {
        most_claimed: 1 << 30,
        ..Conditions::default()
    });
    let unit = |span: &Span<'_>| span.base.as_ptr().addr() / HUGE_BYTES;
    // One slab of each unit stays, so that the kernel keeps none of them whole.
    let is_last = |span: &Span<'_>| span.place.index % HUGE_SLICES == HUGE_SLICES - 1;
    let purge = |spans: Vec<Span<'_>>| {
        for span in spans {
            free(&heap, span, Dirty::All);
        }
        heap.os().advance(10_000);
        purge_due(&heap);
        assert_eq!(heap.totals().free_dirty, 0);
    };
    // The last time, units are opened where all were split.
    for part in [2, 1, 2] {
        let goes = |span: &Span<'_>| unit(span) % part == 0 && !is_last(span);
        let before = heap.os().advice().len();
        let spans: Vec<_> = (0..768 * MIB / SLICE_BYTES)
            .map(|_| slab(&heap).unwrap())
            .collect();
        let batches = heap.os().advice().len() - before;
        assert!(batches <= 48, "{batches} batches");
        let (gone, kept): (Vec<_>, _) = spans.into_iter().partition(goes);
        purge(gone);
        let said = &heap.os().advice()[before..];
        let split = said.iter().filter(|said| said.2 == Huge::Split).count();
        assert!(split > 100, "{split} were units");
        assert!(ranges(&heap) < 100, "{} ranges", ranges(&heap));
        purge(kept);
    }
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn units_that_no_slab_came_to_are_given_up_for_a_commit() {
    let heap = heap(Conditions {
        most_reserved: 1 << 30,
        most_committed: 100 * MIB,
        data_limit: Some(1 << 30),
        ..Conditions::default()
    });
    let said = || heap.os().advice().pop().unwrap_or((0, 0, Huge::Avoid));
    while said().1 < 4 * HUGE_BYTES {
        slab(&heap).unwrap();
    }
    // A batch of four units was opened. The room that is left does not do without the three that
    // are untouched.
    let left = 100 * MIB - heap.totals().committed;
    assert!(large(&heap, left / SLICE_BYTES + HUGE_SLICES).is_some());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn the_mirror_tells_how_long_a_growing_arena_is() {
    let heap = heap(Conditions {
        most_claimed: 256 * MIB,
        ..Conditions::default()
    });
    let words = |count| -> &'static [AtomicU64] {
        Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
    };
    let arenas = words(1 + 2 * 8);
    let figures = words(MIRROR_WORDS).try_into().unwrap();
    heap.set_mirror(Some(Mirror { figures, arenas }));
    let span = large(&heap, 20).unwrap();
    let told = |word: usize| arenas[word].load(Relaxed) as usize;
    let told_at = |span: &Span<'_>| {
        let end = span.base.as_ptr().addr() + span.slices * SLICE_BYTES;
        assert!((end - told(1)..end - told(1) + 4 * MIB).contains(&told(2)));
        assert_eq!(told(0), 1);
        let reserved = figures[MIRROR_WORDS - 4].load(Relaxed) as usize;
        assert_eq!(reserved, heap.totals().reserved);
    };
    told_at(&span);
    // The few slices of a small growth change no other figure by much.
    told_at(&large(&heap, 100 * MIB / SLICE_BYTES).unwrap());
    for _ in 0..100 {
        let span = large(&heap, 2).unwrap();
        assert!(span.base.as_ptr().addr() + 2 * SLICE_BYTES <= told(1) + told(2));
    }
}
