//! Tests of the page heap: against a naive model, case by case on a fake system, and on the real
//! one.

mod bounds;
mod cached;
mod cases;
mod claims;
mod hard_limit;
mod model;
mod motion;
mod nodes;
mod real;
mod refusals;
mod tails;
mod threads;
mod zeros;

use super::{PageHeap, Sides, SliceRef, Span, Tables, Use};
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::fake::{Conditions, Fake};
use std::boxed::Box;

/// A heap on a fake system. Boxed: it is large, and must not move.
fn heap(conditions: Conditions) -> Box<PageHeap<Fake>> {
    let tables = Box::leak(Box::new(Tables::new()));
    let sides = Sides { near: 64, far: 64 };
    // SAFETY: new tables.
    Box::new(unsafe { PageHeap::new(Fake::new(conditions), sides, tables) })
}

/// A large span of `slices`, asked for in full.
fn large<O: Os>(heap: &PageHeap<O>, slices: usize) -> Option<Span<'_>> {
    heap.alloc(slices, 1, Use::Large, slices * SLICE_BYTES)
}

/// Gives back what is past its age, as the purge thread does. Returns how many bytes.
fn purge_due<O: Os>(heap: &PageHeap<O>) -> usize {
    let now = heap.os().now_ms();
    match heap.next_purge() {
        Some(at) if at <= now => heap.purge_aged(),
        _ => 0,
    }
}

/// The first and the last word of an OS page.
fn ends(place: SliceRef<'_>, page: usize, page_bytes: usize) -> [*mut u64; 2] {
    let start = place.slice_base() + page * page_bytes;
    [start as *mut u64, (start + page_bytes - 8) as *mut u64]
}
