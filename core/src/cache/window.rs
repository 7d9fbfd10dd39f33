//! Windows: how the profiler counts allocations without an instruction more on the fast path.
//!
//! While it samples, a thread pops not from its magazines but from *windows*: short stacks that are only ever popped from, so that
//! a window of `n` blocks is `n` allocations, no more and no fewer. The table of slots in the cache leads there; the pop itself is
//! the same. Frees go to the magazine as always. An empty window takes the slow path, which moves the newest blocks of
//! the magazine over, as many as may be given out before the next sample.
//!
//! Which block is sampled: every byte given out is a sample with the same small chance, independent of all others (a Poisson
//! process over bytes), and a block is sampled if one of its bytes is. For blocks of `s` bytes and a mean of `rate` bytes between
//! samples that is a chance of `p = 1 - exp(-s / rate)` each, so the number of blocks before the next sampled one is geometric:
//! `floor(E * rate / s)` with `E` exponential of mean 1 (Devroye, "Non-Uniform Random Variate Generation", 1986, X.2). The processes of
//! classes and threads are independent, and one with another they are one process over all bytes. A sampled block stands for
//! `1 / p` blocks: that makes every total unbiased, whatever the sizes.

use super::gather::give_one;
use super::heap::Heap;
use super::thread::{Cache, Opened};
use crate::base::sync::Ordering;
use crate::os::thread::{heavy_barrier, now_ns};
use crate::slab::class::table::BUILT_IN;
use crate::slab::class::{CLASSES, Class};
use core::ptr::{self, NonNull};

/// Most blocks of a window: an empty one costs some 50 ns.
const MOST_ENTRIES: usize = 192;
/// Most bytes of blocks in a window that has more than [`LEAST_ENTRIES`]: they go round, so they should stay in the second cache.
const BYTES: usize = 64 << 10;
const LEAST_ENTRIES: usize = 16;

/// By class index: where a window's array starts in [`Sampler::entries`], and, after the last, how long that is. By the built-in
/// classes' sizes, whatever is in force.
const STARTS: [usize; CLASSES + 2] = {
    let mut starts = [0; CLASSES + 2];
    let mut index = 1;
    while index <= CLASSES {
        let fit = BYTES / (BUILT_IN.sizes[index] as usize);
        let room = if fit > MOST_ENTRIES {
            MOST_ENTRIES
        } else if fit < LEAST_ENTRIES {
            LEAST_ENTRIES
        } else {
            fit
        };
        starts[index + 1] = starts[index] + room;
        index += 1;
    }
    starts
};

/// What a thread's cache needs while the profiler samples.
pub struct Sampler {
    /// By class index: blocks to be given out before the next sample, those in the window not among them.
    ahead: [u32; CLASSES + 1],
    /// A state of [`Sampler::random`].
    state: u64,
    /// By class index: the windows' arrays.
    entries: [usize; STARTS[CLASSES + 1]],
}

/// What comes of an allocation while the profiler samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// This block; null when out of memory.
    Block(*mut u8),
    /// This allocation is to be sampled.
    Sample,
}

impl Sampler {
    /// A uniform number in (0, 1] (xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
    fn random(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        (bits + 1) as f64 / (1u64 << 53) as f64
    }

    /// Draws how many blocks of `bytes` bytes come before the next sampled one.
    fn draw(&mut self, bytes: usize, rate: u64) -> u32 {
        let blocks = -libm::log(self.random()) * rate as f64 / bytes as f64;
        // Saturates.
        blocks as u32
    }

    fn draw_all(&mut self, rate: u64) {
        for class in Class::all() {
            self.ahead[class.index()] = self.draw(class.bytes(), rate);
        }
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

    /// Switches sampling on (mean bytes between two samples) or off (0), for all threads. False if there is no heavy barrier: then
    /// nothing changes. The caller holds no lock of the heap.
    pub fn set_sampling(&'static self, rate: u64) -> bool {
        if !heavy_barrier() {
            return false;
        }
        self.sampling.store(rate, Ordering::Relaxed);
        let door = self.door();
        let turn = |cache: &Cache| {
            let mut open = cache.open();
            open.set_door(door);
            if let Some(sampler) = open.sampler() {
                sampler.draw_all(rate.max(1));
            }
        };
        // Behind the barrier nobody pops by what was in force before, and drainers, who need the registry, come after it.
        self.registry.for_each_then(turn, heavy_barrier);
        if rate == 0 {
            self.registry.for_each(|cache| {
                let open = cache.open();
                Class::all().for_each(|class| self.empty_window(&open, class));
            });
        }
        true
    }

    /// Takes a block while the profiler samples, or says that this one is to be sampled. For the owner of the cache.
    pub fn take_sampling(&'static self, cache: &Cache, class: Class) -> Took {
        let mut open = cache.open();
        if let Some(block) = cache.windows[class.index()].pop() {
            return Took::Block(block);
        }
        // Switched off since the caller looked: what goes to a window now would stay there.
        if !self.is_sampling() {
            drop(open);
            return Took::Block(self.refill(cache, class));
        }
        if self.is_sample(&mut open, class) {
            return Took::Sample;
        }
        open.settle(class);
        self.widen(&mut open, class);
        if let Some(block) = open.move_window(class) {
            return Took::Block(block);
        }
        if let Some(sampler) = open.sampler() {
            sampler.ahead[class.index()] -= 1;
        }
        drop(open);
        Took::Block(self.refill(cache, class))
    }

    /// Sees to it that so many blocks go round that an empty window is rare, be it that the program has but one at a time.
    fn widen(&'static self, open: &mut Opened<'_>, class: Class) {
        let (filled, most) = (open.filled(class), most_blocks(class));
        if filled > most / 2 {
            return;
        }
        self.learn(open, class);
        let capacity = open.store(class).capacity as usize;
        let want = most.min(capacity).saturating_sub(filled);
        if want > 0 {
            self.fill_up(open, class, filled, want);
        }
    }

    /// Whether this allocation, which takes no block of a window, is to be sampled. For the owner of the cache.
    pub fn samples_now(&'static self, cache: &Cache, class: Class) -> bool {
        let mut open = cache.open();
        let now = self.is_sample(&mut open, class);
        if let Some(sampler) = open.sampler().filter(|_| !now) {
            sampler.ahead[class.index()] = sampler.ahead[class.index()].saturating_sub(1);
        }
        now
    }

    /// Whether a block of `bytes` bytes, of no class, is to be sampled. For the owner of the cache.
    pub fn samples_large(&'static self, cache: &Cache, bytes: usize) -> bool {
        let mut open = cache.open();
        let rate = self.sampling();
        self.begin_sampler(&mut open);
        rate > 0
            && open
                .sampler()
                .is_some_and(|sampler| sampler.random() <= chance(bytes, rate))
    }

    /// Whether no block of `class` is left to be given out before the next sample; then the next one is drawn.
    fn is_sample(&'static self, open: &mut Opened<'_>, class: Class) -> bool {
        let rate = self.sampling();
        self.begin_sampler(open);
        let Some(sampler) = open.sampler().filter(|_| rate > 0) else {
            return false;
        };
        let now = sampler.ahead[class.index()] == 0;
        if now {
            // The next one that is not sampled is at hand: `take_sampling` counts on it.
            sampler.ahead[class.index()] = sampler.draw(class.bytes(), rate);
        }
        now
    }

    fn begin_sampler(&'static self, open: &mut Opened<'_>) {
        if !open.inner.sampler.is_null() {
            return;
        }
        let block = self
            .meta
            .allocate(size_of::<Sampler>(), || self.meta_slice());
        let Some(block) = block.map(NonNull::cast::<Sampler>) else {
            return;
        };
        let sampler = block.as_ptr();
        // SAFETY: large enough, aligned to 64, and ours. The arrays of entries are written before they are read.
        unsafe {
            (&raw mut (*sampler).ahead).write([0; CLASSES + 1]);
            (&raw mut (*sampler).state).write((now_ns() ^ sampler.addr() as u64) | 1);
        }
        open.inner.sampler = sampler;
        if let Some(sampler) = open.sampler() {
            sampler.draw_all(self.sampling().max(1));
        }
    }

    /// Gives the memory of a sampler back. Its windows are empty.
    pub(super) fn end_sampler(&self, open: &mut Opened<'_>) {
        if let Some(sampler) = NonNull::new(open.inner.sampler) {
            open.inner.sampler = ptr::null_mut();
            // SAFETY: allocated by `begin_sampler`; nobody reaches it any more.
            unsafe { self.meta.release(sampler.cast(), size_of::<Sampler>()) };
        }
    }

    /// Gives what is left in a window back to its slab. The owner does not pop from it meanwhile.
    pub(super) fn empty_window(&'static self, open: &Opened<'_>, class: Class) {
        let window = &open.cache.windows[class.index()];
        while let Some(block) = window.pop() {
            give_one(self, block.addr());
        }
    }
}

/// Most blocks of a window.
fn most_blocks(class: Class) -> usize {
    STARTS[class.index() + 1] - STARTS[class.index()]
}

/// The chance that a block of so many bytes is sampled.
pub fn chance(bytes: usize, rate: u64) -> f64 {
    -libm::expm1(-(bytes as f64) / rate as f64)
}

impl Opened<'_> {
    /// What the profiler needs of this cache, once it was on.
    fn sampler(&mut self) -> Option<&mut Sampler> {
        // SAFETY: null, or allocated for this cache, and reached under its lock only.
        unsafe { self.inner.sampler.as_mut() }
    }

    /// Where the window of `class` begins, and how many blocks are in it.
    pub fn in_window(&self, class: Class) -> (usize, usize) {
        let window = &self.cache.windows[class.index()];
        let bottom = window.bottom.load(Ordering::Relaxed);
        let top = window.top.load(Ordering::Relaxed);
        (bottom, top.saturating_sub(bottom) / 8)
    }

    /// Moves the newest blocks of the magazine to the window, which is empty, and takes one. The magazine is settled. For the owner
    /// only. `None` if there is none.
    fn move_window(&mut self, class: Class) -> Option<*mut u8> {
        let filled = self.filled(class);
        let most = most_blocks(class).min(filled);
        let (inner, top) = (&mut *self.inner, filled);
        // SAFETY: as in `sampler`.
        let sampler = unsafe { inner.sampler.as_mut() }?;
        let count = most.min(sampler.ahead[class.index()] as usize);
        if count == 0 {
            return None;
        }
        let base = inner.stores[class.index()].base as *const usize;
        let entries = &mut sampler.entries[STARTS[class.index()]..];
        // SAFETY: the magazine is settled and holds `top` entries, at least `count`; the owner is here, so nobody pushes.
        unsafe { ptr::copy_nonoverlapping(base.add(top - count), entries.as_mut_ptr(), count) };
        sampler.ahead[class.index()] -= count as u32;
        let bottom = entries.as_ptr().addr();
        let window = &self.cache.windows[class.index()];
        window.bottom.store(bottom, Ordering::Relaxed);
        window.top.store(bottom + count * 8, Ordering::Relaxed);
        self.set_filled(class, filled - count);
        window.pop()
    }
}

const _: () = assert!(size_of::<Sampler>() <= 64 << 10);
