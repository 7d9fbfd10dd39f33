//! How the profiler counts allocations without an instruction on the fast path while it is off.
//!
//! While the profiler samples, the published bottoms of the magazines are so high that every pop of
//! the fast path misses. Every push still hits. After a miss, `malloc` first tries a second pop
//! here, from the same magazine. It uses a separate bottom, and a number that says how many blocks
//! may be given out before the next sample. This takes two instructions more than the fast path and
//! no lock, and stays last in, first out ([`neap_heap::cache::machine::pop_sampling`]). When the
//! number is used up, the slow path takes the sample.
//!
//! Which block is sampled: every byte given out is a sample with the same small probability,
//! independent of all others (a Poisson process over bytes), and a block is sampled if one of its
//! bytes is. For blocks of `s` bytes and a mean of `rate` bytes between samples, this probability
//! is `p = 1 - exp(-s / rate)`. So the number of blocks before the next sampled one is geometric:
//! `floor(E * rate / s)` with `E` exponential of mean 1 (Devroye, "Non-Uniform Random Variate
//! Generation", 1986, X.2). The processes of classes and threads are independent, and together they
//! are one process over all bytes. A sampled block represents `1 / p` blocks, which makes every
//! total unbiased at all sizes.

use super::pace::Pace;
use neap_heap::base::sync::Ordering;
use neap_heap::cache::heap::HEAP;
use neap_heap::cache::opened::Opened;
use neap_heap::cache::thread_cache::Cache;
use neap_heap::os::lock::Lock;
use neap_heap::os::process::now_ns;
use neap_heap::slab::class::Class;

/// Blocks of this many bytes or more are sampled by the rate that was asked for, however fast the
/// process allocates.
const HUGE: usize = 1 << 20;

/// Decides which blocks are sampled.
pub(super) struct Sampler {
    pace: Pace,
}

/// The process's.
pub(super) static SAMPLER: Sampler = Sampler::off();

impl Sampler {
    /// Nothing is sampled.
    const fn off() -> Sampler {
        Sampler { pace: Pace::off() }
    }

    /// The pace's lock, for a fork.
    pub(super) const fn lock(&self) -> &Lock {
        &self.pace.lock
    }

    /// Switches sampling on (mean bytes between two samples) or off (0), for all threads. The
    /// caller holds no lock of the heap.
    pub(super) fn set_rate(&self, rate: u64) {
        let _guard = self.pace.lock.lock();
        self.pace.restart(rate, now_ns());
        HEAP.set_sampling(rate, |open| {
            // Before the owner may count by it; one that counts already follows the new rate by
            // itself, because it may be about to write what it counted by the old one.
            if rate == 0 || open.cache.drawn.rate() == 0 {
                self.begin_counting(open);
            }
        });
    }

    /// Draws anew for a cache, by the rate in force.
    fn begin_counting(&self, open: &mut Opened<'_>) {
        draw_all(open, self.pace.rate());
    }

    /// The same for one that has drawn nothing yet, as every new cache.
    fn begin_first(&self, open: &mut Opened<'_>) {
        if open.cache.drawn.rate() == 0 && self.pace.rate() != 0 {
            self.begin_counting(open);
        }
    }

    /// Whether the next block of `class` is to be sampled: then, by what rate, and the one after
    /// that is drawn. Else it counts as given out. For the owner of the cache, in its slow path.
    pub(super) fn samples_next(&self, cache: &Cache, class: Class) -> Option<u64> {
        let countdown = cache.countdown(class);
        if countdown.pass() {
            self.follow(cache);
            return None;
        }
        let mut open = cache.open();
        self.begin_first(&mut open);
        // Drawn just now, or meanwhile by the thread that switched sampling on.
        if countdown.pass() {
            return None;
        }
        let rate = self.note_sample(&mut open)?;
        draw(&mut open, class);
        Some(rate)
    }

    /// Whether a block of `bytes` bytes, of no class, is to be sampled, and by what rate. For the
    /// owner of the cache.
    pub(super) fn samples_large(&self, cache: &Cache, bytes: usize) -> Option<u64> {
        if bytes >= HUGE {
            let rate = self.pace.asked();
            let is_hit = || random(&mut cache.open()) <= chance(bytes, rate);
            return (rate > 0 && is_hit()).then_some(rate);
        }
        if cache.drawn.pass(bytes) {
            return None;
        }
        let mut open = cache.open();
        self.begin_first(&mut open);
        // As above.
        if cache.drawn.pass(bytes) {
            return None;
        }
        let rate = self.note_sample(&mut open)?;
        draw_large(&mut open);
        Some(rate)
    }

    /// One more block is sampled: the rate that it was drawn by. `None` if sampling was switched
    /// off meanwhile. The thread that switches it comes to this cache either before its lock was
    /// taken or after.
    fn note_sample(&self, open: &mut Opened<'_>) -> Option<u64> {
        self.note_sample_at(open, now_ns())
    }

    fn note_sample_at(&self, open: &mut Opened<'_>, now: u64) -> Option<u64> {
        let rate = Some(open.cache.drawn.rate()).filter(|&rate| rate != 0)?;
        self.pace.note();
        self.pace.look(now);
        if self.pace.rate() != rate {
            self.begin_counting(open);
        }
        Some(rate)
    }

    /// Nothing was sampled for a while, perhaps because the process was fast before. For the owner
    /// of the cache.
    fn follow(&self, cache: &Cache) {
        if self.pace.is_raised() {
            self.pace.look(now_ns());
        }
        if self.pace.rate() != cache.drawn.rate() {
            self.begin_counting(&mut cache.open());
        }
    }
}

/// The probability that a block of this many bytes is sampled.
pub(super) fn chance(bytes: usize, rate: u64) -> f64 {
    -libm::expm1(-(bytes as f64) / rate as f64)
}

/// Draws for every class and for large blocks, by `rate`; nothing if that is 0.
fn draw_all(open: &mut Opened<'_>, rate: u64) {
    open.cache.drawn.rate.store(rate, Ordering::Relaxed);
    Class::all().for_each(|class| draw(open, class));
    draw_large(open);
}

/// Draws how many bytes of large blocks come before the next sampled one.
fn draw_large(open: &mut Opened<'_>) {
    let bytes = bytes_ahead(open) as i64;
    open.cache.drawn.bytes.store(bytes, Ordering::Relaxed);
}

/// Draws how many blocks of `class` come before the next sampled one.
fn draw(open: &mut Opened<'_>, class: Class) {
    // Saturates.
    let ahead = (bytes_ahead(open) / class.bytes() as f64) as i32;
    open.countdown(class)
        .until_sample
        .store(ahead, Ordering::Relaxed);
}

/// Draws how many bytes come before the next sampled one, by the rate of the cache's draws.
fn bytes_ahead(open: &mut Opened<'_>) -> f64 {
    -libm::log(random(open)) * open.cache.drawn.rate() as f64
}

/// A uniform number in (0, 1] (xorshift64*: Vigna, "An experimental exploration of Marsaglia's
/// xorshift generators", 2016).
fn random(open: &mut Opened<'_>) -> f64 {
    let mut state = match *open.random_state() {
        0 => (now_ns() ^ core::ptr::from_ref(open.cache).addr() as u64) | 1,
        state => state,
    };
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    *open.random_state() = state;
    let bits = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
    (bits + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_are_sampled_with_the_chance_of_their_bytes() {
        let cache = Cache::new(0);
        let mut open = cache.open();
        *open.random_state() = 1;
        let (bytes, rate, blocks) = (100_000, 512 << 10, 200_000);
        draw_all(&mut open, rate);
        let mut samples = 0;
        for _ in 0..blocks {
            if !cache.drawn.pass(bytes) {
                samples += 1;
                draw_large(&mut open);
            }
        }
        let p = chance(bytes, rate);
        let error = (f64::from(blocks) * p * (1.0 - p)).sqrt();
        let off = f64::from(samples) - f64::from(blocks) * p;
        assert!(off.abs() < 4.0 * error, "{samples}, off by {off}");
    }

    const PHASE: usize = 200 << 20;
    const PHASES: usize = 10;

    /// A process that allocates [`PHASE`] bytes fast, then as many slowly, and so on: what its
    /// samples say of all of it, and how many of them were coarse ones.
    fn told(sampler: &Sampler, cache: &Cache, class: Class, asked: u64) -> (f64, u32) {
        let bytes = class.bytes();
        let (mut now, mut total, mut coarse) = (1, 0.0, 0);
        let countdown = cache.countdown(class);
        sampler.pace.restart(asked, now);
        sampler.begin_counting(&mut cache.open());
        for block in 0..PHASES * PHASE / bytes {
            let is_fast = (block * bytes / PHASE).is_multiple_of(2);
            now += if is_fast { 100 } else { 4_000 };
            if countdown.pass() {
                continue;
            }
            let mut open = cache.open();
            let rate = sampler.note_sample_at(&mut open, now).expect("it samples");
            draw(&mut open, class);
            coarse += u32::from(rate > asked);
            total += bytes as f64 / chance(bytes, rate);
        }
        (total, coarse)
    }

    #[test]
    fn totals_are_unbiased_while_the_rate_changes() {
        const RUNS: u32 = 120;
        let sampler = Sampler::off();
        let cache = Cache::new(0);
        *cache.open().random_state() = 0x9E37_79B9_7F4A_7C15;
        let (class, asked) = (Class::of_size(4096), 32 << 10);
        let truth = (PHASES * PHASE) as f64;
        let runs = [(); RUNS as usize].map(|()| told(&sampler, &cache, class, asked));
        assert!(runs.iter().all(|(_, coarse)| *coarse > 100));
        let mean = runs.iter().map(|(total, _)| total).sum::<f64>() / f64::from(RUNS);
        let squares = runs.iter().map(|(total, _)| (total - mean).powi(2));
        let error = (squares.sum::<f64>() / f64::from(RUNS * (RUNS - 1))).sqrt();
        assert!(error < truth / 50.0, "{error} of {truth}");
        assert!(
            (mean - truth).abs() < 3.0 * error,
            "{mean} of {truth}, give or take {error}"
        );
    }

    #[test]
    fn a_new_rate_is_followed_with_the_old_draws_weighted_by_the_old_one() {
        let sampler = Sampler::off();
        let (cache, class) = (Cache::new(0), Class::of_size(64));
        sampler.pace.restart(4096, 1);
        sampler.begin_counting(&mut cache.open());
        sampler.pace.restart(1 << 20, 1);
        let countdown = cache.countdown(class);
        countdown.until_sample.store(0, Ordering::Relaxed);
        assert_eq!(sampler.samples_next(&cache, class), Some(4096));
        assert_eq!(cache.drawn.rate(), 1 << 20);
        sampler.pace.restart(0, 1);
        countdown.until_sample.store(0, Ordering::Relaxed);
        assert_eq!(sampler.samples_next(&cache, class), Some(1 << 20));
        assert_eq!(sampler.samples_next(&cache, class), None, "it is off");
    }

    #[test]
    fn a_new_cache_draws_at_its_first_block() {
        let (sampler, class) = (Sampler::off(), Class::of_size(64));
        sampler.pace.restart(1 << 30, 1);
        let sampled = (0..1000).filter(|_| {
            let cache = Cache::new(0);
            let is_sampled = sampler.samples_next(&cache, class).is_some()
                || sampler.samples_large(&cache, 100_000).is_some();
            assert_eq!(cache.drawn.rate(), 1 << 30);
            is_sampled
        });
        // One in 10,000 is.
        assert!(sampled.count() < 20);
    }

    #[test]
    fn the_mean_of_draws_is_the_theorys() {
        let cache = Cache::new(0);
        let mut open = cache.open();
        for size in [16, 1000, 20_000] {
            let (class, rate) = (Class::of_size(size), 64 << 10);
            cache.drawn.rate.store(rate, Ordering::Relaxed);
            let p = chance(class.bytes(), rate);
            let draws = 200_000;
            let drawn = (0..draws).map(|_| {
                draw(&mut open, class);
                f64::from(open.countdown(class).until_sample.load(Ordering::Relaxed))
            });
            let sum: f64 = drawn.sum();
            // Geometric: mean (1 - p) / p, variance (1 - p) / p².
            let mean = (1.0 - p) / p;
            let error = (1.0 - p).sqrt() / p / f64::from(draws).sqrt();
            let found = sum / f64::from(draws);
            assert!(
                (found - mean).abs() < 5.0 * error,
                "{size}: {found} for {mean}"
            );
        }
    }
}
