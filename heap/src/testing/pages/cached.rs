//! Cached spans of large blocks, on the fake system.

use super::large;
use crate::base::policy::{CACHE_SHARD_BYTES, CACHE_SHARDS, Scope};
use crate::base::sync::plain::{AtomicBool, AtomicU64, Ordering};
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::fake::{Conditions, Fake};
use crate::pages::{
    Age, Dirty, GroupShare, Kept, MIRROR_WORDS, Mirror, PageHeap, SliceRef, Span, Use,
};
use std::boxed::Box;
use std::sync::Barrier;
use std::time::Duration;
use std::vec::Vec;

const YES: Kept = Kept::Yes;

fn growth(slices: usize) -> Kept {
    Kept::Due(slices * SLICE_BYTES)
}

/// A heap of which a thread has asked for a span.
fn heap(conditions: Conditions) -> Box<PageHeap<Fake>> {
    let heap = super::heap(conditions);
    assert!(take(&heap, 1).is_none());
    heap
}

/// Frees a span into the cache.
fn keep(heap: &PageHeap<Fake>, place: &SliceRef<'_>) -> Kept {
    keep_in(heap, 0, place)
}

/// [`keep`] by a thread of another shard.
fn keep_in(heap: &PageHeap<Fake>, shard: usize, place: &SliceRef<'_>) -> Kept {
    // SAFETY: the span is the test's, and has no tag.
    match unsafe { heap.keep_cached(shard, place) } {
        // SAFETY: as above.
        Kept::No => unsafe { heap.keep_late(shard, place) },
        kept => kept,
    }
}

fn take(heap: &PageHeap<Fake>, slices: usize) -> Option<SliceRef<'_>> {
    let size = slices * SLICE_BYTES;
    let found = heap
        .take_cached(0, size)
        .or_else(|| heap.take_others(0, size));
    found.map(|(place, _)| place)
}

fn spans(heap: &PageHeap<Fake>, lengths: impl Iterator<Item = usize>) -> Vec<Span<'_>> {
    lengths.map(|slices| large(heap, slices).unwrap()).collect()
}

fn cached(heap: &PageHeap<Fake>) -> usize {
    heap.tables.cache.totals().spans
}

fn figures(heap: &PageHeap<Fake>) -> (usize, usize, usize) {
    let totals = heap.totals();
    let by = totals.by_use[Use::Large as usize - 1];
    (by.spans, totals.in_use, totals.free_dirty)
}

#[test]
fn a_cached_span_serves_the_next_request_of_its_length_only() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 3).unwrap();
    assert_eq!(keep(&heap, &span.place), growth(3));
    assert!(take(&heap, 2).is_none());
    let (again, bytes) = heap.take_cached(0, 2 * SLICE_BYTES + 1).unwrap();
    assert_eq!(again.pointer(), span.base);
    assert_eq!(bytes, 3 * SLICE_BYTES, "those of the former user");
    assert!(take(&heap, 3).is_none());
    assert!(heap.take_cached(0, 0).is_none() && heap.take_cached(0, usize::MAX).is_none());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn what_is_cached_counts_as_free_and_dirty() {
    let heap = heap(Conditions::default());
    let spans = spans(&heap, 1..5);
    assert_eq!(figures(&heap), (4, 10 * SLICE_BYTES, 0));
    for span in &spans {
        assert_ne!(keep(&heap, &span.place), Kept::No);
    }
    assert_eq!(figures(&heap), (0, 0, 10 * SLICE_BYTES));
    heap.release_cached(0, Scope::All, Age::New);
    assert_eq!(figures(&heap), (0, 0, 10 * SLICE_BYTES));
    assert_eq!(heap.cached_bytes(), 0);
    assert_eq!(heap.check(), Ok(()));
    assert_eq!(heap.locked().inner.counts.used_slices, 0);
}

/// The mirror is what the status page shows.
#[test]
fn the_mirror_counts_what_is_cached_as_free_after_each_round() {
    let heap = heap(Conditions::default());
    let words = |count| -> &'static [AtomicU64] {
        Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
    };
    let figures: &'static [AtomicU64; MIRROR_WORDS] = words(MIRROR_WORDS).try_into().unwrap();
    let span = large(&heap, 3).unwrap();
    let told = || figures[1..].iter().map(|word| word.load(Ordering::Relaxed));
    let told = || told().collect::<Vec<_>>();
    heap.set_mirror(Some(Mirror {
        figures,
        arenas: words(1 + 2 * 8),
    }));
    let in_use = told();
    assert_ne!(keep(&heap, &span.place), Kept::No);
    heap.refresh_mirror();
    let cached = told();
    heap.release_cached(0, Scope::All, Age::New);
    heap.refresh_mirror();
    assert_eq!(told(), cached, "as if the span were free");
    assert_ne!(in_use, cached);
}

#[test]
fn what_no_request_needs_for_two_rounds_goes() {
    let heap = heap(Conditions::default());
    for span in spans(&heap, [1, 1, 1, 2].into_iter()) {
        assert_ne!(keep(&heap, &span.place), Kept::No);
    }
    let round = || heap.release_cached(0, Scope::Idle, Age::Old);
    assert!(!round());
    let taken = take(&heap, 1).unwrap();
    assert_eq!(keep(&heap, &taken), YES);
    assert!(!round());
    assert_eq!(cached(&heap), 4, "all came in the last two rounds");
    assert!(round());
    assert_eq!(cached(&heap), 1, "one was needed");
    assert!(round());
    assert_eq!(heap.cached_bytes(), 0);
    assert_eq!(heap.check(), Ok(()));
    let span = large(&heap, 1).unwrap();
    assert!(take(&heap, 1).is_none());
    assert_eq!(keep(&heap, &span.place), growth(1), "again growth");
}

#[test]
fn nothing_is_kept_for_threads_that_only_free() {
    let heap = super::heap(Conditions::default());
    let span = large(&heap, 3).unwrap();
    assert_eq!(keep(&heap, &span.place), Kept::No);
    assert!(take(&heap, 1).is_none());
    heap.release_cached(0, Scope::Idle, Age::Old);
    assert_ne!(keep(&heap, &span.place), Kept::No, "one asked a round ago");
    assert!(take(&heap, 3).is_some());
    heap.release_cached(0, Scope::Idle, Age::Old);
    heap.release_cached(0, Scope::Idle, Age::Old);
    assert_eq!(keep(&heap, &span.place), Kept::No);
}

#[test]
fn a_thread_takes_what_threads_of_other_shards_freed_on_its_node() {
    let heap = heap(Conditions::default());
    for shard in [3, 15] {
        let span = large(&heap, 2).unwrap();
        assert_eq!(keep_in(&heap, shard, &span.place), growth(2));
    }
    let turn = heap.tables.cache.shard(3).0.turn();
    assert!(take(&heap, 2).is_some() && take(&heap, 2).is_none());
    drop(turn);
    assert!(take(&heap, 2).is_some());
    let far = large(&heap, 2).unwrap().place;
    far.record().place(0, far.index, 1);
    assert_ne!(keep_in(&heap, 3, &far), Kept::No);
    assert!(take(&heap, 2).is_none());
    assert!(heap.take_cached(3, 2 * SLICE_BYTES).is_some());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_thread_brings_more_spans_from_another_shard() {
    let heap = heap(Conditions::default());
    let cases = [
        (1, 10, 7),
        (2, 5, 3),
        (3, 4, 1),
        (4, 2, 1),
        (5, 3, 0),
        (1, 2, 1),
    ];
    for (own, (slices, count, brought)) in (4..).zip(cases) {
        for span in spans(&heap, std::iter::repeat_n(slices, count)) {
            assert_eq!(keep_in(&heap, 3, &span.place), growth(slices));
        }
        let size = slices * SLICE_BYTES;
        assert!(heap.take_others(own, size).is_some());
        let next = || heap.take_cached(own, size);
        assert_eq!(std::iter::from_fn(next).count(), brought, "{slices}");
        assert_eq!(cached(&heap), count - 1 - brought);
        heap.release_cached(3, Scope::All, Age::New);
        heap.release_cached(own, Scope::Idle, Age::Old);
    }
    assert_eq!((heap.cached_bytes(), heap.check()), (0, Ok(())));
    let share = heap.tables.cache.share(1);
    assert_eq!(share, 4, "no shard counts as one with spans");
}

#[test]
fn a_shard_that_was_emptied_serves_others_again() {
    let heap = heap(Conditions::default());
    for _ in 0..2 {
        heap.release_cached(3, Scope::All, Age::New);
        let span = large(&heap, 2).unwrap();
        assert_eq!(keep_in(&heap, 3, &span.place), growth(2));
    }
    assert!(take(&heap, 2).is_some());
}

#[test]
fn bounds_that_leave_no_room_empty_the_cache() {
    let heap = heap(Conditions::default());
    for span in spans(&heap, 1..4) {
        assert_ne!(keep(&heap, &span.place), Kept::No);
    }
    heap.heed_bounds();
    assert_eq!(cached(&heap), 3);
    heap.limits().set_dirty(0);
    heap.heed_bounds();
    assert_eq!((cached(&heap), heap.totals().free_dirty), (0, 0));
}

#[test]
fn what_former_users_wrote_is_dirty() {
    let heap = heap(Conditions::default());
    let span = large(&heap, 2).unwrap();
    keep(&heap, &span.place);
    let again = take(&heap, 2).unwrap();
    // SAFETY: the span is the test's.
    unsafe { heap.restate(&again, SLICE_BYTES + 1) };
    assert_eq!(again.bytes(), SLICE_BYTES + heap.os().page_bytes());
    // SAFETY: as above.
    unsafe { heap.free(span.base, Dirty::Prefix(again.bytes())) };
    assert_eq!(heap.totals().free_dirty, 2 * SLICE_BYTES);
}

#[test]
fn what_is_too_long_or_too_much_is_refused_and_all_while_free_memory_is_bounded() {
    let heap = heap(Conditions::default());
    let most = 4 * 16 * CACHE_SHARDS * SLICE_BYTES * 8;
    let share = GroupShare {
        most,
        ..GroupShare::ALL
    };
    heap.limits().set_group(share, 0);
    let spans = spans(&heap, [16; 17].into_iter());
    let kept: Vec<_> = spans.iter().map(|span| keep(&heap, &span.place)).collect();
    assert_eq!(
        kept[..16],
        [growth(16); 16],
        "the others leave it their rooms"
    );
    assert_eq!(kept[16], Kept::No);
    let (long, other) = (large(&heap, 65).unwrap(), large(&heap, 1).unwrap());
    heap.release_cached(0, Scope::All, Age::New);
    assert_eq!(keep(&heap, &long.place), Kept::No);
    let limits = heap.limits();
    limits.set_dirty(1 << 20);
    assert_eq!(keep(&heap, &other.place), Kept::No);
    limits.set_dirty(usize::MAX);
    limits.set_pressed(true);
    assert_eq!(keep(&heap, &other.place), Kept::No);
    limits.set_pressed(false);
    assert_ne!(keep(&heap, &other.place), Kept::No);
    assert!(take(&heap, 1).is_some());
    limits.set_pressed(true);
    assert_eq!(
        keep(&heap, &other.place),
        Kept::No,
        "not even what was there before"
    );
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_shard_takes_nothing_beyond_its_share_once_others_have_spans() {
    let heap = heap(Conditions::default());
    let most = 4 * 16 * CACHE_SHARDS * SLICE_BYTES * 8;
    let share = GroupShare {
        most,
        ..GroupShare::ALL
    };
    heap.limits().set_group(share, 0);
    for span in spans(&heap, [16; 16].into_iter()) {
        assert_eq!(keep(&heap, &span.place), growth(16));
    }
    for shard in 1..CACHE_SHARDS {
        let span = large(&heap, 1).unwrap();
        assert_eq!(keep_in(&heap, shard, &span.place), growth(1));
    }
    assert!(!heap.release_cached(0, Scope::Idle, Age::Old));
    let (taken, _) = heap.take_cached(0, 16 * SLICE_BYTES).unwrap();
    assert_eq!(keep(&heap, &taken), Kept::No);
    let more = spans(&heap, [16; 4].into_iter());
    let kept = more.iter().map(|span| keep_in(&heap, 1, &span.place));
    assert!(
        kept.eq([growth(16), growth(16), growth(16), Kept::No]),
        "64 slices each"
    );
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_control_group_lowers_the_bound() {
    let heap = heap(Conditions::default());
    let slices = |most| {
        heap.limits().set_group(
            GroupShare {
                most,
                ..GroupShare::ALL
            },
            0,
        );
        heap.limits().cache_slices()
    };
    assert_eq!(slices(usize::MAX), CACHE_SHARD_BYTES / SLICE_BYTES);
    assert_eq!(slices(256 << 20) * CACHE_SHARDS * SLICE_BYTES, 32 << 20);
    assert_eq!(slices(1 << 20), 0);
}

#[test]
fn a_request_that_finds_no_room_takes_what_is_cached() {
    let heap = heap(Conditions::default());
    for span in spans(&heap, [32; 8].into_iter()) {
        assert_ne!(keep(&heap, &span.place), Kept::No);
    }
    heap.limits().set_hard(heap.footprint().total());
    assert!(large(&heap, 40).is_some());
    assert_eq!(heap.cached_bytes(), 0);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn now_and_then_a_free_ends_a_slow_path() {
    let heap = heap(Conditions::default());
    let mut place = large(&heap, 1).unwrap().place;
    assert_eq!(keep(&heap, &place), growth(1));
    let mut due = 0;
    for _ in 0..2048 {
        place = take(&heap, 1).unwrap();
        due += usize::from(keep(&heap, &place) == Kept::Due(32 << 20));
    }
    assert_eq!(due, 4);
}

#[test]
fn who_does_not_get_a_turn_leaves_it_to_its_holder() {
    let heap = heap(Conditions::default());
    let spans = spans(&heap, [1, 1].into_iter());
    assert_eq!(keep(&heap, &spans[0].place), growth(1));
    let turn = heap.tables.cache.shard(0).0.turn();
    assert!(turn.is_some());
    for _ in 0..2 {
        assert!(take(&heap, 1).is_none());
        assert_eq!(keep(&heap, &spans[1].place), Kept::No);
        heap.release_cached(0, Scope::All, Age::New);
        assert_eq!(cached(&heap), 1);
    }
    drop(turn);
    assert!(take(&heap, 1).is_some());
}

#[test]
fn who_takes_all_waits_for_a_turn() {
    let heap = heap(Conditions::default());
    keep(&heap, &large(&heap, 1).unwrap().place);
    let (turns, holds) = (heap.tables.cache.shard(0).0, Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let turn = turns.turn();
            holds.wait();
            std::thread::sleep(Duration::from_millis(1));
            drop(turn);
        });
        holds.wait();
        assert!(heap.release_cached(0, Scope::All, Age::New));
    });
    assert_eq!((heap.cached_bytes(), heap.check()), (0, Ok(())));
}

#[test]
fn a_forks_child_ends_the_turns_that_it_inherits() {
    let heap = heap(Conditions::default());
    let spans = spans(&heap, 1..3);
    for span in &spans {
        keep(&heap, &span.place);
    }
    let (shard, _) = heap.tables.cache.shard(0);
    std::thread::scope(|scope| {
        scope.spawn(|| core::mem::forget(shard.turn()));
    });
    let before = heap.tables.cache.totals();
    shard.miscount();
    heap.after_fork_in_child();
    assert_eq!(heap.tables.cache.totals(), before, "counted anew");
    assert!(take(&heap, 2).is_some());
    // What the caller was changing, below a handler of signals, it goes on changing.
    core::mem::forget(shard.turn());
    heap.after_fork_in_child();
    assert!(take(&heap, 1).is_none());
}

#[test]
fn threads_that_share_a_shard_never_share_a_span() {
    let heap = heap(Conditions::default());
    let spans = spans(&heap, [1; 8].into_iter());
    let first = spans[0].place.slice_base();
    for span in &spans {
        keep(&heap, &span.place);
    }
    let used = [const { AtomicBool::new(false) }; 64];
    let work = || {
        for _ in 0..20_000 {
            let Some(place) = take(&heap, 1) else {
                continue;
            };
            let number = (place.slice_base() - first) / SLICE_BYTES;
            assert!(!used[number].swap(true, Ordering::Relaxed), "two have it");
            used[number].store(false, Ordering::Relaxed);
            while keep(&heap, &place) == Kept::No {}
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| _ = scope.spawn(work));
        for _ in 0..100 {
            assert!(cached(&heap) <= 8 + 4);
        }
    });
    assert_eq!(cached(&heap), 8);
    heap.release_cached(0, Scope::All, Age::New);
    assert_eq!(heap.check(), Ok(()));
}
