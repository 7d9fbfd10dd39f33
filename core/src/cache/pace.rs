//! How often a process is sampled when it allocates very fast.
//!
//! A sample has a price, about a microsecond with its free. A process that allocates tens of gigabytes a second would spend a fifth of
//! its time on samples, and learn nothing from so many. So there is the rate that was asked for, and one that is coarser
//! once the process has had [`CREDIT`] samples at more than [`BYTES_PER_NS`]. It changes on what was seen so far only, and what
//! is ahead is drawn anew when it does: each block is sampled with a chance that was known before, and weighted by that chance, so totals
//! stay unbiased.

use crate::base::sync::plain::{AtomicU64, Ordering::Relaxed};

/// A process that allocates faster for long is sampled as often as if it allocated that fast: 4,096 times a second at 512 KiB.
const BYTES_PER_NS: u64 = 2;
/// So many samples a process has by the rate that was asked for, however fast it allocates: 2 GiB of them at 512 KiB.
const CREDIT: u64 = 4096;
/// The speed of a process that is sampled more coarsely is taken over so many samples, or the time that they would take at
/// [`BYTES_PER_NS`].
const WINDOW: u64 = 32;
/// The coarsest rate, in bytes: the coarsest that may be asked for.
const COARSEST: u64 = 1 << 30;

/// The rate in force, and the samples by which it is set.
pub struct Pace {
    /// Mean bytes between two samples; 0: none are taken.
    rate: AtomicU64,
    /// When the window began, in ns.
    began: AtomicU64,
    /// Samples since.
    samples: AtomicU64,
}

impl Pace {
    /// Nothing is sampled.
    pub const fn off() -> Pace {
        Pace {
            rate: AtomicU64::new(0),
            began: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// Mean bytes between two samples; 0: none are taken.
    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// The rate that was asked for is in force, from `now` (ns) on.
    pub(super) fn restart(&self, asked: u64, now: u64) {
        self.began.store(now, Relaxed);
        self.samples.store(0, Relaxed);
        self.rate.store(asked, Relaxed);
    }

    /// Whether the rate is coarser than `asked`.
    pub(super) fn is_raised(&self, asked: u64) -> bool {
        self.rate() > asked
    }

    /// Notes a sample.
    pub(super) fn note(&self) {
        self.samples.fetch_add(1, Relaxed);
    }

    /// Looks at the window at `now`, in ns; if it is over, sets the rate for the next one. Any thread may, at any time.
    pub(super) fn look(&self, asked: u64, now: u64) {
        let (rate, samples) = (self.rate(), self.samples.load(Relaxed));
        let window = if rate > asked { WINDOW } else { CREDIT };
        let least = (asked / BYTES_PER_NS).max(1);
        let began = self.began.load(Relaxed);
        let elapsed = now.saturating_sub(began).max(1);
        if samples < window && elapsed < window.saturating_mul(least) {
            return;
        }
        // Of several threads that see its end, one sets the rate.
        let ends = self
            .began
            .compare_exchange(began, now.max(began + 1), Relaxed, Relaxed);
        if ends.is_ok() {
            self.samples.fetch_sub(samples, Relaxed);
            let fit = u128::from(rate) * u128::from(samples * least) / u128::from(elapsed);
            let fit = u64::try_from(fit).unwrap_or(u64::MAX);
            self.turn(rate, fit.min(COARSEST).max(asked), asked);
        }
    }

    /// Sets the rate to `fit`, unless that differs from what it is as chance alone makes it differ. Who switches
    /// sampling meanwhile has the last word.
    fn turn(&self, rate: u64, fit: u64, asked: u64) {
        let is_chance = fit != asked && (rate / 3 * 2..=rate / 2 * 3).contains(&fit);
        if !is_chance {
            let _ = self.rate.compare_exchange(rate, fit, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: u64 = 512 << 10;

    /// A process that allocates so many bytes a ns, for so many samples, exactly as often as its rate says.
    fn run(pace: &Pace, now: &mut u64, bytes_per_ns: u64, samples: u32) -> u32 {
        let mut changes = 0;
        for _ in 0..samples {
            *now += pace.rate() / bytes_per_ns;
            pace.note();
            let before = pace.rate();
            pace.look(ASKED, *now);
            changes += u32::from(pace.rate() != before);
        }
        changes
    }

    #[test]
    fn a_process_of_ordinary_speed_keeps_the_rate_that_was_asked_for() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        assert_eq!(run(&pace, &mut now, BYTES_PER_NS, 10_000), 0);
        assert_eq!(pace.rate(), ASKED);
    }

    #[test]
    fn a_burst_is_sampled_as_was_asked_for() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        assert_eq!(run(&pace, &mut now, 1000, CREDIT as u32 - 1), 0);
        assert_eq!(pace.rate(), ASKED);
    }

    #[test]
    fn a_fast_process_is_sampled_as_often_as_one_of_the_fastest_ordinary_speed() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        assert_eq!(run(&pace, &mut now, 40, CREDIT as u32), 1);
        assert!(pace.is_raised(ASKED));
        assert_eq!(
            run(&pace, &mut now, 40, 200),
            0,
            "the rate is found at once"
        );
        let began = now;
        run(&pace, &mut now, 40, 100);
        let least = ASKED / BYTES_PER_NS;
        assert!((now - began) / 100 >= least * 9 / 10 && (now - began) / 100 <= least * 11 / 10);
    }

    #[test]
    fn a_process_that_turns_slow_is_sampled_finely_again() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        run(&pace, &mut now, 40, CREDIT as u32 + 4);
        let raised = pace.rate();
        // It looks when it refills, too, without a sample.
        now += WINDOW * ASKED;
        pace.look(ASKED, now);
        assert!(pace.rate() < raised / 8, "of four samples before");
        now += WINDOW * ASKED;
        pace.look(ASKED, now);
        assert!(!pace.is_raised(ASKED));
    }

    #[test]
    fn the_coarsest_rate_is_a_bound() {
        let (pace, mut now) = (Pace::off(), 0);
        pace.restart(ASKED, now);
        for _ in 0..100_000 {
            now += 1;
            pace.note();
            pace.look(ASKED, now);
        }
        assert_eq!(pace.rate(), COARSEST);
    }
}
