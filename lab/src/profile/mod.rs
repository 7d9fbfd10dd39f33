//! The accuracy and the cost of the sampling profiler.
//!
//! | file | contents |
//! |---|---|
//! | `known` | a process's allocations, place by place, and its profile's figures for them |
//! | `truth` | many such processes: each place's mean error in standard errors |
//! | `price` | paired runs with sampling off and on, and with `neap top` attached |
//! | `watcher` | attaches `neap top` to each process that this one runs under Neap |

pub mod known;
pub mod price;
pub mod truth;
mod watcher;
