//! The figures of stacks.

use super::size::Size;
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};

/// The figures of stacks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// Stacks in the program's hands.
    pub used: usize,
    /// Ended stacks that are kept warm.
    pub idle: usize,
    /// Unused cells without memory, in slices cut into small stacks.
    pub spare: usize,
    /// Bytes of address space of all of these, guards included.
    pub address: usize,
    /// Guards that cost no mapping.
    pub guards: usize,
    /// Guards that cost two mappings each.
    pub mapped_guards: usize,
    /// Stacks taken from the page heap so far, cells included.
    pub created: usize,
    /// How often a stack was handed out again.
    pub recycled: usize,
    /// Stacks never used again, because the kernel would not remove their guards.
    pub lost: usize,
    /// Estimated bytes of page tables for these stacks. A table of one OS page describes as many
    /// pages as it has entries of 8 bytes (2 MiB of address space on x86-64). A stack needs its
    /// share of a table for its address space, and at most two tables: one for its guard, one for
    /// the pages in use.
    pub page_tables: usize,
}

/// The running counts behind [`StackTotals`].
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) advised: AtomicUsize,
    pub(super) mapped: AtomicUsize,
    pub(super) created: AtomicUsize,
    pub(super) lost: AtomicUsize,
    pub(super) address: AtomicUsize,
    pub(super) page_tables: AtomicUsize,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            advised: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            created: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            page_tables: AtomicUsize::new(0),
        }
    }

    /// Counts a span of stacks that came from the page heap.
    pub(super) fn add_span(&self, size: Size, page: usize) {
        self.created.fetch_add(size.per_span(), Relaxed);
        self.address
            .fetch_add(size.per_span() * size.bytes(), Relaxed);
        self.page_tables
            .fetch_add(size.per_span() * tables(size, page), Relaxed);
    }

    /// Counts a span of stacks that went back or was lost.
    pub(super) fn remove_span(&self, size: Size, page: usize) {
        self.address
            .fetch_sub(size.per_span() * size.bytes(), Relaxed);
        self.page_tables
            .fetch_sub(size.per_span() * tables(size, page), Relaxed);
    }
}

/// Bytes of page tables that one stack accounts for.
fn tables(size: Size, page: usize) -> usize {
    let entries = page / size_of::<u64>();
    (size.bytes() / entries).min(2 * page)
}
