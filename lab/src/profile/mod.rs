//! Whether the sampling profiler tells the truth, and what it costs.
//!
//! | file | contents |
//! |---|---|
//! | `known` | allocations whose places and sizes are known |
//! | `truth` | their profiles, compared with them |
//! | `price` | paired runs with sampling off and on, and with `neap top` attached |
//! | `watcher` | `neap top` beside a run |
//! | `campaign` | both parts |

pub mod campaign;
pub mod known;
mod price;
mod truth;
mod watcher;
