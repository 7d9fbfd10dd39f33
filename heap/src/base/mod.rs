//! What every layer shares: units, the façade for atomics, the ordered tree, when memory goes back.

pub mod policy;
pub mod sync;
pub mod tree;
pub mod units;
