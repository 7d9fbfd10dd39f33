//! How much memory grew over a course.

use std::time::Duration;

use crate::stats::quantile;

/// Resident bytes at one moment since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Duration,
    pub bytes: u64,
}

/// The part of a course in which caches fill and heaps reach their size.
const WARM_UP: f64 = 0.25;

/// The samples after the warm-up.
pub fn warm(samples: &[Sample]) -> &[Sample] {
    &samples[(samples.len() as f64 * WARM_UP).ceil() as usize..]
}

/// The growth after the warm-up as a part of the median: the trend from the first moment to the
/// last. `None` with too few samples for a trend.
///
/// The trend is the median slope of all pairs of samples (Theil 1950, Sen 1968), which peaks of
/// single requests do not change.
pub fn growth(samples: &[Sample]) -> Option<f64> {
    let warm = warm(samples);
    let [first, .., last] = warm else { return None };
    let slopes = warm.iter().enumerate().flat_map(|(n, one)| {
        let later = warm[n + 1..].iter();
        later.filter_map(move |other| slope(one, other))
    });
    let slopes: Vec<f64> = slopes.collect();
    let bytes: Vec<f64> = warm.iter().map(|sample| sample.bytes as f64).collect();
    let median = quantile(&bytes, 0.5);
    if slopes.is_empty() || median == 0.0 {
        return None;
    }
    let span = (last.at - first.at).as_secs_f64();
    Some(quantile(&slopes, 0.5) * span / median)
}

/// Bytes per second from one sample to a later one.
fn slope(one: &Sample, other: &Sample) -> Option<f64> {
    let seconds = (other.at - one.at).as_secs_f64();
    (seconds > 0.0).then(|| (other.bytes as f64 - one.bytes as f64) / seconds)
}

/// The sum of several courses. They have their samples at the same moments.
pub fn sum<'a>(courses: impl Iterator<Item = &'a [Sample]>) -> Vec<Sample> {
    let mut sum: Vec<Sample> = Vec::new();
    for course in courses {
        match sum.is_empty() {
            true => sum = course.to_vec(),
            false => sum
                .iter_mut()
                .zip(course)
                .for_each(|(sum, one)| sum.bytes += one.bytes),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(bytes: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |second| Sample {
            at: Duration::from_secs(second),
            bytes: bytes(second),
        };
        (0..400).map(sample).collect()
    }

    #[test]
    fn a_slow_leak_is_growth_and_peaks_are_none() {
        // 1,000 at the end of the warm-up, and one more every three seconds.
        let leak = growth(&course(|second| 967 + second / 3)).unwrap();
        assert!((0.09..0.1).contains(&leak), "{leak}");
        let peaks = course(|second| if second % 7 == 0 { 9_000 } else { 1_000 });
        assert_eq!(growth(&peaks), Some(0.0));
        let shrinks = growth(&course(|second| 5_000 - second)).unwrap();
        assert!(shrinks < -0.05, "{shrinks}");
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let fills = course(|second| 1_000 * second.clamp(1, 99));
        assert_eq!(growth(&fills), Some(0.0));
        assert_eq!(growth(&fills[..2]), None);
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn courses_are_added_moment_by_moment() {
        let (one, other) = (course(|second| second), course(|_| 5));
        let both = sum([&one[..], &other[..]].into_iter());
        assert_eq!((both[0].bytes, both[10].bytes), (5, 15));
        assert!(sum([].into_iter()).is_empty());
    }
}
