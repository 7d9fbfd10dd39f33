//! The page heap: arenas, slices, spans, zero state, fit, purge. Knows no size classes.
//!
//! - `arena`: one reserved range, its tables and bits. `span`: a record a slice.
//! - `fit`: which free span serves a request; splitting and merging. `grow`: what is committed
//!   when. `reserve`: what is reserved when, and what a limit on address space changes.
//! - `huge`: where huge pages are; `ended`: where they were.
//! - `zero`: which OS pages may be dirty, in masks; `blanket`: for whole spans at once; `asked`: as
//!   the kernel says. `zeroing`: how `calloc` makes them zero; `habits`, `samples`: what it
//!   expects.
//! - `purge`: when and how pages go back to the kernel; `decommit`: how commit does. `limits`: what
//!   may be resident at most.
//! - `heap`: what there is, and its locks; `operations`: what is asked of it; `changes`: span
//!   operations under the lock. `moves`: pages moved from span to span.
//! - `totals`: the figures. `residence`: what is in RAM. `check`: the invariants, as code.

mod arena;
mod asked;
mod blanket;
mod changes;
mod check;
mod decommit;
mod ended;
mod fit;
mod grow;
mod habits;
mod heap;
mod huge;
mod limits;
mod moves;
mod operations;
mod place;
mod purge;
mod reserve;
mod residence;
mod samples;
mod span;
#[cfg(test)]
mod tests;
mod totals;
mod want;
mod zero;
mod zeroing;

pub use arena::Sides;
pub use heap::PageHeap;
pub use huge::Policy as HugePolicy;
pub use limits::{Footprint, Limits, NEAR_PART, STACK_BYTES};
pub use neap_shared::stats::{USES, Use};
pub use place::{Extension, Place, Span};
pub use purge::Chores;
pub use residence::{Pages, Part, Residence};
pub use totals::{Calls, MIRROR_WORDS, Mirror, Totals, UseTotals};
pub use want::{Age, From};
pub use zero::{Dirty, Zero};
pub use zeroing::ZeroingTotals;
