//! A warm-up, then readings of the clock.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use crate::stats::quantile;

/// The price of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Nanoseconds: the lowest reading.
    pub ns_least: f64,
    /// Nanoseconds: the median reading.
    pub ns_median: f64,
    /// Readings of the clock.
    pub readings: usize,
    /// Repetitions between two readings.
    pub times: u32,
    /// Pages that it reported as populated, or that it faulted in; `None` if it does neither.
    pub pages: Option<u64>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Wall time per price; slow ones take longer.
    pub each: Duration,
    /// After this, one reading suffices.
    pub deadline: Instant,
}

/// Least number of readings of a price before the deadline.
const FEWEST: usize = 3;
/// A repeatable act is repeated until a reading lasts this long, because the clock itself costs
/// tens of nanoseconds.
const SHORTEST_READING: Duration = Duration::from_micros(20);
/// One part in this many of a price's time is warm-up.
const WARM_UP: u32 = 5;

/// An operation to be priced.
pub trait Priced {
    /// Restores the state that the operation needs; not part of the price.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn ready(&mut self) -> io::Result<()>;

    /// Performs the operation once, and returns the number of pages that the kernel reported.
    ///
    /// # Errors
    /// If the operation is not available.
    fn act(&mut self) -> io::Result<Option<u64>>;

    /// Performs it once without the clock, and returns [`Price::pages`].
    ///
    /// # Errors
    /// If the operation is not available.
    fn count(&mut self) -> io::Result<Option<u64>>;

    /// Whether it leaves the state unchanged.
    fn repeats(&self) -> bool;
}

/// Measures a price.
///
/// # Errors
/// If the operation is not available.
pub fn measure(terms: &Terms, priced: &mut impl Priced) -> io::Result<Price> {
    priced.ready()?;
    // The first is the slowest, with cold caches and new page tables.
    let pages = priced.count()?;
    let times = match priced.repeats() {
        true => times_for(warm_up(terms, priced)?),
        false => 1,
    };
    let (mut readings, start) = (Vec::new(), Instant::now());
    while !is_enough(terms, start, readings.len()) {
        let elapsed = reading(priced, times)?;
        readings.push(elapsed.as_nanos() as f64 / f64::from(times));
    }
    Ok(Price {
        ns_least: quantile(&readings, 0.0),
        ns_median: quantile(&readings, 0.5),
        readings: readings.len(),
        times,
        pages,
    })
}

fn is_enough(terms: &Terms, start: Instant, readings: usize) -> bool {
    if Instant::now() >= terms.deadline {
        return readings > 0;
    }
    readings >= FEWEST && start.elapsed() >= terms.each
}

/// The lowest time of one act.
fn warm_up(terms: &Terms, priced: &mut impl Priced) -> io::Result<Duration> {
    let start = Instant::now();
    let mut least = reading(priced, 1)?;
    while start.elapsed() < terms.each / WARM_UP {
        least = least.min(reading(priced, 1)?);
    }
    Ok(least)
}

/// How many acts of that duration fit into the shortest reading, at least one.
fn times_for(once: Duration) -> u32 {
    let fits = SHORTEST_READING.as_nanos().div_ceil(once.as_nanos().max(1));
    u32::try_from(fits).unwrap_or(u32::MAX)
}

fn reading(priced: &mut impl Priced, times: u32) -> io::Result<Duration> {
    priced.ready()?;
    let start = Instant::now();
    for _ in 0..times {
        black_box(priced.act()?);
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the calls, and fails after a given number of acts.
    struct Counted {
        repeats: bool,
        ready: u64,
        acts: u64,
        refuses_at: u64,
    }

    impl Counted {
        fn new(repeats: bool) -> Counted {
            Counted {
                repeats,
                ready: 0,
                acts: 0,
                refuses_at: u64::MAX,
            }
        }
    }

    impl Priced for Counted {
        fn ready(&mut self) -> io::Result<()> {
            self.ready += 1;
            Ok(())
        }

        fn act(&mut self) -> io::Result<Option<u64>> {
            self.acts += 1;
            match self.acts < self.refuses_at {
                true => Ok(Some(self.acts)),
                false => Err(io::ErrorKind::Unsupported.into()),
            }
        }

        fn count(&mut self) -> io::Result<Option<u64>> {
            self.act()
        }

        fn repeats(&self) -> bool {
            self.repeats
        }
    }

    fn terms(until_deadline: Duration) -> Terms {
        Terms {
            each: Duration::ZERO,
            deadline: Instant::now() + until_deadline,
        }
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn what_changes_the_state_is_made_ready_for_every_act() {
        let mut counted = Counted::new(false);
        let price = measure(&terms(LONG), &mut counted).unwrap();
        assert_eq!((price.readings, price.times), (FEWEST, 1));
        // One more is the count.
        assert_eq!((counted.ready, counted.acts), (4, 4));
        assert_eq!(price.pages, Some(1));
        assert!(price.ns_least <= price.ns_median);
    }

    #[test]
    fn what_is_short_and_repeats_is_done_many_times_a_reading() {
        let mut counted = Counted::new(true);
        let price = measure(&terms(LONG), &mut counted).unwrap();
        assert_eq!(counted.acts, 2 + FEWEST as u64 * u64::from(price.times));
        assert_eq!(counted.ready, 2 + FEWEST as u64);
    }

    #[test]
    fn a_reading_fills_the_shortest_time() {
        let nanoseconds = Duration::from_nanos;
        assert_eq!(times_for(nanoseconds(0)), 20_000);
        assert_eq!(times_for(nanoseconds(300)), 67);
        assert_eq!(times_for(nanoseconds(20_000)), 1);
        assert_eq!(times_for(nanoseconds(9_000_000)), 1);
    }

    #[test]
    fn beyond_the_deadline_one_reading_is_enough() {
        let mut counted = Counted::new(false);
        let price = measure(&terms(Duration::ZERO), &mut counted).unwrap();
        assert_eq!((price.readings, counted.acts), (1, 2));
    }

    #[test]
    fn a_refusal_ends_it() {
        let mut counted = Counted::new(false);
        counted.refuses_at = 3;
        let error = measure(&terms(LONG), &mut counted).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(counted.acts, 3);
    }
}
