//! Which pops and pushes a cache lets its owner make by the fast path, and what it offers to a drainer ([`super::drain`]).
//!
//! Pops for a class compare with a bottom: that of the magazine, or, while the profiler samples, the counted one. Pops for a size
//! compare with [`super::thread::Cache::below`] only.

use super::magazine::GUARD;
use super::thread::Opened;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::slab::class::{Class, TABLE_BYTES};

/// Whether the fast path of a cache may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Bounds are published: the fast path works.
    Open,
    /// Blocks are pushed by the fast path, and popped by [`super::fast::pop_counted`] only: the profiler counts them.
    Sampling,
    /// Every call takes the slow path (counting, checking).
    Closed,
}

/// How many blocks an owner takes by its slow path before it ends what a drainer offers: that one may sleep, or may have stayed in a
/// fork's parent.
const PATIENCE: u8 = 64;

impl Opened<'_> {
    /// Lets the fast path see the bounds of `class`, unless the door is closed.
    pub fn publish(&mut self, class: Class) {
        let door = self.inner.door;
        let store = self.store(class);
        let end = store.base + store.capacity as usize * 8;
        let (bottom, counted, limit) = match door {
            Door::Open => (store.floor, usize::MAX, end),
            Door::Sampling => (usize::MAX, store.floor, end),
            Door::Closed => (usize::MAX, usize::MAX, 0),
        };
        self.magazine(class).bottom.store(bottom, Ordering::Relaxed);
        self.counted(class).bottom.store(counted, Ordering::Relaxed);
        self.magazine(class).limit.store(limit, Ordering::Relaxed);
        self.publish_door();
    }

    /// Lets the fast path take nothing of `class`, nor add to it, until the class is published.
    pub(super) fn shut(&mut self, class: Class) {
        let bottoms = [&self.magazine(class).bottom, &self.counted(class).bottom];
        let close = |bottom: &AtomicUsize| bottom.store(usize::MAX, Ordering::Relaxed);
        bottoms.into_iter().for_each(close);
        self.magazine(class).limit.store(0, Ordering::Relaxed);
        self.cache.below.store(0, Ordering::Relaxed);
    }

    /// Opens or shuts the door of [`super::fast::pop_sized`].
    pub fn publish_door(&mut self) {
        let is_open = self.inner.door == Door::Open && !self.inner.is_offering;
        let below = if is_open { TABLE_BYTES + 1 } else { 0 };
        if self.cache.below.load(Ordering::Relaxed) != below {
            // Release: the guards are seen by whoever sees the door open.
            self.cache.below.store(below, Ordering::Release);
        }
    }

    /// Says whether the fast path may be used.
    pub fn set_door(&mut self, door: Door) {
        self.inner.door = door;
        Class::all().for_each(|class| self.publish(class));
        self.set_offering(false);
    }

    /// Says whether a drainer offers what the magazines hold. The owner's pops see it from the next barrier on.
    pub fn set_offering(&mut self, is_offering: bool) {
        self.inner.is_offering = is_offering;
        self.inner.patience = PATIENCE;
        self.publish_door();
    }

    /// The owner takes a block by its slow path: now and then it ends what a drainer offers.
    pub fn lose_patience(&mut self) {
        if !self.inner.is_offering {
            return;
        }
        self.inner.patience = self.inner.patience.saturating_sub(1);
        if self.inner.patience == 0 {
            self.set_door(self.inner.door);
        }
    }

    /// A drainer's first step: publishes a bottom that leaves the newest block of `class` to the owner. `None` if there is nothing to
    /// take below it.
    pub fn offer(&mut self, class: Class) -> Option<usize> {
        let floor = self.store(class).floor;
        let magazine = self.magazine(class);
        // Behind a closed door the owner does nothing without the lock.
        match self.inner.door {
            Door::Open => magazine.offer(floor),
            Door::Sampling => {
                let bottom = magazine.to_offer(floor)?;
                self.counted(class).bottom.store(bottom, Ordering::Relaxed);
                Some(bottom)
            }
            Door::Closed => magazine.to_offer(floor),
        }
    }

    /// The bottom that a drainer offered and that has not been put back since; `None` if there is none.
    pub fn offered(&mut self, class: Class) -> Option<usize> {
        let floor = self.store(class).floor;
        let magazine = self.magazine(class);
        let bottom = match self.inner.door {
            Door::Open => magazine.bottom.load(Ordering::Relaxed),
            Door::Sampling => self.counted(class).bottom.load(Ordering::Relaxed),
            Door::Closed => magazine.to_offer(floor)?,
        };
        (bottom > floor).then_some(bottom)
    }

    /// The entries of an array below the new floor went to a drainer: its last ones become the guard.
    pub fn guard_floor(&mut self, class: Class) {
        let floor = self.store(class).floor;
        debug_assert!(floor > self.store(class).base);
        // SAFETY: words of the array and its guard, which the owner only compares with.
        unsafe { (floor as *mut usize).sub(GUARD).write_bytes(0, GUARD) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::fast;
    use crate::cache::magazine::Tag;
    use crate::cache::thread::Cache;
    use core::ptr::NonNull;
    use std::boxed::Box;

    /// A signal handler may allocate between the two.
    #[test]
    fn a_new_array_is_not_seen_before_it_is_published() {
        let class = Class::of_size(64);
        let mut place = Box::<Cache>::new_uninit();
        // SAFETY: a cache's bytes, written by the first line.
        let cache = unsafe {
            Cache::put(NonNull::from(&mut *place).cast(), 0);
            place.assume_init()
        };
        let mut array = [7usize; GUARD + 15];
        let mut open = cache.open();
        open.publish(class);
        // SAFETY: the array has room for a guard and fifteen entries, and outlives the cache's use.
        unsafe { open.set_array(class, NonNull::from(&mut array).cast(), 15) };
        open.set_filled(class, 1);
        let magazine = cache.magazine(Tag::of(class));
        assert_eq!(magazine.pop(), None);
        assert_eq!(fast::pop_sized(&cache, 64), None);
        assert!(magazine.top.load(Ordering::Relaxed) >= magazine.limit.load(Ordering::Relaxed));
        open.publish(class);
        assert_eq!(
            fast::pop_sized(&cache, 64).map(|block| block.addr()),
            Some(7)
        );
    }
}
