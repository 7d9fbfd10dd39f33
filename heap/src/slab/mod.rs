//! Slabs: slices cut into equal blocks, a bitmap of free blocks beside each. Knows no threads.
//!
//! The protocol (modelled in `testing/slab_models.rs`, run under loom):
//!
//! - A set bit is a free block that the slab holds. Claiming is one `fetch_and` on a word, giving
//!   back is one `fetch_or`. A claimed bit pins its slab: it cannot retire while the block is out.
//! - [`Slab`] records are type-stable: one per slice, never freed, all bits zero while the slice is
//!   no slab. So a claimer may hold a stale slab: if its claim gives bits, the slab is pinned and
//!   its class can be read; if the class is another by now, the bits go back and the claimer looks
//!   again.
//! - A [`depot::Depot`] is all that one class shares: the slab to claim from, and the set of slabs
//!   known to have free blocks. Only changing the set takes its lock.
//! - A slab leaves the set in two steps: mark it unlisted, then look at its words once more. A
//!   give-back sets its bits, then looks at the mark. With full barriers between, one of the two
//!   sees the other.
//! - Retiring is claiming everything: swap every word with 0. Unless all blocks came, put them
//!   back.
//! - Blocks in pages that are not resident are withheld by the slab itself ([`page_set`]): "all"
//!   means all others.

pub mod class;
pub mod class_table;
pub mod decommitted;
pub mod depot;
#[cfg(not(loom))]
pub mod metadata;
mod occupancy;
pub mod page_set;
mod sets;
#[expect(
    clippy::module_inception,
    reason = "the folder is named after its central type"
)]
mod slab;

#[cfg(all(test, loom))]
pub(crate) use slab::LISTED;
pub use slab::{
    Claim, FarWords, Given, Grain, LINE_BLOCKS, Pages, Scope, Slab, Source, Touched, WORDS,
};
