//! The probability that a guarded sample finds an error.

use std::time::Duration;

/// The probability that one of the samples made in `time` is the block that an error misuses, if
/// that is one of `candidates` allocations of each request.
pub fn chance(candidates: f64, time: Duration, interval: Duration) -> f64 {
    1.0 - (1.0 - 1.0 / candidates.max(1.0)).powf(samples(time, interval))
}

/// How many samples a thread makes in `time`.
pub fn samples(time: Duration, interval: Duration) -> f64 {
    time.as_secs_f64() / interval.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_is_that_of_independent_samples() {
        let seconds = Duration::from_secs;
        let after = |candidates, time| chance(candidates, seconds(time), seconds(1));
        assert_eq!(after(2.0, 1), 0.5);
        assert_eq!(after(2.0, 3), 0.875);
        assert_eq!(after(1.0, 1), 1.0);
        assert_eq!(after(20.0, 0), 0.0);
        // Ten seconds at 20 ms, of a thousand allocations a request.
        let rare = chance(1000.0, seconds(10), Duration::from_millis(20));
        assert!((0.39..0.40).contains(&rare), "{rare}");
    }
}
