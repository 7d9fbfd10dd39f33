//! A thread's cache whose lock is held: its magazines and what the slow path knows about them.

use super::bounds::{FastPath, Held};
use super::countdown::Countdown;
use super::magazine::Tag;
use super::measures::SECRETS;
use super::thread_cache::{Cache, Inner};
use crate::base::sync::Ordering;
use crate::os::lock::Guard;
use crate::slab::class::{Class, TABLE_BYTES};
use core::ptr::NonNull;

impl Cache {
    /// Takes the cache's lock and everything it guards. For the owner, and for caches that have no
    /// owner any more.
    pub fn open(&self) -> Opened<'_> {
        self.opened(self.lock.lock())
    }

    /// [`Cache::open`], if the lock is free.
    #[inline(always)]
    pub(crate) fn try_open(&self) -> Option<Opened<'_>> {
        self.lock.try_lock().map(|guard| self.opened(guard))
    }

    /// The cache, whose lock is held.
    #[inline(always)]
    fn opened<'a>(&'a self, guard: Guard<'a>) -> Opened<'a> {
        // SAFETY: the lock is held until the guard in the same value is dropped.
        let inner = unsafe { &mut *self.inner.get() };
        Opened {
            cache: self,
            inner,
            _guard: guard,
        }
    }

    /// Whether the owner's calls may be short. Under the lock, the path tells.
    #[inline(always)]
    pub(crate) fn is_hardened(&self) -> bool {
        self.hardened.load(Ordering::Relaxed)
    }
}

/// A cache whose lock is held.
pub struct Opened<'a> {
    /// The cache.
    pub cache: &'a Cache,
    /// What the lock guards.
    pub(super) inner: &'a mut Inner,
    _guard: Guard<'a>,
}

impl Opened<'_> {
    /// In a fork's child, of a cache whose thread stayed in the parent, in the middle of a change:
    /// it has nothing to drain.
    pub(super) fn abandon(&mut self) {
        self.inner.access.is_offering = false;
        self.inner.is_drained = true;
        self.inner.arrays = Default::default();
        self.inner.granted = 0;
    }

    /// The classes whose magazines have an array.
    pub fn classes(&self) -> impl Iterator<Item = Class> + use<> {
        let words = self.inner.arrays.into_iter().enumerate();
        words.flat_map(|(word, mut bits)| {
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(Class::known(word * 64 + bit))
            })
        })
    }

    /// The magazine of `class`.
    pub fn magazine(&mut self, class: Class) -> Held<'_> {
        // SAFETY: a class's tag.
        unsafe { self.magazine_of(Tag::of(class)) }
    }

    /// [`Opened::magazine`] of the class of `tag`.
    ///
    /// # Safety
    /// - `tag` is a class's.
    #[inline(always)]
    pub(super) unsafe fn magazine_of(&mut self, tag: Tag) -> Held<'_> {
        debug_assert!(tag.class().is_some());
        let (cache, path) = (self.cache, self.inner.access.path);
        let offset = tag.byte() as usize * 8;
        // SAFETY: the caller's promise: bounds are as long as magazines, and so are countdowns.
        // They are of this class, and the lock is held as long as the borrow.
        unsafe {
            let bounds = &mut *self.inner.bounds.as_mut_ptr().byte_add(offset);
            let sampling = &cache.countdown_of(tag).bottom;
            Held::new(cache.magazine(tag), sampling, bounds, path)
        }
    }

    /// Gives a magazine an array of `room` entries. See [`Held::set_array`].
    ///
    /// # Safety
    /// - As [`Held::set_array`].
    pub(super) unsafe fn set_array(
        &mut self,
        class: Class,
        array: NonNull<u8>,
        room: usize,
    ) -> Option<(NonNull<u8>, usize)> {
        self.inner.arrays[class.index() / 64] |= 1 << (class.index() % 64);
        // SAFETY: the caller's promise.
        unsafe { self.magazine(class).set_array(array, room) }
    }

    /// Takes the array of an empty magazine away. See [`Held::take_array`].
    ///
    /// # Safety
    /// - As [`Held::pop`].
    pub(super) unsafe fn take_array(&mut self, class: Class) -> Option<(NonNull<u8>, usize)> {
        self.inner.arrays[class.index() / 64] &= !(1 << (class.index() % 64));
        // SAFETY: the caller's promise.
        unsafe { self.magazine(class).take_array() }
    }

    /// A number that changes when the owner allocates or frees, most likely: where its magazines
    /// stand, and how often it took the slow path.
    pub fn traces(&self) -> usize {
        let tops = self.classes().map(|class| {
            self.cache
                .magazine(Tag::of(class))
                .top
                .load(Ordering::Relaxed)
        });
        let mixed = tops.fold(0usize, |sum, top| sum.rotate_left(5) ^ top);
        mixed.wrapping_add(self.inner.events as usize)
    }

    /// Notes a drainer's visit. Returns whether the owner has not used the magazines since the last
    /// one.
    pub fn is_idle(&mut self) -> bool {
        let traces = self.traces();
        let idle = core::mem::replace(&mut self.inner.seen, traces) == traces;
        self.inner.is_drained &= idle;
        idle
    }

    /// Whether the owner has not used the magazines since the last visit. Not a visit itself.
    pub fn is_unused(&self) -> bool {
        self.traces() == self.inner.seen
    }

    /// The class that is looked at for shrinking now; the next time it is the one after.
    pub fn next_class(&mut self) -> Class {
        let class = Class::known(self.inner.hand as usize);
        self.inner.hand = match class {
            Class::LAST => 1,
            _ => self.inner.hand + 1,
        };
        class
    }

    /// Bytes of blocks that the magazines together may hold.
    pub fn granted(&self) -> usize {
        self.inner.granted
    }

    /// The state of the random numbers that the profiler draws; 0 before the first.
    pub fn random_state(&mut self) -> &mut u64 {
        &mut self.inner.random
    }

    /// The countdown of `class`.
    pub fn countdown(&self, class: Class) -> &Countdown {
        &self.cache.countdowns[class.index()]
    }

    /// Sets what the owner may do on its fast path.
    pub fn set_path(&mut self, path: FastPath) {
        self.inner.access.path = path;
        self.inner.access.may_pop = false;
        let is_hardened = path == FastPath::Hardened;
        self.cache.hardened.store(is_hardened, Ordering::Relaxed);
        if is_hardened {
            self.inner.random = SECRETS.next();
        }
        Class::all().for_each(|class| self.magazine(class).publish());
        self.set_offering(false);
    }

    /// [`Opened::set_path`] for a thread that may not be the owner.
    pub(super) fn set_path_of_other(&mut self, path: FastPath) {
        let access = &self.inner.access;
        let may_pop = access.may_pop || !access.path.is_closed();
        self.set_path(path);
        self.inner.access.may_pop = may_pop;
    }

    /// Says whether a drainer offers what the magazines hold. The owner's pops see it from the next
    /// barrier on.
    pub(super) fn set_offering(&mut self, is_offering: bool) {
        self.inner.access.set_offering(is_offering);
        self.publish_access();
    }

    /// Lets pops for a size see what they may do.
    pub(super) fn publish_access(&mut self) {
        self.inner
            .access
            .publish(self.cache.below(), TABLE_BYTES + 1);
    }

    /// The owner takes a block on its slow path; now and then this ends a drainer's offer.
    pub(super) fn lose_patience(&mut self) {
        if self.inner.access.loses_patience() {
            self.set_path(self.inner.access.path);
        }
    }

    /// In a fork's child: a drainer that stayed in the parent may have raised a floor without a
    /// guard below it.
    pub(super) fn guard_floors(&mut self) {
        for class in self.classes() {
            let mut magazine = self.magazine(class);
            if magazine.bounds.floor > magazine.bounds.base {
                magazine.guard_floor();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::magazine::GUARD;
    use crate::testing::own_cache;
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
        // SAFETY: the array has room for a guard, the other entries and a stamp, and outlives the
        // cache's use.
        unsafe { open.set_array(class, NonNull::from(array).cast(), COUNT - GUARD - 1) };
        // SAFETY: the array holds more.
        unsafe { open.magazine(class).set_filled(filled) };
        open.set_path(FastPath::On);
    }

    #[test]
    fn an_owner_whose_fast_path_another_thread_closes_may_pop() {
        let cache = new_cache();
        cache.open().set_path(FastPath::On);
        for _ in 0..2 {
            cache.open().set_path_of_other(FastPath::Off);
            assert!(cache.open().inner.access.may_pop);
        }
        cache.open().set_path(FastPath::Off);
        assert!(!cache.open().inner.access.may_pop);
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
        let bounds = open.magazine(class).bounds;
        bounds.floor = bounds.base + 8 * 8;
        open.guard_floors();
        open.set_path(FastPath::On);
        assert_eq!(own_cache::pop_sized(&cache, 64), None);
    }
}
