//! What a workload reports.

use std::time::Duration;

/// The report of a shape.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Operations carried out; at least one, and about as many as requested.
    pub ops: u64,
    /// Wall time of these operations.
    pub elapsed: Duration,
    /// Resident bytes per block, for workloads that measure it.
    pub bytes_per_block: Option<f64>,
}

impl Outcome {
    /// A time without a size.
    pub fn timed(ops: u64, elapsed: Duration) -> Outcome {
        Outcome {
            ops,
            elapsed,
            bytes_per_block: None,
        }
    }
}
