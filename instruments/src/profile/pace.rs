//! How often a process is sampled when it allocates very fast.
//!
//! A sample costs about a microsecond, including its free. A process that allocates tens of
//! gigabytes a second would spend a fifth of its time on samples, and learn nothing from so large a
//! number. So besides the requested rate there is a coarser one, used once the process has had
//! [`CREDIT`] samples at more than [`BYTES_PER_NS`]. The rate depends only on the past, and when it
//! changes, the future is drawn anew. So each block is sampled with a probability that was fixed in
//! advance, and weighted by that probability, and totals stay unbiased.

use neap_heap::base::sync::plain::{AtomicU64, Ordering::Relaxed};
use neap_heap::os::lock::{Lock, Rank};

/// A process that allocates faster for long is sampled as often as if it allocated that fast: 3,815
/// times a second at 512 KiB.
const BYTES_PER_NS: u64 = 2;
/// A process takes this many samples at the requested rate, however fast it allocates: 2 GiB
/// of them at 512 KiB.
const CREDIT: u64 = 4096;
/// The speed of a process that is sampled more coarsely is taken over this many samples, or the
/// time that they would take at [`BYTES_PER_NS`].
const WINDOW: u64 = 32;
/// The coarsest rate, in bytes: the coarsest that may be asked for.
const COARSEST: u64 = 1 << 30;

/// The rate in force, and the samples by which it is set.
pub(super) struct Pace {
    /// Held throughout by a thread that switches sampling, and by a thread that sets the rate; the
    /// latter does not wait for it.
    pub(super) lock: Lock,
    /// Mean bytes between two samples, as it was asked for; 0: none are taken. Written under the
    /// lock.
    asked: AtomicU64,
    /// The same as it is now. Written under the lock.
    rate: AtomicU64,
    /// When the window began, in ns. Written under the lock.
    began: AtomicU64,
    /// Samples since. A window that ends takes those that it counted away, under the lock.
    samples: AtomicU64,
}

impl Pace {
    /// Nothing is sampled.
    pub(super) const fn off() -> Pace {
        Pace {
            lock: Lock::new(Rank::Pace),
            asked: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            began: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// Mean bytes between two samples, as it was asked for; 0: none are taken.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// The same as it is now.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// `asked` is in force, from `now` (ns) on. The caller holds the lock.
    pub(super) fn restart(&self, asked: u64, now: u64) {
        self.began.store(now, Relaxed);
        self.samples.store(0, Relaxed);
        self.asked.store(asked, Relaxed);
        self.rate.store(asked, Relaxed);
    }

    /// Whether the rate is coarser than was asked for.
    pub(super) fn is_raised(&self) -> bool {
        self.rate() > self.asked()
    }

    /// Notes a sample.
    pub(super) fn note(&self) {
        self.samples.fetch_add(1, Relaxed);
    }

    /// Looks at the window at `now`, in ns; if it is over, sets the rate for the next one. Any
    /// thread may, at any time.
    pub(super) fn look(&self, now: u64) {
        if !self.is_over(now) {
            return;
        }
        let Some(_guard) = self.lock.try_lock() else {
            return;
        };
        // Another thread may have ended it meanwhile.
        if self.is_over(now) && self.asked() != 0 {
            self.end_window(self.samples.load(Relaxed), now);
        }
    }

    /// Whether the window is over. A thread that was suspended after it read the clock says nothing
    /// of a window that began later.
    fn is_over(&self, now: u64) -> bool {
        let window = if self.is_raised() { WINDOW } else { CREDIT };
        let is_late = now < self.began.load(Relaxed);
        let is_full = self.samples.load(Relaxed) >= window;
        !is_late && (is_full || self.elapsed(now) >= window.saturating_mul(self.least()))
    }

    /// How long the window has lasted, in ns.
    fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.began.load(Relaxed)).max(1)
    }

    /// Time between two samples at [`BYTES_PER_NS`], in ns.
    fn least(&self) -> u64 {
        (self.asked() / BYTES_PER_NS).max(1)
    }

    /// Ends a window of `took` samples, and begins one. Samples that other threads noted since they
    /// were counted belong to the new one, which begins at `now`. The caller holds the lock.
    fn end_window(&self, took: u64, now: u64) {
        self.set_rate(took, now);
        self.began.store(now, Relaxed);
        self.samples.fetch_sub(took, Relaxed);
    }

    /// Sets the rate that gives one sample in every [`Pace::least`]. The caller holds the lock.
    fn set_rate(&self, took: u64, now: u64) {
        let (asked, rate) = (self.asked(), self.rate());
        let fit = u128::from(rate) * u128::from(took) * u128::from(self.least());
        let fit = u64::try_from(fit / u128::from(self.elapsed(now))).unwrap_or(u64::MAX);
        let fit = fit.min(COARSEST).max(asked);
        // No more than chance makes of so few samples.
        let is_chance = fit != asked && (rate / 3 * 2..=rate / 2 * 3).contains(&fit);
        if !is_chance {
            self.rate.store(fit, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const ASKED: u64 = 512 << 10;

    /// A process that allocates `bytes_per_ns` for a number of samples, exactly as often as its
    /// rate says.
    fn run(pace: &Pace, now: &mut u64, bytes_per_ns: u64, samples: u32) -> u32 {
        let mut changes = 0;
        for _ in 0..samples {
            *now += pace.rate() / bytes_per_ns;
            pace.note();
            let before = pace.rate();
            pace.look(*now);
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
        assert!(pace.is_raised());
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
        // It also looks when it refills, without a sample.
        now += WINDOW * ASKED;
        pace.look(now);
        assert!(pace.rate() < raised / 8, "of four samples before");
        now += WINDOW * ASKED;
        pace.look(now);
        assert!(!pace.is_raised());
    }

    #[test]
    fn the_coarsest_rate_is_a_bound() {
        let (pace, mut now) = (Pace::off(), 0);
        pace.restart(ASKED, now);
        for _ in 0..100_000 {
            now += 1;
            pace.note();
            pace.look(now);
        }
        assert_eq!(pace.rate(), COARSEST);
    }

    /// 40 bytes a ns, for as many samples as a window takes that is not raised.
    fn raised() -> (Pace, u64) {
        let (pace, mut now) = (Pace::off(), 5_000_000);
        pace.restart(ASKED, now);
        run(&pace, &mut now, 40, CREDIT as u32);
        (pace, now)
    }

    /// They look at the same time, by clocks that they read before.
    #[test]
    fn several_threads_end_a_window_once() {
        const THREADS: u64 = 4;
        let (single, end) = raised();
        for _ in 0..100 {
            let (pace, start) = (Pace::off(), Barrier::new(THREADS as usize));
            pace.restart(ASKED, 5_000_000);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        (0..CREDIT / THREADS).for_each(|_| pace.note());
                        start.wait();
                        pace.look(end);
                    });
                }
            });
            // A second end would be of a window without samples.
            assert_eq!(pace.rate(), single.rate());
            let window = (pace.began.load(Relaxed), pace.samples.load(Relaxed));
            assert_eq!(window, (end, 0));
        }
    }

    #[test]
    fn a_thread_that_was_suspended_changes_nothing() {
        let (pace, began) = raised();
        let rate = pace.rate();
        (0..WINDOW).for_each(|_| pace.note());
        // It read the clock before another thread ended a window.
        pace.look(began - 1);
        assert_eq!((pace.rate(), pace.began.load(Relaxed)), (rate, began));
        pace.look(began + WINDOW * ASKED / BYTES_PER_NS);
        assert_eq!(pace.rate(), rate, "the samples still count");
        assert_eq!(pace.samples.load(Relaxed), 0);
    }

    #[test]
    fn samples_that_other_threads_note_meanwhile_are_the_next_windows() {
        let (pace, began) = raised();
        let (rate, window) = (pace.rate(), WINDOW * ASKED / BYTES_PER_NS);
        (0..2 * WINDOW).for_each(|_| pace.note());
        let _guard = pace.lock.lock();
        pace.end_window(WINDOW, began + window);
        assert_eq!(pace.samples.load(Relaxed), WINDOW);
        pace.end_window(WINDOW, began + 2 * window);
        assert_eq!((pace.rate(), pace.samples.load(Relaxed)), (rate, 0));
    }
}
