//! Instruments: what looks at the heap, and the modes that look at every call.

pub mod attach;
pub(crate) mod check;
mod instruments;
pub mod profile;
pub(crate) mod sizes;
pub(crate) mod statistics;
mod survey;

pub use statistics::ends_at_once;
pub use survey::{Brief, brief, snapshot, snapshot_into, with_snapshot};
