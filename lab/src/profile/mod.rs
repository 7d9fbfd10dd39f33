//! Whether the sampling profiler tells the truth.
//!
//! | file | contents |
//! |---|---|
//! | `truth` | the profiles of known allocations, compared with them |
//! | `campaign` | the experiment |

pub mod campaign;
mod truth;
