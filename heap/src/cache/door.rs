//! Which pops and pushes a cache lets its owner make by the fast path, and what it offers to a
//! drainer ([`super::drain`]).
//!
//! Pops for a class compare with a bottom: that of the magazine, or, while the profiler samples,
//! the counted one. Pops for a size compare with [`super::thread_cache::Cache::below`] only.

use super::magazine::{Door, GUARD, no_entries};
use super::thread_cache::Opened;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::slab::class::{Class, TABLE_BYTES};

/// How many blocks an owner takes by its slow path before it ends what a drainer offers: that one
/// may sleep, or may have stayed in a fork's parent.
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
    }

    /// Lets the fast path of a signal handler take nothing of `class`, nor add to it, until its top
    /// is set and the class is published. The owner has counted the entries. Other classes stay as
    /// they are.
    pub(super) fn shut(&mut self, class: Class) {
        let bottoms = [&self.magazine(class).bottom, &self.counted(class).bottom];
        let close = |bottom: &AtomicUsize| bottom.store(usize::MAX, Ordering::Relaxed);
        bottoms.into_iter().for_each(close);
        self.magazine(class).limit.store(0, Ordering::Relaxed);
        // Release: not before the limit, for a handler must not push there.
        self.magazine(class)
            .top
            .store(no_entries(), Ordering::Release);
    }

    /// Opens or shuts the door of [`super::machine::pop_sized`].
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

    /// Says whether a drainer offers what the magazines hold. The owner's pops see it from the next
    /// barrier on.
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

    /// A drainer's first step: publishes a bottom that leaves the newest block of `class` to the
    /// owner. `None` if there is nothing to take below it.
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

    /// The bottom that a drainer offered and that has not been put back since; `None` if there is
    /// none.
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

    /// The entries of an array below the new floor went to a drainer: its last ones become the
    /// guard.
    pub fn guard_floor(&mut self, class: Class) {
        let floor = self.store(class).floor;
        debug_assert!(floor > self.store(class).base);
        // SAFETY: words of the array and its guard, which the owner only compares with.
        unsafe { (floor as *mut usize).sub(GUARD).write_bytes(0, GUARD) };
    }

    /// In a fork's child: a drainer that stayed in the parent may have raised a floor without a
    /// guard below it.
    pub fn guard_floors(&mut self) {
        for class in self.classes() {
            let store = self.store(class);
            if store.floor > store.base {
                self.guard_floor(class);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::machine;
    use crate::cache::magazine::Tag;
    use crate::cache::thread_cache::Cache;
    use core::ptr::NonNull;
    use std::boxed::Box;

    fn new_cache() -> Box<Cache> {
        let mut place = Box::<Cache>::new_uninit();
        // SAFETY: a cache's bytes, written by the first line.
        unsafe {
            Cache::put(NonNull::from(&mut *place).cast(), 0);
            place.assume_init()
        }
    }

    /// Gives the magazine of `class` an array of `COUNT` words that holds `filled` entries, all of
    /// them 7.
    fn fill<const COUNT: usize>(
        open: &mut Opened<'_>,
        class: Class,
        array: &mut [usize; COUNT],
        filled: usize,
    ) {
        // SAFETY: the array has room for a guard and the other entries, and outlives the cache's
        // use.
        unsafe { open.set_array(class, NonNull::from(array).cast(), COUNT - GUARD) };
        open.set_filled(class, filled);
        open.set_door(Door::Open);
    }

    #[test]
    fn a_handler_takes_nothing_of_a_class_that_gets_a_new_array() {
        let (cache, class, other) = (new_cache(), Class::of_size(64), Class::of_size(128));
        let (mut array, mut others) = ([7; 18], [7; 18]);
        let mut open = cache.open();
        fill(&mut open, class, &mut array, 1);
        fill(&mut open, other, &mut others, 1);
        open.shut(class);
        let magazine = cache.magazine(Tag::of(class));
        assert_eq!(magazine.pop(), None);
        assert_eq!(machine::pop_sized(&cache, 64), None);
        assert!(magazine.top.load(Ordering::Relaxed) >= magazine.limit.load(Ordering::Relaxed));
        assert_eq!(
            machine::pop_sized(&cache, 128).map(|block| block.addr()),
            Some(7)
        );
        open.set_filled(class, 1);
        open.publish(class);
        assert_eq!(
            machine::pop_sized(&cache, 64).map(|block| block.addr()),
            Some(7)
        );
    }

    #[test]
    fn a_child_guards_the_floor_that_a_drainer_of_its_parent_raised() {
        let (cache, class) = (new_cache(), Class::of_size(64));
        let mut array = [0; 18];
        for (number, word) in array.iter_mut().enumerate() {
            *word = 1 + number;
        }
        let mut open = cache.open();
        fill(&mut open, class, &mut array, 8);
        let store = open.store(class);
        store.floor = store.base + 8 * 8;
        open.guard_floors();
        open.set_door(Door::Open);
        assert_eq!(machine::pop_sized(&cache, 64), None);
    }
}
