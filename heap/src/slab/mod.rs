//! Slabs: slices cut into equal blocks, each with a bitmap of its free blocks. This layer does not
//! know threads.
//!
//! The protocol, which loom checks in `testing/slab_models`:
//!
//! - A set bit is a free block that the slab holds. Claiming is one `fetch_and` on a word, and
//!   giving back is one `fetch_or`. A claimed bit pins its slab: the slab cannot retire while the
//!   block is out.
//! - [`Slab`] records are type-stable: one per slice, never freed, all bits zero while the slice is
//!   no slab. So a claimer may hold a stale slab. If its claim yields bits, the slab is pinned, and
//!   the record tells its depot: class, user and node ([`depot_id`]). If the depot has changed by
//!   then, the claimer gives the bits back to it and looks for another slab.
//! - A slice has its tag before its bits are set: a thread that claims a bit may free the block at
//!   once.
//! - A [`depot::Depot`] holds what threads share of one class, user and node: the slab to claim
//!   from, and the set of slabs known to have free blocks. Only changing the set takes its lock.
//! - A slab leaves the set in two steps: mark it unlisted, then look at its words once more. A
//!   give-back sets its bits, then looks at the mark. With full barriers in between, one of the two
//!   sees the other.
//! - Retiring claims everything: it swaps every word with 0. If it did not get all blocks, it puts
//!   back those that it got.
//! - The slab itself withholds blocks in pages that are not resident ([`page_set`]), so "all
//!   blocks" means all others. The source readmits the pages without the depot's lock. Then the
//!   slab offers their blocks under it.
//!
//! A thread reads these fields without the depot's lock, or while the slab may belong to another
//! depot:
//!
//! - `depot`, then `listed`: carving writes them in the reverse order, without the lock, with
//!   Release and Acquire on `depot`. All other changes of both happen under the lock of the slab's
//!   depot. `warm` may name a slab that was carved anew since, so its reader compares both.
//! - The bits and `withheld`: a give-back writes the bits, then reads `withheld`; the end of a
//!   purge does the reverse. Both have a full barrier in between. A block on its way from one to
//!   the other reads as in use.
//! - `fresh` and `high_water`: claimers change them before they give the blocks back, and retiring
//!   reads them after it has claimed all blocks.
//! - `purging` is written and read under the lock only. `lowest`, `idle` and `has_served` are
//!   hints.

pub mod class;
pub mod decommitted;
pub mod depot;
pub mod depot_id;
pub mod page_set;
mod refill;
#[expect(
    clippy::module_inception,
    reason = "the folder is named after its central type"
)]
mod slab;

pub use depot::{Pages, Scope, Source};
pub use refill::Claim;
#[cfg(all(test, loom))]
pub(crate) use slab::LISTED;
pub use slab::{FarWords, Grain, LINE_BLOCKS, Returned, Seen, Slab, Slice, State, Touched, WORDS};
