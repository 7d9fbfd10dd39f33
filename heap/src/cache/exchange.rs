//! The exchange: blocks on their way from threads that only free to threads that only allocate.
//!
//! It is a cache without a thread, whose lock is the only way to its magazines. A flush of a thread
//! that frees much more than it allocates puts its blocks there, and a refill of a thread that
//! allocates much more takes them, both by a copy of their addresses. So such blocks visit no slab.
//! A thread that does not get the lock at once turns to the slabs. The magazines of the exchange
//! grow as a thread's do, within the same bounds, and a round empties those that were idle.

use super::countdown::Miss;
use super::heap::Heap;
use super::opened::Opened;
use super::thread_cache::Cache;
use crate::base::policy::{Driver, Scope};
use crate::base::sync::Ordering;
use crate::pages::Age;
use crate::slab::class::Class;
use core::ptr;

/// Smaller blocks share cache lines, which a refill from slabs gives to one thread alone.
const LEAST_BYTES: usize = 256;

impl Heap {
    /// Puts the blocks of a settled magazine, which is full, into the exchange. False, without any
    /// change, if blocks are to go to their slabs.
    #[inline(never)]
    pub(super) fn hand_over(&'static self, open: &mut Opened<'_>, class: Class) -> bool {
        let count = open.magazine(class).filled();
        if count == 0 {
            return false;
        }
        let Some(mut exchange) = self.open_exchange(open, class, Miss::Flush) else {
            return false;
        };
        let room = |exchange: &mut Opened<'_>| {
            let magazine = exchange.magazine(class);
            magazine.bounds.capacity as usize - magazine.filled()
        };
        if room(&mut exchange) < count {
            self.learn(&mut exchange, class, Miss::Flush);
            if room(&mut exchange) < count {
                return false;
            }
        }
        self.tide.note_freed(count * class.bytes());
        // SAFETY: the room was checked, and the magazine holds as many.
        unsafe { self.pass(open, &mut exchange, class, count) };
        // What no thread passes on any more is shrunk, even while other classes are busy.
        self.tidy(&mut exchange);
        open.countdown(class).note(Miss::Flush);
        true
    }

    /// Fills a settled magazine from the exchange, as far as that has blocks. False if it has none.
    #[inline(never)]
    pub(super) fn take_handed(&'static self, open: &mut Opened<'_>, class: Class) -> bool {
        let Some(mut exchange) = self.open_exchange(open, class, Miss::Refill) else {
            return false;
        };
        let magazine = open.magazine(class);
        let room = magazine.bounds.capacity as usize - magazine.filled();
        let count = room.min(exchange.magazine(class).filled());
        if count == 0 {
            self.learn(&mut exchange, class, Miss::Refill);
            return false;
        }
        // SAFETY: the caller's promise, and the exchange holds as many.
        unsafe { self.pass(&mut exchange, open, class, count) };
        // The next refill has nothing to check: another thread freed these blocks.
        if let Some(stamp) = open.magazine(class).stamp() {
            *stamp = 0;
        }
        open.countdown(class).note(Miss::Refill);
        true
    }

    /// The exchange, its lock held, for a thread that [needs](Heap::trades) it. The first flush of
    /// this kind makes it.
    #[inline(never)]
    fn open_exchange(
        &'static self,
        open: &Opened<'_>,
        class: Class,
        miss: Miss,
    ) -> Option<Opened<'static>> {
        if !self.trades(open, class, miss) {
            return None;
        }
        match self.registry.exchange() {
            None if miss == Miss::Flush => self.make_exchange(),
            exchange => exchange,
        }?
        .try_open()
    }

    /// Whether blocks of the class go through the exchange, because the thread's magazine of it
    /// nearly always misses in this way.
    #[inline(never)]
    pub(super) fn trades(&self, open: &Opened<'_>, class: Class, miss: Miss) -> bool {
        open.countdown(class).is_mostly(miss)
            && class.bytes() >= LEAST_BYTES
            && !open.inner.access.path.is_closed()
            && self.pages.limits().cache_slices() > 0
    }

    /// Makes the exchange, if a purge thread can empty it.
    #[cold]
    #[inline(never)]
    fn make_exchange(&'static self) -> Option<&'static Cache> {
        if self.pages.limits().driver() != Driver::Thread {
            return None;
        }
        let made = self.make_cache()?;
        let order = Ordering::AcqRel;
        let place = &self.registry.exchange;
        if place
            .compare_exchange(ptr::null_mut(), made.as_ptr(), order, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: made above, and no other thread has it.
            self.release_cache(unsafe { made.as_ref() });
        }
        self.registry.exchange()
    }

    /// Moves the newest `count` blocks of one magazine of `class` onto another.
    ///
    /// # Safety
    /// - Both are settled, and no other thread uses them.
    /// - One holds that many blocks, and the other has room for them.
    #[inline(never)]
    unsafe fn pass(&self, from: &mut Opened<'_>, to: &mut Opened<'_>, class: Class, count: usize) {
        let (mut from, mut to) = (from.magazine(class), to.magazine(class));
        let (left, filled) = (from.filled() - count, to.filled());
        debug_assert!(filled + count <= to.bounds.capacity as usize);
        let source = (from.bounds.base + 8 * left) as *const usize;
        let target = (to.bounds.base + 8 * filled) as *mut usize;
        // SAFETY: the caller's promise: entries of one array, and room of another.
        unsafe {
            ptr::copy_nonoverlapping(source, target, count);
            from.set_filled(left);
            to.set_filled(filled + count);
        }
    }

    /// A round empties the exchange, if it is in scope: no thread used it since the last round, or
    /// all is to go. Slabs that are empty then are as old as `age` says.
    #[inline(never)]
    pub(crate) fn empty_exchange(&'static self, scope: Scope, age: Age) {
        let Some(mut open) = self.registry.exchange().and_then(Cache::open_other) else {
            return;
        };
        let deep = self.deep_bytes(&open);
        self.deep.fetch_add(deep, Ordering::Relaxed);
        if !open.is_idle() && scope == Scope::Idle {
            return;
        }
        let granted = open.inner.granted;
        self.restore(&mut open, granted);
        self.empty(open, age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::heap::HEAP;
    use crate::testing::own_cache;

    /// What the exchange holds of a class, and may hold.
    fn held(class: Class) -> Option<(usize, usize)> {
        let mut open = HEAP.registry.exchange()?.open();
        let magazine = open.magazine(class);
        Some((magazine.filled(), magazine.bounds.capacity as usize))
    }

    #[test]
    fn blocks_of_a_thread_that_only_frees_serve_one_that_only_allocates() {
        HEAP.pages.limits().set_driver(Driver::Thread);
        let class = Class::of_size(5000);
        let (sender, blocks) = std::sync::mpsc::sync_channel(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let cache = own_cache::enter().expect("a cache");
                for _ in 0..4000 {
                    let held = own_cache::pop_held(cache, class);
                    let block = held.unwrap_or_else(|| own_cache::refill(cache, class));
                    sender.send(block.addr()).expect("a receiver");
                }
                let [refills, _] = cache.countdown(class).refills_and_flushes();
                assert!(refills > 16, "{refills}");
            });
            let cache = own_cache::enter().expect("a cache");
            blocks
                .iter()
                .for_each(|block| own_cache::put(cache, class, block as *mut u8));
        });
        assert!(held(class).expect("an exchange").1 > 0);
        HEAP.empty_exchange(Scope::All, Age::New);
        assert_eq!(held(class), Some((0, 0)));
    }

    #[test]
    fn a_thread_that_frees_what_it_allocated_needs_no_exchange() {
        let (cache, class) = (own_cache::enter().expect("a cache"), Class::of_size(7000));
        for _ in 0..3 {
            let take = |_| own_cache::pop_held(cache, class);
            let take = |n| take(n).unwrap_or_else(|| own_cache::refill(cache, class));
            let blocks: std::vec::Vec<_> = (0..500).map(take).collect();
            blocks
                .into_iter()
                .for_each(|block| own_cache::put(cache, class, block));
        }
        assert_eq!(held(class).map_or(0, |(filled, _)| filled), 0);
    }
}
