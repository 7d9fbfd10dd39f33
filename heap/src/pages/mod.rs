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
mod calloc;
#[path = "../testing/pages/check.rs"]
mod check;
mod commit;
mod decommit;
mod figures;
mod free_spans;
mod heap;
mod huge;
mod limits;
mod predictor;
mod purge;
mod query;
mod reserve;
mod residence;
mod span;
mod spans;
#[cfg(test)]
#[path = "../testing/pages/mod.rs"]
mod tests;
mod zero_state;

pub use arena::{Place, Sides};
pub use figures::{Calls, MIRROR_WORDS, Mirror, Totals, UseTotals, ZeroingTotals};
pub use heap::PageHeap;
pub use huge::Policy as HugePolicy;
pub use limits::{Footprint, Limits, NEAR_PART, STACK_BYTES};
pub use purge::Chores;
pub use residence::{Pages, Part, Residence};
pub use span::{Age, From, USES, Use};
pub use spans::{Extension, Span};
pub use zero_state::{Dirty, Zero};
