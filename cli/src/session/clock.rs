//! The time of a run.

use crate::attach::now_ms;

/// Time since the program's start, by the clock of the processes' figures.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// In ms of `CLOCK_MONOTONIC`.
    origin: u64,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { origin: now_ms() }
    }

    /// The time now.
    pub fn now_ms(self) -> u64 {
        self.of(now_ms())
    }

    /// Converts `CLOCK_MONOTONIC`; a time before the start becomes the start.
    pub fn of(self, monotonic_ms: u64) -> u64 {
        monotonic_ms.saturating_sub(self.origin)
    }
}
