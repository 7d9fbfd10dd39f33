//! How free memory returns to the kernel: rounds of decay, the purge thread, pressure for memory.
//! `base/policy.rs` decides what goes back, and when.

pub mod pressure;
pub mod round;
pub mod start;
pub mod state;
pub mod thread;
pub mod wakeup;
