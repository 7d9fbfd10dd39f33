//! How often a thread is sampled when it allocates very fast.
//!
//! A sample has a price, about a microsecond with its free. A thread that allocates tens of gigabytes a second would spend a fifth of
//! its time on samples, and learn nothing from so many. So each thread has a rate of its own: the one asked for, or a coarser
//! one while it allocates more than [`BYTES_PER_NS`]. It changes on what was seen so far only, and what is
//! ahead is drawn anew when it does: each block is sampled with a chance that was known before, and weighted by that chance, so totals stay
//! unbiased.

use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A thread that allocates faster is sampled as often as if it allocated that fast: 4,096 times a second at 512 KiB.
const BYTES_PER_NS: u64 = 2;
/// A thread's speed is taken over so many samples, or the time that they would take at [`BYTES_PER_NS`].
const WINDOW: u64 = 32;
/// The coarsest rate, in bytes: the coarsest that may be asked for.
const COARSEST: u64 = 1 << 30;

/// A thread's rate and its last samples. Written by the owner, and by who switches sampling, under the cache's lock.
pub struct Pace {
    /// Mean bytes between two samples of this thread; 0: none are taken.
    rate: AtomicU64,
    /// When the window began, in ns.
    began: AtomicU64,
    /// Samples since.
    samples: AtomicU32,
}

impl Pace {
    /// Nothing is sampled.
    pub const fn off() -> Pace {
        Pace {
            rate: AtomicU64::new(0),
            began: AtomicU64::new(0),
            samples: AtomicU32::new(0),
        }
    }

    /// Mean bytes between two samples of this thread; 0: none are taken.
    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Samples by the rate that was asked for, from `now` (ns) on.
    pub(super) fn restart(&self, asked: u64, now: u64) {
        self.rate.store(asked, Relaxed);
        self.began.store(now, Relaxed);
        self.samples.store(0, Relaxed);
    }

    /// Whether the thread is sampled more coarsely than `asked`.
    pub(super) fn is_raised(&self, asked: u64) -> bool {
        self.rate() > asked
    }

    /// Notes a sample.
    pub(super) fn note(&self) {
        self.samples
            .store(self.samples.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// Looks at the window at `now`, in ns. Whether the rate changed, so that what is ahead must be drawn anew.
    pub(super) fn look(&self, asked: u64, now: u64) -> Look {
        let samples = u64::from(self.samples.load(Relaxed));
        let least = (asked / BYTES_PER_NS).max(1);
        let elapsed = now.saturating_sub(self.began.load(Relaxed)).max(1);
        if samples < WINDOW && elapsed < WINDOW * least {
            return Look::Kept;
        }
        let fit = u128::from(self.rate()) * u128::from(samples * least) / u128::from(elapsed);
        let fit = u64::try_from(fit)
            .unwrap_or(COARSEST)
            .clamp(asked, COARSEST.max(asked));
        let rate = self.rate();
        // Within what chance alone does to so few samples.
        let kept = fit != asked && (rate / 3 * 2..=rate / 2 * 3).contains(&fit);
        self.restart(if kept { rate } else { fit }, now);
        match kept || fit == rate {
            true => Look::Kept,
            false => Look::Changed,
        }
    }
}

/// What a look at the window says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The rate is as it was.
    Kept,
    /// It is another.
    Changed,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: u64 = 512 << 10;

    /// A thread that allocates so many bytes a ns, for so many samples, exactly as often as its rate says.
    fn run(pace: &Pace, now: &mut u64, bytes_per_ns: u64, samples: u32) -> u32 {
        let mut changes = 0;
        for _ in 0..samples {
            *now += pace.rate() / bytes_per_ns;
            pace.note();
            changes += u32::from(pace.look(ASKED, *now) == Look::Changed);
        }
        changes
    }

    #[test]
    fn a_thread_of_ordinary_speed_keeps_the_rate_that_was_asked_for() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        assert_eq!(run(&pace, &mut now, BYTES_PER_NS, 1000), 0);
        assert_eq!(pace.rate(), ASKED);
    }

    #[test]
    fn a_fast_thread_is_sampled_as_often_as_one_of_the_fastest_ordinary_speed() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        assert_eq!(run(&pace, &mut now, 40, WINDOW as u32), 1);
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
    fn a_thread_that_turns_slow_is_sampled_finely_again() {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        run(&pace, &mut now, 40, 100);
        let raised = pace.rate();
        // It looks when it refills, too, without a sample.
        now += WINDOW * ASKED;
        assert_eq!(pace.look(ASKED, now), Look::Changed);
        assert!(pace.rate() < raised / 8, "of four samples before");
        now += WINDOW * ASKED;
        assert_eq!(pace.look(ASKED, now), Look::Changed);
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
