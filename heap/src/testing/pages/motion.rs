//! Memory in motion: what is given back and wanted again.

use super::{heap, large, purge_due};
use crate::base::policy::Driver;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::fake::{Conditions, Fake};
use crate::pages::{Dirty, PageHeap, Span, Use};
use std::boxed::Box;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// A heap with room, whose purge thread is the test.
fn roomy() -> Box<PageHeap<Fake>> {
    let heap = heap(Conditions {
        most_reserved: 256 * MIB,
        ..Conditions::default()
    });
    heap.limits().set_driver(Driver::Thread);
    heap.os().advance(10_000);
    heap
}

/// Writes to each page of a span that was just taken. The purge thread makes way for it.
fn fill(heap: &PageHeap<Fake>, span: &Span<'_>) {
    if heap.make_way(span.cold) {
        heap.purge_aged();
    }
    for page in 0..span.slices * SLICE_BYTES / PAGE {
        // SAFETY: the test's own span.
        unsafe { span.base.add(page * PAGE).write(1) };
    }
}

fn free(heap: &PageHeap<Fake>, span: Span<'_>) {
    // SAFETY: the test's own span, which it uses no more.
    unsafe { heap.free(span.base, Dirty::All) };
}

/// A span that was taken, filled and freed.
fn used(heap: &PageHeap<Fake>, slices: usize) {
    let span = large(heap, slices).unwrap();
    fill(heap, &span);
    free(heap, span);
}

/// Numbers below `n`.
fn random(mut state: u32) -> impl FnMut(usize) -> usize {
    move |n| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state as usize * n) >> 32
    }
}

/// Twenty buffers, one at random replaced by one of another size. Returns the bytes that were
/// used, those that were faulted in, and the most that were resident.
fn replace_buffers(heap: &PageHeap<Fake>, rounds: usize, ms: u64, seed: u32) -> [usize; 3] {
    let mut below = random(seed);
    let mut buffers: Vec<Option<Span<'_>>> = (0..20).map(|_| None).collect();
    let [mut asked, mut faulted, mut peak] = [0; 3];
    for _ in 0..rounds {
        let buffer = &mut buffers[below(20)];
        if let Some(old) = buffer.take() {
            free(heap, old);
        }
        let span = large(heap, 5 + below(20)).unwrap();
        peak = peak.max(heap.footprint().total());
        fill(heap, &span);
        asked += span.slices * SLICE_BYTES;
        faulted += span.cold;
        *buffer = Some(span);
        heap.os().advance(ms);
        purge_due(heap);
    }
    buffers
        .into_iter()
        .flatten()
        .for_each(|span| free(heap, span));
    [asked, faulted, peak]
}

#[test]
fn memory_in_motion_is_not_purged() {
    for seed in [1, 7, 42, 1234] {
        let heap = roomy();
        let [asked, faulted, peak] = replace_buffers(&heap, 2000, 2, seed);
        let totals = heap.totals();
        assert!(faulted < asked / 25, "{faulted} faulted in of {asked}");
        assert!(totals.purged_bytes < asked / 40, "{totals:?}");
        assert!(peak < 20 * 25 * SLICE_BYTES, "{peak} at the peak");
        assert_eq!(heap.check(), Ok(()));
    }
}

/// Pages that were moved into a span are mapped afresh when they leave it, those around them never.
#[test]
fn a_buffer_that_was_moved_keeps_its_pages_to_and_fro() {
    let heap = roomy();
    let [old, _wall, new] = [40, 1, 60].map(|slices| large(&heap, slices).unwrap());
    fill(&heap, &old);
    // SAFETY: both are the test's own.
    unsafe { heap.move_pages(old.base, new.base, 40 * SLICE_BYTES, 1) }.unwrap();
    free(&heap, old);
    // SAFETY: the test's own span, 60 slices long whenever this is called.
    let page = |slice: usize| unsafe { new.base.add(slice * SLICE_BYTES) };
    for (shorter, kept) in [(50, 55), (20, 55), (20, 30), (30, 35)] {
        // SAFETY: as above; the span becomes shorter, and then as long as it was.
        unsafe {
            page(kept).write(7);
            heap.shrink_in_place(new.base, shorter, shorter * SLICE_BYTES, Dirty::All);
            heap.grow_in_place(new.base, 60, 60 * SLICE_BYTES).unwrap();
            assert_eq!(page(kept).read(), 7, "{shorter} {kept}");
        }
    }
    free(&heap, new);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn slow_motion_is_not_purged_by_its_age() {
    let heap = roomy();
    // A free span waits some seconds for a buffer that it suits.
    let [asked, faulted, _] = replace_buffers(&heap, 2000, 100, 5);
    assert!(faulted < asked / 8, "{faulted} faulted in of {asked}");
}

/// Bursts of blocks that end a little beyond a slice, and a slab that stays from each burst.
#[test]
fn the_tails_of_blocks_stay_untouched() {
    let (heap, bytes) = (roomy(), SLICE_BYTES + 8);
    let pages_of_a_block = bytes.div_ceil(4096);
    for _ in 0..6 {
        heap.alloc(1, 1, Use::Slab, SLICE_BYTES).unwrap();
        let blocks = (0..100).map(|_| heap.alloc(2, 1, Use::Large, bytes).unwrap());
        for block in blocks.collect::<Vec<_>>() {
            // SAFETY: the span is ours, and its requested bytes were written.
            unsafe { heap.free(block.base, Dirty::Prefix(bytes)) };
        }
    }
    let dirty = heap.totals().free_dirty / 4096;
    let needed = 100 * pages_of_a_block;
    assert!(dirty < needed * 11 / 10, "{dirty} pages, {needed} needed");
    assert_eq!(heap.check(), Ok(()));
}

/// How many blocks of `slices` slices find room in a small heap, each `tail` bytes shorter.
fn fitting(slices: usize, tail: usize) -> usize {
    let heap = heap(Conditions {
        most_reserved: 2 * MIB,
        ..Conditions::default()
    });
    let bytes = slices * SLICE_BYTES - tail;
    (0..)
        .take_while(|_| heap.alloc(slices, 1, Use::Large, bytes).is_some())
        .count()
}

#[test]
fn as_many_blocks_with_tails_find_room_as_without() {
    for slices in 2..=8 {
        let [with, without] = [SLICE_BYTES / 2, 0].map(|tail| fitting(slices, tail));
        assert_eq!(with, without, "{slices} slices");
    }
}

/// The pages of a crowd of stacks, one in each slice, become one block.
#[test]
fn pages_of_stacks_make_way_for_a_block() {
    let heap = roomy();
    let take = |_| heap.alloc(1, 1, Use::Stack, SLICE_BYTES).unwrap();
    let stacks: Vec<_> = (0..800).map(take).collect();
    for stack in stacks {
        // SAFETY: the test's own span, of which a page is used.
        unsafe {
            stack.base.write(1);
            heap.free(stack.base, Dirty::Prefix(PAGE));
        }
    }
    let before = heap.footprint().total();
    assert_eq!(before, 800 * PAGE);
    let block = large(&heap, 25).unwrap();
    fill(&heap, &block);
    let after = heap.footprint().total();
    assert!(after <= before + before / 64, "{before} grew to {after}");
    assert_eq!(heap.totals().regretted_bytes, 0);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_purge_is_regretted_once() {
    let heap = roomy();
    used(&heap, 40);
    heap.os().advance(1000);
    assert_eq!(purge_due(&heap), 40 * SLICE_BYTES);
    heap.os().advance(400);
    let regretted = || heap.totals().regretted_bytes;
    let first = large(&heap, 10).unwrap();
    assert_eq!(regretted(), 10 * SLICE_BYTES);
    let second = large(&heap, 100).unwrap();
    assert_eq!(regretted(), 40 * SLICE_BYTES);
    let third = large(&heap, 100).unwrap();
    assert_eq!(regretted(), 40 * SLICE_BYTES);
    for span in [first, second, third] {
        free(&heap, span);
    }
}

#[test]
fn late_and_requested_purges_are_not_regretted() {
    let heap = roomy();
    used(&heap, 40);
    heap.os().advance(1000);
    assert_eq!(purge_due(&heap), 40 * SLICE_BYTES);
    heap.os().advance(1000);
    used(&heap, 40);
    assert_eq!(heap.totals().regretted_bytes, 0, "a decay time later");
    assert_eq!(heap.purge_all(), 40 * SLICE_BYTES);
    used(&heap, 40);
    assert_eq!(heap.totals().regretted_bytes, 0, "the program asked for it");
}

#[test]
fn a_stack_regrets_few_pages() {
    let heap = roomy();
    used(&heap, 40);
    heap.os().advance(1000);
    purge_due(&heap);
    let stack = heap.alloc(16, 1, Use::Stack, 16 * SLICE_BYTES).unwrap();
    assert_eq!(heap.totals().regretted_bytes, 2 * PAGE);
    free(&heap, stack);
}

/// How long 40 slices stay resident, in ms, while a slice elsewhere comes and goes.
fn stays(heap: &PageHeap<Fake>) -> u64 {
    used(heap, 40);
    let (freed, before) = (heap.os().now_ms(), heap.totals().purged_bytes);
    while heap.totals().purged_bytes == before {
        heap.os().advance(50);
        used(heap, 1);
        purge_due(heap);
    }
    assert_eq!(heap.totals().purged_bytes - before, 40 * SLICE_BYTES);
    heap.os().now_ms() - freed
}

/// A heap with a free slice and 40 free slices, apart.
fn two_rooms() -> Box<PageHeap<Fake>> {
    let heap = roomy();
    let [one, wall, many, _end] = [1, 1, 40, 1].map(|slices| large(&heap, slices).unwrap());
    let _ = wall;
    free(&heap, one);
    free(&heap, many);
    heap
}

#[test]
fn free_spans_of_a_program_at_work_stay_for_two_decay_times() {
    let heap = two_rooms();
    assert_eq!(stays(&heap), 2000);
    assert_eq!(stays(&heap), 2000);
}

#[test]
fn a_program_that_rests_keeps_nothing_longer() {
    let heap = two_rooms();
    stays(&heap);
    used(&heap, 40);
    heap.os().advance(990);
    assert_eq!(purge_due(&heap), 0);
    heap.os().advance(10);
    assert_eq!(purge_due(&heap), 41 * SLICE_BYTES);
    assert_eq!(heap.next_purge(), None);
}

#[test]
fn an_order_to_make_way_is_done_with_what_was_free_when_it_came() {
    let heap = roomy();
    let spans = [16, 64].map(|mib| large(&heap, mib * MIB / SLICE_BYTES).unwrap());
    spans.iter().for_each(|span| fill(&heap, span));
    let [first, second] = spans;
    free(&heap, first);
    let stopped = heap.os().stop_purges();
    std::thread::scope(|scope| {
        let order = scope.spawn(|| heap.purge_above(0));
        while !heap.os().is_purging() {
            std::thread::yield_now();
        }
        free(&heap, second);
        drop(stopped);
        assert_eq!(order.join().unwrap(), 16 * MIB);
    });
}
