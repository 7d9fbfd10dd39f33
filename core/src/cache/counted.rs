//! How the profiler counts allocations without an instruction on the fast path while it is off.
//!
//! While it samples, the magazines' bottoms are published out of reach: every pop of the fast path misses, every push still
//! hits. What missed pops here first, from the same magazine, by a bottom that stands apart and a number that says how many blocks may be
//! given out before the next sample: two instructions more than the fast path has, no lock, last in first out as ever
//! ([`super::fast::pop_counted`]). When the number is spent, the slow path has its sample.
//!
//! Which block is sampled: every byte given out is a sample with the same small chance, independent of all others (a Poisson
//! process over bytes), and a block is sampled if one of its bytes is. For blocks of `s` bytes and a mean of `rate` bytes between
//! samples that is a chance of `p = 1 - exp(-s / rate)` each, so the number of blocks before the next sampled one is geometric:
//! `floor(E * rate / s)` with `E` exponential of mean 1 (Devroye, "Non-Uniform Random Variate Generation", 1986, X.2). The processes of
//! classes and threads are independent, and one with another they are one process over all bytes. A sampled block stands for
//! `1 / p` blocks: that makes every total unbiased, whatever the sizes.

use super::heap::Heap;
use super::magazine::{Magazine, Tag};
use super::pace::Look;
use super::thread::{Cache, Opened};
use crate::base::sync::plain::{AtomicI32, AtomicU32};
use crate::base::sync::{AtomicUsize, Ordering};
use crate::os::thread::now_ns;
use crate::slab::class::{CLASSES, Class};

/// What is counted of one class of a cache. As long as a magazine, so that a tag finds it without a shift.
#[repr(C)]
pub struct Counted {
    /// Entries of the magazine at and above this address may be popped by [`super::fast::pop_counted`]; out of reach unless the door is
    /// [`super::thread::Door::Sampling`]. Written under the cache's lock.
    pub bottom: AtomicUsize,
    /// Blocks to be given out before the next sample; below 0, that one is due. Written by the owner, and under the cache's lock when
    /// sampling is switched: of two writes at once either may stay. While sampling is on, one draw is as good as another; when it is
    /// off, what stays has no effect, for `bottom` is out of reach.
    pub ahead: AtomicI32,
    /// Refills and flushes since the shrinking hand last came by. Under the cache's lock.
    misses: AtomicU32,
    /// Refills so far; wraps. Under the cache's lock.
    refills: AtomicU32,
    /// Flushes so far; wraps. Under the cache's lock.
    flushes: AtomicU32,
}

const _: () = assert!(size_of::<Counted>() == size_of::<Magazine>());

/// What a magazine misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// It was empty.
    Refill,
    /// It was full.
    Flush,
}

impl Counted {
    /// Nothing is sampled.
    pub const fn off() -> Counted {
        Counted {
            bottom: AtomicUsize::new(0),
            ahead: AtomicI32::new(0),
            misses: AtomicU32::new(0),
            refills: AtomicU32::new(0),
            flushes: AtomicU32::new(0),
        }
    }

    /// Notes that the magazine is too small.
    pub(super) fn note_miss(&self) {
        add(&self.misses);
    }

    /// Notes what was done about it.
    pub(super) fn note(&self, miss: Miss) {
        match miss {
            Miss::Refill => add(&self.refills),
            Miss::Flush => add(&self.flushes),
        }
    }

    /// Refills so far, and flushes.
    pub fn refills_and_flushes(&self) -> [u32; 2] {
        [&self.refills, &self.flushes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Misses since the last call.
    pub(super) fn take_misses(&self) -> u32 {
        self.misses.swap(0, Ordering::Relaxed)
    }

    /// One more block is given out. False if it is to be sampled.
    #[inline(always)]
    fn pass(&self) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        if ahead <= 0 {
            return false;
        }
        self.ahead.store(ahead - 1, Ordering::Relaxed);
        true
    }
}

/// Adds one to a number that is written under a lock.
fn add(count: &AtomicU32) {
    let more = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(more, Ordering::Relaxed);
}

impl Cache {
    /// What is counted of the class of `tag`.
    #[inline(always)]
    pub(super) fn counted_of(&self, tag: Tag) -> &Counted {
        let offset = tag.0 as usize * 8;
        debug_assert!(offset / size_of::<Counted>() <= CLASSES);
        debug_assert!(offset.is_multiple_of(size_of::<Counted>()));
        // SAFETY: tags of requests are those of classes, multiples of the stride.
        unsafe { &*self.counted.as_ptr().byte_add(offset) }
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

    /// Has a cache sampled as it was asked for, or not at all.
    pub(super) fn begin_counting(&self, open: &mut Opened<'_>) {
        open.cache.pace.restart(self.sampling(), now_ns());
        open.draw_all();
    }

    /// Whether the next block of `class` is to be sampled: then, by what rate, and the one after that is drawn. Else it counts as
    /// given out. For the owner of the cache, in its slow path.
    pub fn samples_next(&self, cache: &Cache, class: Class) -> Option<u64> {
        if cache.counted[class.index()].pass() {
            if cache.pace.is_raised(self.sampling()) {
                self.keep_pace(&mut cache.open());
            }
            return None;
        }
        let mut open = cache.open();
        // Under the lock: who switches sampling comes to this cache before it or after.
        let rate = cache.pace.rate();
        if rate == 0 {
            return None;
        }
        cache.pace.note();
        if self.keep_pace(&mut open) == Look::Kept {
            open.draw(class, rate);
        }
        Some(rate)
    }

    /// Whether a block of `bytes` bytes, of no class, is to be sampled, and by what rate. For the owner of the cache.
    pub fn samples_large(&self, cache: &Cache, bytes: usize) -> Option<u64> {
        let mut open = cache.open();
        let rate = cache.pace.rate();
        if rate == 0 || open.random() > chance(bytes, rate) {
            return None;
        }
        cache.pace.note();
        self.keep_pace(&mut open);
        Some(rate)
    }

    fn keep_pace(&self, open: &mut Opened<'_>) -> Look {
        let paced = match self.sampling() {
            0 => Look::Kept,
            asked => open.cache.pace.look(asked, now_ns()),
        };
        if paced == Look::Changed {
            open.draw_all();
        }
        paced
    }
}

/// The chance that a block of so many bytes is sampled.
pub fn chance(bytes: usize, rate: u64) -> f64 {
    -libm::expm1(-(bytes as f64) / rate as f64)
}

impl Opened<'_> {
    /// Draws for every class, or nothing while sampling is off.
    fn draw_all(&mut self) {
        let rate = self.cache.pace.rate();
        for class in Class::all() {
            match rate {
                0 => self.counted(class).ahead.store(0, Ordering::Relaxed),
                rate => self.draw(class, rate),
            }
        }
    }

    /// Draws how many blocks of `class` come before the next sampled one.
    fn draw(&mut self, class: Class, rate: u64) {
        let ahead = self.blocks_ahead(class, rate);
        self.counted(class).ahead.store(ahead, Ordering::Relaxed);
    }

    fn blocks_ahead(&mut self, class: Class, rate: u64) -> i32 {
        let blocks = -libm::log(self.random()) * rate as f64 / class.bytes() as f64;
        // Saturates.
        blocks as i32
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
            let drawn = (0..draws).map(|_| f64::from(open.blocks_ahead(class, rate)));
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
