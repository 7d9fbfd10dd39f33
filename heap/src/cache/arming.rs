//! Arming: the owner of a cache takes the slow path once, a few blocks from now, and gets a guarded
//! block there.
//!
//! An armed cache counts down as while the profiler samples ([`FastPath::Sampling`]), so the fast
//! path has no instruction for it. The number of blocks ahead is drawn for each class, memoryless:
//! of two classes, that with twice the allocations is twice as likely to come first.

use super::bounds::FastPath;
use super::heap::{Guarding, HEAP, Heap};
use super::measures::SECRETS;
use super::opened::Opened;
use super::thread_cache::Cache;
use crate::base::sync::Ordering;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::slab::class::Class;

/// Blocks ahead per unit of the draw, whose mean is 1.5.
const SCALE: u64 = 16;

impl Heap {
    /// Arms every cache whose fast path is on.
    pub fn arm_all(&'static self) {
        if self.can_arm() {
            self.registry.for_each(|cache| {
                self.arm(cache);
            });
        }
    }

    /// Arms a cache. False if its owner takes the slow path anyway.
    #[inline(never)]
    pub fn arm(&'static self, cache: &Cache) -> bool {
        let Some(mut open) = cache.open_other() else {
            return false;
        };
        // Who changes that stores it first, and then opens each cache.
        let can = self.can_arm();
        if can {
            open.arm();
        }
        can
    }

    /// Arms a cache, which is not armed, in place of one that was when its thread ended. False if
    /// there was none.
    ///
    /// Without this, threads that live for a few blocks each would rarely get a guarded one.
    pub fn inherit(&'static self, cache: &Cache) -> bool {
        !cache.is_armed() && self.registry.take_owed() && self.arm(cache)
    }

    /// Whether a cache can be armed: not where its owner takes the slow path anyway.
    pub fn can_arm(&self) -> bool {
        self.guarding() == Guarding::Some && self.fast_path() == FastPath::On
    }

    /// Whether the next block of `class` is to be guarded because the cache was armed, which it is
    /// no longer then. For the owner of the cache, in its slow path.
    pub fn fires(&self, cache: &Cache, class: Class) -> bool {
        if !cache.is_armed() {
            return false;
        }
        if self.fast_path() == FastPath::On && cache.countdown(class).pass() {
            return false;
        }
        let mut open = cache.open();
        // Under the lock: whoever changes the path later finds this cache.
        open.set_path(self.fast_path());
        cache.armed.store(false, Ordering::Relaxed);
        true
    }
}

impl Opened<'_> {
    /// Lets the owner get a guarded block soon.
    fn arm(&mut self) {
        let page = Linux.page_bytes();
        for class in Class::all() {
            let ahead = match class.bytes() <= page {
                true => self.draw_ahead(),
                false => i32::MAX,
            };
            let countdown = self.cache.countdown(class);
            countdown.until_sample.store(ahead, Ordering::Relaxed);
        }
        self.cache.armed.store(true, Ordering::Relaxed);
        self.set_path(FastPath::Sampling);
    }

    /// The first state of the random numbers. Threads with one block each get a new cache at the
    /// same place within the same millisecond: they must not all draw the same.
    fn seed(&self) -> u64 {
        let address = core::ptr::from_ref(self.cache).addr() as u64;
        let mixed = (SECRETS.next() ^ HEAP.now_ms() ^ address).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32) | 1
    }

    /// Blocks ahead: the leading zeros of a random word are geometric, and its low bits smooth
    /// them.
    fn draw_ahead(&mut self) -> i32 {
        let mut state = match *self.random_state() {
            0 => self.seed(),
            state => state,
        };
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *self.random_state() = state;
        let zeros = u64::from(state.leading_zeros());
        (zeros * SCALE + state % SCALE) as i32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cache::registry::Registry;
    use crate::testing::own_cache;
    use std::vec::Vec;

    #[test]
    fn an_armed_cache_fires_once_and_the_fast_path_is_on_again() {
        let (cache, class) = (own_cache::enter().expect("a cache"), Class::of_size(64));
        own_cache::put(cache, class, own_cache::refill(cache, class));
        cache.open().arm();
        assert_eq!(own_cache::pop_sized(cache, 64), None);
        let blocks = (0..2000).position(|_| HEAP.fires(cache, class));
        assert!(blocks.is_some(), "it never fires");
        assert!(!HEAP.fires(cache, class), "it fires twice");
        let block = own_cache::pop_sized(cache, 64);
        own_cache::put(cache, class, block.expect("the fast path is on"));
    }

    #[test]
    fn caches_that_end_armed_are_owed_and_no_more_than_there_are() {
        let registry = Registry::new();
        let caches: Vec<Cache> = (0..5).map(|_| Cache::new(0)).collect();
        caches.iter().for_each(|cache| registry.enroll(cache));
        for cache in &caches[1..] {
            cache.open().arm();
        }
        let owed = || (0..).take_while(|_| registry.take_owed()).count();
        registry.leave(&caches[0]);
        assert_eq!(owed(), 0, "it was not armed");
        registry.leave(&caches[1]);
        assert_eq!(owed(), 1);
        caches[2..]
            .iter()
            .for_each(|cache| _ = registry.leave(cache));
        assert_eq!(owed(), 2);
    }

    #[test]
    fn new_caches_at_one_place_draw_as_one_does_that_lives_on() {
        let class = Class::of_size(64);
        let mut cache = Cache::new(0);
        let soon = (0..4000).filter(|_| {
            cache = Cache::new(0);
            cache.open().arm();
            (0..4).any(|_| !cache.countdown(class).pass())
        });
        // Four of the first sixteen numbers, which come half of the time: 500, give or take 21.
        let soon = soon.count();
        assert!((380..620).contains(&soon), "{soon} of 4000");
    }

    #[test]
    fn the_class_with_more_allocations_fires_more_often() {
        let cache = Cache::new(0);
        let (often, seldom) = (Class::of_size(64), Class::of_size(128));
        let mut fired = [0; 2];
        for _ in 0..4000 {
            cache.open().arm();
            let mut steps = (0..).map(|step| (step % 4 == 3, cache.countdown(often), step));
            let is_seldom = steps.find_map(|(is_seldom, _, _)| {
                let class = if is_seldom { seldom } else { often };
                (!cache.countdown(class).pass()).then_some(is_seldom)
            });
            fired[usize::from(is_seldom == Some(true))] += 1;
        }
        // A quarter of the allocations: 1,000 of 4,000, give or take what draws of whole blocks do.
        assert!((800..1300).contains(&fired[1]), "{fired:?}");
    }
}
