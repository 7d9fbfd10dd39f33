//! Where slabs come from and go to: what this layer needs of the one below it.

use super::depot_id::DepotId;
use super::page_set::PageSet;
use super::slab::{Slab, Slice, Touched};
pub use crate::base::policy::Scope;
use core::ptr::NonNull;

/// Where slabs come from and go to.
///
/// # Safety
/// - A fresh slice's record and far words are never freed, and the slice is the slab's until it
///   retires. Its page masks are true, and its far words are zero.
/// - After [`Source::purge`] the pages of these units read as zero, or it returned false.
pub unsafe trait Source {
    /// A slice for a slab of this depot, with its tag; `None` when out of memory, or when it is to
    /// be of resident pages and there are none.
    fn fresh(&self, id: DepotId, pages: Pages) -> Option<Slice>;
    /// Takes back the slice of a slab of which all blocks were claimed and whose record is no slab
    /// any more.
    fn retire(&self, slab: NonNull<Slab>, touched: Touched);
    /// Notes that slabs withhold this many more bytes of pages than before (or fewer).
    fn note_withheld(&self, bytes: isize);
    /// Notes that slabs withhold this many bytes fewer, because they are about to offer them.
    /// Returns false, and notes nothing, if a limit refuses these pages. The caller holds no
    /// depot's lock.
    fn readmit(&self, bytes: usize) -> bool;
    /// Whether no page may go in a round of that scope.
    fn keeps_pages(&self, scope: Scope) -> bool;
    /// OS pages in a slice.
    fn pages(&self) -> usize;
    /// Gives the pages of these units of a slab back to the kernel. No thread uses them. False if
    /// it refuses.
    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool;
    /// Monotonic time in ms.
    fn now_ms(&self) -> u64;
}

/// Which slices a slab may be carved from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Those with resident pages.
    Resident,
    /// All.
    Any,
}
