//! How the profiler counts allocations without an instruction on the fast path while it is off.
//!
//! While it samples, the magazines' bottoms are published out of reach: every pop of the fast path misses, every push still
//! hits. What missed pops here first, from the same magazine, by a bottom that stands apart and a number that says how many blocks may be
//! given out before the next sample. A dozen instructions, no lock, last in first out as ever. When the number is 0, the slow path has
//! its sample.
//!
//! Which block is sampled: every byte given out is a sample with the same small chance, independent of all others (a Poisson
//! process over bytes), and a block is sampled if one of its bytes is. For blocks of `s` bytes and a mean of `rate` bytes between
//! samples that is a chance of `p = 1 - exp(-s / rate)` each, so the number of blocks before the next sampled one is geometric:
//! `floor(E * rate / s)` with `E` exponential of mean 1 (Devroye, "Non-Uniform Random Variate Generation", 1986, X.2). The processes of
//! classes and threads are independent, and one with another they are one process over all bytes. A sampled block stands for
//! `1 / p` blocks: that makes every total unbiased, whatever the sizes.

use super::heap::Heap;
use super::magazine::Tag;
use super::thread::{Cache, Opened};
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::os::thread::now_ns;
use crate::slab::class::{CLASSES, Class};

/// What is counted of one class of a cache, and how often its magazine missed.
pub struct Counted {
    /// Entries of the magazine at and above this address may be popped by [`Cache::pop_counted`]; out of reach unless the door is
    /// [`super::thread::Door::Sampling`]. Written under the cache's lock.
    pub bottom: AtomicUsize,
    /// Blocks to be given out before the next sample. Written by the owner, and under the cache's lock when sampling is switched: of two
    /// writes at once either may stay. While sampling is on, one draw is as good as another; when it is off, what stays
    /// has no effect, for `bottom` is out of reach.
    ahead: AtomicU32,
    /// Refills and flushes since the shrinking hand last came by. Under the cache's lock.
    misses: AtomicU32,
}

impl Counted {
    /// Nothing is sampled.
    pub const fn off() -> Counted {
        Counted {
            bottom: AtomicUsize::new(0),
            ahead: AtomicU32::new(0),
            misses: AtomicU32::new(0),
        }
    }

    /// Notes a refill or a flush.
    pub(super) fn note_miss(&self) {
        let misses = self.misses.load(Ordering::Relaxed);
        self.misses
            .store(misses.saturating_add(1), Ordering::Relaxed);
    }

    /// Refills and flushes since the last call.
    pub(super) fn take_misses(&self) -> u32 {
        self.misses.swap(0, Ordering::Relaxed)
    }

    /// One more block is given out. False if it is to be sampled.
    #[inline(always)]
    fn pass(&self) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        if ahead == 0 {
            return false;
        }
        self.ahead.store(ahead - 1, Ordering::Relaxed);
        true
    }
}

impl Cache {
    /// Takes the newest block of a class's tag while the profiler samples, unless this one is to be sampled, or the magazine is empty. For
    /// the owner only.
    #[inline(always)]
    pub fn pop_counted(&self, tag: Tag) -> Option<*mut u8> {
        let counted = self.counted_of(tag);
        let ahead = counted.ahead.load(Ordering::Relaxed);
        if ahead == 0 {
            return None;
        }
        let bottom = counted.bottom.load(Ordering::Relaxed);
        let block = self.magazine(tag).pop_above(bottom)?;
        counted.ahead.store(ahead - 1, Ordering::Relaxed);
        Some(block)
    }

    #[inline(always)]
    fn counted_of(&self, tag: Tag) -> &Counted {
        // A third of the tag, without a division.
        let index = (tag.0 as usize * 171) >> 9;
        debug_assert!(index <= CLASSES && index * 3 == tag.0 as usize);
        // SAFETY: tags of requests are those of classes, three times their index.
        unsafe { self.counted.get_unchecked(index) }
    }
}

impl Heap {
    /// Whether the profiler samples.
    #[inline]
    pub fn is_sampling(&self) -> bool {
        self.sampling.load(Ordering::Relaxed) != 0
    }

    /// Mean bytes between two samples; 0: it is off.
    pub fn sampling(&self) -> u64 {
        self.sampling.load(Ordering::Relaxed)
    }

    /// Switches sampling on (mean bytes between two samples) or off (0), for all threads. The caller holds no lock of the heap.
    pub fn set_sampling(&'static self, rate: u64) {
        self.sampling.store(rate, Ordering::Relaxed);
        let door = self.door();
        self.registry.for_each(|cache| {
            let mut open = cache.open();
            open.set_door(door);
            self.begin_counting(&mut open);
        });
    }

    /// Draws for every class of a cache, or draws nothing while sampling is off.
    pub(super) fn begin_counting(&self, open: &mut Opened<'_>) {
        let rate = self.sampling();
        for class in Class::all() {
            let ahead = match rate {
                0 => 0,
                rate => open.draw(class, rate),
            };
            open.counted(class).ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// Whether the next block of `class` is to be sampled; then the one after that is drawn. Else it counts as given out. For the owner
    /// of the cache, in its slow path.
    pub fn samples_next(&self, cache: &Cache, class: Class) -> bool {
        if cache.counted[class.index()].pass() {
            return false;
        }
        let mut open = cache.open();
        // Under the lock: who switches sampling comes to this cache before it or after.
        let rate = self.sampling();
        if rate == 0 {
            return false;
        }
        let ahead = open.draw(class, rate);
        open.counted(class).ahead.store(ahead, Ordering::Relaxed);
        true
    }

    /// Whether a block of `bytes` bytes, of no class, is to be sampled. For the owner of the cache.
    pub fn samples_large(&self, cache: &Cache, bytes: usize) -> bool {
        let rate = self.sampling();
        rate > 0 && cache.open().random() <= chance(bytes, rate)
    }
}

/// The chance that a block of so many bytes is sampled.
pub fn chance(bytes: usize, rate: u64) -> f64 {
    -libm::expm1(-(bytes as f64) / rate as f64)
}

impl Opened<'_> {
    /// Draws how many blocks of `class` come before the next sampled one.
    fn draw(&mut self, class: Class, rate: u64) -> u32 {
        let blocks = -libm::log(self.random()) * rate as f64 / class.bytes() as f64;
        // Saturates.
        blocks as u32
    }

    /// A uniform number in (0, 1] (xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
    fn random(&mut self) -> f64 {
        let mut state = match self.inner.random {
            0 => (now_ns() ^ core::ptr::from_ref(self.cache).addr() as u64) | 1,
            state => state,
        };
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.inner.random = state;
        let bits = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        (bits + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_draws_is_the_theorys() {
        let cache = Cache::new();
        let mut open = cache.open();
        for size in [16, 1000, 20_000] {
            let (class, rate) = (Class::of_size(size), 64 << 10);
            let p = chance(class.bytes(), rate);
            let draws = 200_000;
            let sum: f64 = (0..draws).map(|_| f64::from(open.draw(class, rate))).sum();
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
