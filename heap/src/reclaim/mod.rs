//! How free memory returns to the kernel: rounds of decay, the purge thread, pressure for memory.
//! `base/policy.rs` decides what goes back, and when.

#[cfg(not(loom))]
pub mod pressure;
#[cfg(not(loom))]
pub mod round;
#[cfg(not(loom))]
pub mod start;
#[cfg(not(loom))]
pub mod state;
#[cfg(not(loom))]
pub mod thread;
pub mod wakeup;
