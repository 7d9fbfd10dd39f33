//! What every layer shares: units, bits, zeros, the façade for atomics, the ordered tree.

pub mod clear;
pub mod sync;
pub mod tree;
pub mod units;
