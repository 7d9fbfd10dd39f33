//! How `calloc` makes a span zero, on the fake system, which counts queries and purges.

use super::{heap, large};
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions, Fake};
use crate::os::{Answers, Backing};
use crate::pages::{Dirty, PageHeap, ZeroingTotals};
use crate::testing::is_zero;
use std::vec::Vec;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Allocates a zeroed block of `bytes`, lets `touch` write to any of it, and frees it. Returns what
/// that cost.
fn round(heap: &PageHeap<Fake>, bytes: usize, touch: impl Fn(usize) -> bool) -> ZeroingTotals {
    let before = heap.totals().zeroing;
    let span = large(heap, bytes.div_ceil(SLICE_BYTES)).unwrap();
    // SAFETY: the span is ours, and that long.
    unsafe {
        heap.zero_dirty(span.base, bytes);
        let contents = core::slice::from_raw_parts(span.base.as_ptr(), bytes);
        assert!(is_zero(contents), "not zero");
        for page in (0..bytes / PAGE).filter(|&page| touch(page)) {
            span.base.add(page * PAGE).write(1);
        }
        heap.free(span.base, Dirty::Prefix(bytes));
    }
    assert_eq!(heap.check(), Ok(()));
    let after = heap.totals().zeroing;
    ZeroingTotals {
        written: after.written - before.written,
        spared: after.spared - before.spared,
        purged: after.purged - before.purged,
        asked: after.asked - before.asked,
        unknown: after.unknown - before.unknown,
    }
}

fn roomy() -> Conditions {
    Conditions {
        most_reserved: 256 * MIB,
        ..Conditions::default()
    }
}

fn spent(written: usize, purged: usize, asked: usize) -> (usize, usize, usize) {
    (written, purged, asked)
}

fn of(totals: ZeroingTotals) -> (usize, usize, usize) {
    spent(totals.written, totals.purged, totals.asked)
}

#[test]
fn only_what_was_touched_is_written() {
    for bytes in [MIB, 10 * MIB, 64 * MIB] {
        let heap = heap(roomy());
        let head = |page| page < 16;
        round(&heap, bytes, head);
        for _ in 0..20 {
            let cost = round(&heap, bytes, head);
            assert_eq!(of(cost), spent(16 * PAGE, 0, 1));
            assert_eq!(cost.spared, bytes - 16 * PAGE);
        }
    }
}

#[test]
fn a_short_block_is_written_without_a_query() {
    let heap = heap(roomy());
    round(&heap, 64 << 10, |_| false);
    let cost = round(&heap, 64 << 10, |_| false);
    assert_eq!(of(cost), spent(64 << 10, 0, 0));
}

/// The pages of a short block that are known to be clean stay unwritten, wherever they are.
#[test]
fn clean_pages_among_dirty_ones_are_spared() {
    for clean in [0, 1, 0b110, 0x8000, 0x8001, 0x5555, 0xaaaa, 0xffff_u16] {
        let heap = heap(roomy());
        let span = large(&heap, 1).unwrap();
        // SAFETY: the span is ours, and every page that is not clean is written.
        unsafe {
            for page in (0..16).filter(|page| clean & 1 << page == 0) {
                span.base.add(page * PAGE).write_bytes(1, PAGE);
            }
            let bytes = SLICE_BYTES;
            heap.free(span.base, Dirty::PrefixBut { bytes, clean });
        }
        for bytes in [SLICE_BYTES - PAGE / 2, SLICE_BYTES] {
            let dirty = (0..16).filter(|page| clean & 1 << page == 0);
            let written = dirty.map(|page| PAGE.min(bytes - page * PAGE)).sum();
            let cost = round(&heap, bytes, |_| false);
            assert_eq!(of(cost), spent(written, 0, 0), "{clean:x}");
            assert_eq!(cost.spared, bytes - written);
            let again = large(&heap, 1).unwrap();
            // SAFETY: the span is ours.
            unsafe {
                let bytes = SLICE_BYTES;
                heap.free(again.base, Dirty::PrefixBut { bytes, clean });
            }
        }
    }
}

#[test]
fn a_block_that_never_was_handed_out_costs_nothing() {
    let heap = heap(roomy());
    assert_eq!(of(round(&heap, 10 * MIB, |_| true)), spent(0, 0, 0));
    heap.purge_all();
    assert_eq!(of(round(&heap, 10 * MIB, |_| true)), spent(0, 0, 0));
}

#[test]
fn untouched_blocks_are_queried_seldom_and_never_written() {
    let heap = heap(roomy());
    round(&heap, 10 * MIB, |_| false);
    let costs: std::vec::Vec<_> = (0..100)
        .map(|_| round(&heap, 10 * MIB, |_| false))
        .collect();
    assert!(costs.iter().all(|cost| cost.written == 0));
    let asked = costs.iter().map(|cost| cost.asked).sum::<usize>();
    assert!((32..32 + 100 / 8).contains(&asked), "{asked}");
    // Neap notices a program that does touch the block, and then no longer purges it.
    for _ in 0..8 {
        round(&heap, 10 * MIB, |page| page < 16);
    }
    let cost = round(&heap, 10 * MIB, |page| page < 16);
    assert_eq!(of(cost), spent(16 * PAGE, 0, 1));
}

#[test]
fn full_blocks_are_queried_by_probes_and_never_purged() {
    for bytes in [MIB, 64 * MIB] {
        let heap = heap(roomy());
        round(&heap, bytes, |_| true);
        let samples = 16 * PAGE;
        for _ in 0..100 {
            let cost = round(&heap, bytes, |_| true);
            assert_eq!((cost.written, cost.spared), (bytes, 0));
            assert!(cost.purged <= samples && cost.asked <= 5, "{cost:?}");
        }
    }
}

#[test]
fn an_idle_block_is_purged_soon() {
    for bytes in [2 * MIB, 10 * MIB, 64 * MIB] {
        let heap = heap(roomy());
        for _ in 0..50 {
            round(&heap, bytes, |_| true);
        }
        let head = |page| page < 4;
        let rounds = (0..64).take_while(|_| round(&heap, bytes, head).purged < bytes);
        let rounds = rounds.count();
        assert!(rounds < 64, "written for nothing again and again");
        assert!(round(&heap, bytes, head).written <= 4 * PAGE);
    }
}

/// Used in full in one round of a few: only samples are given back.
#[test]
fn a_block_used_now_and_then_is_not_purged() {
    for period in [2, 3, 4, 6, 8, 16] {
        let heap = heap(roomy());
        round(&heap, 16 * MIB, |_| true);
        let mut purged = 0;
        for number in 0..20 * period {
            let cost = round(&heap, 16 * MIB, |_| number % period == 0);
            purged += cost.purged;
        }
        assert!(purged <= 20 * period * 16 * PAGE, "{period}: {purged}");
    }
}

#[test]
fn a_few_untouched_rounds_predict_nothing() {
    let heap = heap(roomy());
    for _ in 0..10 {
        round(&heap, 16 * MIB, |_| false);
    }
    round(&heap, 16 * MIB, |_| true);
    let cost = round(&heap, 16 * MIB, |_| true);
    assert_eq!(cost.written, 16 * MIB);
    assert!(cost.purged <= 16 * PAGE, "{cost:?}");
}

#[test]
fn what_is_in_swap_is_purged_and_not_read() {
    let heap = heap(Conditions {
        swapped: 1,
        ..roomy()
    });
    round(&heap, MIB, |page| page % 2 == 0);
    let cost = round(&heap, MIB, |page| page % 2 == 0);
    assert_eq!(of(cost), spent(0, MIB / 2, 1));
    heap.os().fail(Call::Purge, 0, u32::MAX);
    let cost = round(&heap, MIB, |_| false);
    assert_eq!(of(cost), spent(MIB / 2, 0, 1));
}

/// After a read or a fork. What is shared is neither read nor copied.
#[test]
fn what_is_shared_is_purged_and_not_written() {
    let heap = heap(Conditions {
        backing: Backing::Shared,
        ..roomy()
    });
    round(&heap, MIB, |page| page % 2 == 0);
    let cost = round(&heap, MIB, |page| page % 2 == 0);
    assert_eq!(of(cost), spent(0, MIB / 2, 1));
}

/// As before Linux 6.7: a query of 100 MiB takes longer there than to map them afresh.
#[test]
fn a_kernel_that_answers_page_by_page_is_not_asked_about_long_runs() {
    let heap = heap(Conditions {
        answers: Answers::Pages,
        ..roomy()
    });
    let head = |page| page < 16;
    round(&heap, 64 * MIB, head);
    for number in 0..50 {
        let cost = round(&heap, 64 * MIB, head);
        let wanted = match number % 32 {
            0 => spent(0, 64 * MIB, 1),
            _ => spent(16 * PAGE, 63 * MIB, 2),
        };
        assert_eq!(of(cost), wanted);
    }
    round(&heap, 64 * MIB, |_| true);
    assert_eq!(of(round(&heap, 64 * MIB, |_| true)), spent(64 * MIB, 0, 4));
    heap.purge_all();
    round(&heap, 16 * MIB, head);
    assert_eq!(of(round(&heap, 16 * MIB, head)), spent(16 * PAGE, 0, 1));
}

/// On such a kernel, what a neighbour's huge page made resident is not written again and again, and
/// a block that no one touches is soon purged without a query.
#[test]
fn what_a_neighbour_made_resident_is_not_written_where_pages_are_told_one_by_one() {
    let heap = heap(Conditions {
        answers: Answers::Pages,
        ..roomy()
    });
    round(&heap, 64 * MIB, |page| page < 112);
    assert_eq!(of(round(&heap, 64 * MIB, |_| false)), spent(0, 64 * MIB, 1));
    let costs = (0..100).map(|_| round(&heap, 64 * MIB, |_| false));
    let costs: Vec<_> = costs.collect();
    assert!(costs.iter().all(|cost| cost.written == 0), "{costs:?}");
    let asked = costs[40..].iter().filter(|cost| cost.asked > 0);
    assert!(asked.count() <= 60 / 8 + 1, "{costs:?}");
}

/// A neighbour's huge page that reaches into the block is not written again and again.
#[test]
fn the_edge_of_a_huge_page_is_purged_where_little_is_resident() {
    let heap = heap(Conditions {
        backing: Backing::HugePage,
        ..roomy()
    });
    let bytes = 64 * MIB;
    // So that the block begins within a huge page.
    let _shift = large(&heap, 1).unwrap();
    round(&heap, bytes, |_| true);
    // All of it is resident: written, whatever it begins with.
    let cost = round(&heap, bytes, |page| page < 16);
    assert!(
        cost.written >= bytes && cost.purged <= 16 * PAGE,
        "{cost:?}"
    );
    heap.purge_all();
    let touched = |page: usize| page < 16 || page == 5_000;
    round(&heap, bytes, touched);
    let cost = round(&heap, bytes, touched);
    assert_eq!(cost.written, PAGE, "the page in the middle");
    assert!(
        cost.purged < 2 * MIB && cost.purged >= 16 * PAGE,
        "{cost:?}"
    );
}

#[test]
fn without_answers_short_is_written_and_long_purged() {
    let heap = heap(roomy());
    heap.os().fail(Call::Ask, 0, u32::MAX);
    for (bytes, written) in [(MIB, MIB), (64 * MIB, 0)] {
        round(&heap, bytes, |_| true);
        let cost = round(&heap, bytes, |_| true);
        assert_eq!(of(cost), spent(written, bytes - written, 0));
        assert_eq!(cost.unknown, 1);
    }
}

#[test]
fn an_answer_that_ends_in_the_middle_counts_up_to_there() {
    let heap = heap(roomy());
    round(&heap, MIB, |page| page == 0 || page == 200);
    heap.os().fail(Call::Ask, 100, 1);
    let cost = round(&heap, MIB, |_| false);
    assert_eq!(of(cost), spent(PAGE + (256 - 100) * PAGE, 0, 1));
}

#[test]
fn a_refused_purge_is_written_instead() {
    let heap = heap(roomy());
    heap.os().fail(Call::Ask, 0, u32::MAX);
    heap.os().fail(Call::Purge, 0, u32::MAX);
    round(&heap, 64 * MIB, |_| true);
    assert_eq!(of(round(&heap, 64 * MIB, |_| true)), spent(64 * MIB, 0, 0));
}

#[test]
fn a_part_of_a_large_freed_block_is_asked_about_too() {
    let heap = heap(roomy());
    round(&heap, 64 * MIB, |page| page % 64 == 0);
    // Its masks were never written: the parts are as dirty as the whole.
    let cost = round(&heap, 8 * MIB, |_| false);
    assert_eq!(of(cost), spent(8 * MIB / 64, 0, 1));
    let short = round(&heap, SLICE_BYTES, |_| false);
    assert_eq!(of(short), spent(SLICE_BYTES, 0, 0));
}

#[test]
fn a_large_freed_block_is_purged_whole() {
    let heap = heap(roomy());
    let span = large(&heap, 64).unwrap();
    // SAFETY: the span is ours.
    unsafe { heap.free(span.base, Dirty::All) };
    assert_eq!(heap.totals().free_dirty, 64 * SLICE_BYTES);
    assert_eq!(heap.purge_all(), 64 * SLICE_BYTES);
    assert_eq!((heap.totals().free_dirty, heap.check()), (0, Ok(())));
}
