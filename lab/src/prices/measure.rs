//! A warm-up, and readings of the clock.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use crate::stats::quantile;

/// What a way costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Nanoseconds, the least reading.
    pub ns_least: f64,
    /// Nanoseconds, the median reading.
    pub ns_median: f64,
    /// Readings of the clock.
    pub readings: usize,
    /// How often it was done between two readings.
    pub times: u32,
    /// Pages that it told as populated, or faulted in; `None` where it does neither.
    pub pages: Option<u64>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// For one price, in wall time; slow ones take longer.
    pub each: Duration,
    /// From here on one reading is enough.
    pub deadline: Instant,
}

/// Readings of a price, at least, before the deadline.
const FEWEST: usize = 3;
/// What can be repeated at once is, until a reading lasts as long: the clock itself costs tens of
/// nanoseconds.
const SHORTEST_READING: Duration = Duration::from_micros(20);
/// The share of a price's time that is warm-up.
const WARM_UP: u32 = 5;

/// Something that has a price.
pub trait Priced {
    /// Makes the state that it is to find; not a part of the price.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn ready(&mut self) -> io::Result<()>;

    /// Does it once, and tells the pages that the kernel told.
    ///
    /// # Errors
    /// When it is not to be had.
    fn act(&mut self) -> io::Result<Option<u64>>;

    /// Does it once off the clock, and tells the pages of [`Price::pages`].
    ///
    /// # Errors
    /// When it is not to be had.
    fn count(&mut self) -> io::Result<Option<u64>>;

    /// Whether it leaves the state as it was.
    fn repeats(&self) -> bool;
}

/// Measures a price.
///
/// # Errors
/// When it is not to be had.
pub fn measure(terms: &Terms, priced: &mut impl Priced) -> io::Result<Price> {
    priced.ready()?;
    // The first is the slowest, with cold caches and tables to be made.
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

/// The least time of one act.
fn warm_up(terms: &Terms, priced: &mut impl Priced) -> io::Result<Duration> {
    let start = Instant::now();
    let mut least = reading(priced, 1)?;
    while start.elapsed() < terms.each / WARM_UP {
        least = least.min(reading(priced, 1)?);
    }
    Ok(least)
}

/// How often something of that length fits into the shortest reading, at least once.
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

    /// Counts what is asked of it, and refuses after so many acts.
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
