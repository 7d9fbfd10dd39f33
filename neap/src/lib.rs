#![no_std]
//! Neap: a memory system for Linux programs.

pub use neap_heap::*;
pub use neap_instruments::unwind;

/// The entry points.
pub mod front {
    pub use neap_heap::front::*;
    pub use neap_instruments::survey::{Brief, brief, snapshot, with_snapshot};
    pub use neap_instruments::{attach, profile};
}
