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
mod blanket;
mod calloc;
#[path = "../testing/pages/check.rs"]
mod check;
mod commit;
mod decommit;
mod ended;
mod figures;
mod free_spans;
mod heap;
mod huge;
mod limits;
mod moves;
mod operations;
mod place;
mod predictor;
mod purge;
mod query;
mod reserve;
mod residence;
mod samples;
mod span;
mod spans;
#[cfg(test)]
#[path = "../testing/pages/mod.rs"]
mod tests;
mod want;
mod zero_state;

pub use arena::Sides;
pub use calloc::ZeroingTotals;
pub use figures::{Calls, MIRROR_WORDS, Mirror, Totals, UseTotals};
pub use heap::PageHeap;
pub use huge::Policy as HugePolicy;
pub use limits::{Footprint, Limits, NEAR_PART, STACK_BYTES};
pub use place::{Extension, Place, Span};
pub use purge::Chores;
pub use residence::{Pages, Part, Residence};
pub use want::{Age, From};
pub use zero_state::{Dirty, Zero};

/// What a span is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// One slice cut into equal blocks.
    Slab = 1,
    /// One large block.
    Large = 2,
    /// A coroutine stack.
    Stack = 3,
    /// Neap's own data.
    Meta = 4,
}

/// How many uses there are.
pub const USES: usize = 4;

impl Use {
    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Slab),
            2 => Some(Self::Large),
            3 => Some(Self::Stack),
            4 => Some(Self::Meta),
            _ => None,
        }
    }
}
