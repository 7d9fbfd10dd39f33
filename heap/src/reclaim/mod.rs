//! How free memory returns to the kernel: rounds of decay, the purge thread, pressure for memory.
//! `schedule` decides what decays, and when.

pub mod freed;
#[cfg(not(loom))]
pub mod pressure;
#[cfg(not(loom))]
pub mod round;
#[cfg(not(loom))]
pub mod schedule;
#[cfg(not(loom))]
pub mod start;
#[cfg(not(loom))]
pub mod state;
#[cfg(not(loom))]
pub mod thread;
pub mod wakeup;
#[cfg(not(loom))]
mod watch;
