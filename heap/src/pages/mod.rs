//! The page heap: spans of 64 KiB slices, and the state of each of their pages. It knows neither
//! size classes nor threads.
//!
//! Each file names only files above it in this table:
//!
//! | file | contents |
//! |---|---|
//! | `span` | the record of a slice; what a request for slices asks for |
//! | `arena` | one reserved address range: its tables, and a slice found by its address |
//! | `zero_state` | which pages may be dirty, and what `calloc` expects of those |
//! | `figures` | counts, and the bounds on them |
//! | `huge` | where huge pages are |
//! | `heap` | the page heap itself: its parts, its locks, slices by address |
//! | `free_spans` | which free span serves a request; splitting, merging, ageing |
//! | `reserve` | address space and tables |
//! | `commit` | room for a request that finds none ready, and back; what the hard limit grants |
//! | `purge` | which dirty pages go back to the kernel, and in what pieces; huge pages split |
//! | `tails` | dirty pages of blocks in use beyond their bytes, and their purge |
//! | `spans` | allocate, free, grow and shrink a span |
//! | `span_cache` | freed spans of large blocks that wait for the next request |
//! | `renew` | pages moved between spans; spans mapped afresh, or freed by the kernel's page map |
//! | `residence` | which pages of which spans are resident, for a ledger |
//! | `calloc` | make a span zero |
//!
//! A freed span goes through `spans` (free), `zero_state` (what was written), `free_spans` (merge,
//! enqueue by age), and later `purge`. `docs/purge.md` follows it further, `docs/zero.md` has the
//! measurements behind `calloc`. The invariants are code in `testing/pages/check.rs`.

mod arena;
mod calloc;
#[path = "../testing/pages/check.rs"]
mod check;
mod commit;
mod figures;
mod free_spans;
mod heap;
mod huge;
mod purge;
mod renew;
mod reserve;
mod residence;
mod span;
mod span_cache;
mod spans;
mod tails;
#[cfg(test)]
#[path = "../testing/pages/mod.rs"]
mod tests;
mod zero_state;

pub use arena::{SideTable, Sides, SliceRef};
pub use figures::{Footprint, GroupShare, Limits, STACK_BYTES};
pub use figures::{MIRROR_WORDS, Mirror, Totals, UseTotals, ZeroingTotals};
pub use heap::{PageHeap, Tables};
pub use huge::Policy as HugePolicy;
pub use renew::MOST_PIECES;
pub use residence::{Pages, Part, Residence};
pub use span::{Age, SpanSource, USES, Use};
pub use span_cache::Kept;
pub use spans::Span;
pub use zero_state::{Dirty, Zero};
