//! Two NUMA nodes, on the fake system.

use super::bounds::{MIB, free, slab};
use super::{heap, large};
use crate::base::units::{HUGE_BYTES, SLICE_BYTES};
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Dirty, HugePolicy, PageHeap};
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

fn two_nodes() -> Box<PageHeap<Fake>> {
    heap(Conditions {
        most_reserved: 64 * MIB,
        nodes: 2,
        ..Conditions::default()
    })
}

/// Allocates a large span for a thread on a node. Returns where it is.
fn taken(heap: &PageHeap<Fake>, node: usize, slices: usize) -> usize {
    heap.os().run_on(node);
    large(heap, slices).unwrap().place.slice_base()
}

/// Allocates a span for a thread on a node, and frees it dirty. Returns where it was.
fn freed(heap: &PageHeap<Fake>, node: usize, slices: usize) -> usize {
    heap.os().run_on(node);
    let span = large(heap, slices).unwrap();
    let base = span.place.slice_base();
    free(heap, span, Dirty::All);
    base
}

#[test]
fn a_node_takes_its_own_dirty_pages_and_leaves_those_of_another() {
    let heap = two_nodes();
    let first = freed(&heap, 0, 4);
    assert_ne!(taken(&heap, 1, 4), first);
    // The span stays with the node that took it, whichever thread frees it.
    heap.os().run_on(0);
    let span = large(&heap, 4).unwrap();
    assert_eq!(span.place.slice_base(), first);
    heap.os().run_on(1);
    free(&heap, span, Dirty::All);
    assert_ne!(taken(&heap, 1, 4), first);
    assert_eq!(taken(&heap, 0, 4), first);
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn no_huge_page_is_for_two_nodes() {
    for huge in [HugePolicy::Never, HugePolicy::Always] {
        let heap = two_nodes();
        heap.set_huge(huge);
        let mut of_nodes = [const { BTreeSet::new() }; 2];
        for turn in 0..60 {
            heap.os().run_on(turn % 2);
            let spans = [slab(&heap), slab(&heap), large(&heap, 1 + turn % 7)];
            for span in spans.into_iter().flatten() {
                let base = span.place.slice_base();
                let ends = [base, base + span.slices * SLICE_BYTES - 1];
                of_nodes[turn % 2].extend(ends.map(|end| end / HUGE_BYTES));
            }
        }
        let [one, other] = of_nodes;
        assert!(!one.is_empty() && one.is_disjoint(&other), "{huge:?}");
        assert_eq!(heap.check(), Ok(()));
    }
}

#[test]
fn a_span_grows_into_its_own_nodes_pages_only() {
    let heap = two_nodes();
    heap.os().run_on(0);
    let span = large(&heap, 3).unwrap();
    let end = (span.place.slice_base() + span.slices * SLICE_BYTES).next_multiple_of(HUGE_BYTES);
    assert_eq!(freed(&heap, 1, 4), end);
    let grow = |slices| {
        // SAFETY: the test's own span.
        unsafe { heap.grow_in_place(span.base, slices, slices * SLICE_BYTES) }
    };
    let most = (end - span.place.slice_base()) / SLICE_BYTES;
    assert!(grow(most + 1).is_none() && grow(most).is_some());
    assert_eq!(heap.check(), Ok(()));
}

#[test]
fn a_request_that_the_kernel_refuses_takes_what_another_node_left() {
    let heap = two_nodes();
    let first = freed(&heap, 0, 4);
    heap.os().fail(Call::Commit, 0, u32::MAX);
    assert_eq!(taken(&heap, 1, 4), first);
    heap.os().run_on(1);
    let more: Vec<_> = core::iter::from_fn(|| large(&heap, 1)).collect();
    assert!(!more.is_empty() && heap.totals().free < MIB);
    assert_eq!(heap.check(), Ok(()));
}
