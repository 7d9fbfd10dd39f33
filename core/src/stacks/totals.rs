//! The figures of stacks.

use super::pool::Pool;
use super::size::Size;
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};

/// The figures of stacks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// Stacks in the program's hands.
    pub used: usize,
    /// Ended stacks that are kept warm.
    pub idle: usize,
    /// Cells of slices cut into small stacks that nobody has and that hold no memory.
    pub spare: usize,
    /// Bytes of address space of all of these, guards included.
    pub address: usize,
    /// Guards that cost no mapping.
    pub guards: usize,
    /// Guards that cost two mappings each.
    pub mapped_guards: usize,
    /// Stacks that were taken from the page heap so far, cells included.
    pub created: usize,
    /// Times that a stack was handed out that had been in use before.
    pub recycled: usize,
    /// Stacks out of use for good, for the kernel would not take their guards away.
    pub lost: usize,
    /// An estimate of the page tables that these stacks need, in bytes: a table of one OS page describes as many pages as it
    /// has entries of 8 bytes (2 MiB of address on x86-64). A stack needs its share of a table for its address, and at
    /// most two tables: one for its guard, one for what it uses.
    pub page_tables: usize,
}

/// The running counts behind [`StackTotals`].
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) advised: AtomicUsize,
    pub(super) mapped: AtomicUsize,
    pub(super) created: AtomicUsize,
    pub(super) lost: AtomicUsize,
    address: AtomicUsize,
    page_tables: AtomicUsize,
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

    /// A span of stacks comes from the page heap.
    pub(super) fn add_span(&self, size: Size, page: usize) {
        self.created.fetch_add(size.per_span(), Relaxed);
        self.address
            .fetch_add(size.per_span() * size.bytes(), Relaxed);
        self.page_tables
            .fetch_add(size.per_span() * tables(size, page), Relaxed);
    }

    /// A span of stacks goes back, or is lost.
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

impl Pool {
    /// The figures now.
    pub fn totals(&self) -> StackTotals {
        let [used, idle, spare, recycled] = self.locked().figures();
        let counts = &self.counts;
        StackTotals {
            used,
            idle,
            spare,
            address: counts.address.load(Relaxed),
            guards: counts.advised.load(Relaxed),
            mapped_guards: counts.mapped.load(Relaxed),
            created: counts.created.load(Relaxed),
            recycled,
            lost: counts.lost.load(Relaxed),
            page_tables: counts.page_tables.load(Relaxed),
        }
    }
}
