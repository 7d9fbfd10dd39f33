//! The sampling profiler: whether it tells the truth, and what it costs.
//!
//! | file | what it holds |
//! |---|---|
//! | `known` | what a process allocates, place by place, and what its profile says about it |
//! | `truth` | many such processes: the mean error of each place in standard errors |
//! | `price` | paired runs with sampling off and on, and with `neap top` attached |
//! | `watcher` | attaches `neap top` to whatever this process runs under Neap |

pub mod known;
pub mod price;
pub mod truth;
mod watcher;
