//! The exchange: blocks on their way from threads that only free to threads that only allocate, and
//! those for which deep magazines have no room.
//!
//! It is a cache without a thread, whose lock is the only way to its magazines. A flush of a thread
//! that frees much more than it allocates puts its blocks there, and a refill of a thread that
//! allocates much more takes them, both by a copy of their addresses. So such blocks visit no slab.
//! The same holds for the oldest blocks of a deep magazine that is full.
//! A thread that does not get the lock at once turns to the slabs. The magazines of the exchange
//! grow as a thread's do, within the same bounds, and a round empties those that were idle.

use super::countdown::{Flow, Miss};
use super::heap::Heap;
use super::opened::Opened;
use super::thread_cache::Cache;
use crate::base::policy::{Driver, Scope};
use crate::base::sync::Ordering;
use crate::pages::Age;
use crate::slab::class::Class;
use core::ops::Range;
use core::ptr;

/// Smaller blocks share cache lines, which a refill from slabs gives to one thread alone.
const LEAST_BYTES: usize = 256;

impl Heap {
    /// Puts the `most` oldest blocks of a settled magazine, which is full, into the exchange.
    /// False, without any change, if blocks are to go to their slabs.
    #[inline(never)]
    pub(super) fn hand_over(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        most: usize,
    ) -> bool {
        let count = open.magazine(class).filled().min(most);
        if count == 0 {
            return false;
        }
        let Some(mut exchange) = self.open_exchange(Miss::Flush) else {
            return false;
        };
        let room = |exchange: &mut Opened<'_>| {
            let magazine = exchange.magazine(class);
            magazine.bounds.capacity as usize - magazine.filled()
        };
        if room(&mut exchange) < count {
            exchange.countdown(class).note_miss(Miss::Flush);
            self.widen_for(&mut exchange, class, Flow::OneWay);
            if room(&mut exchange) < count {
                return false;
            }
        }
        self.tide.note_freed(count * class.bytes());
        // SAFETY: the room was checked, and the magazine holds as many.
        unsafe { self.pass(open, &mut exchange, class, 0..count) };
        // Shrinks magazines of classes that no thread passes on any more.
        self.tidy(&mut exchange);
        open.countdown(class).note(Miss::Flush);
        true
    }

    /// Fills a settled magazine from the exchange with `most` blocks, as far as that has them and
    /// there is room. False if it has none.
    #[inline(never)]
    pub(super) fn take_handed(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        most: usize,
    ) -> bool {
        let Some(mut exchange) = self.open_exchange(Miss::Refill) else {
            return false;
        };
        let magazine = open.magazine(class);
        let room = magazine.bounds.capacity as usize - magazine.filled();
        let held = exchange.magazine(class).filled();
        let count = held.min(room).min(most);
        if count == 0 {
            let flow = exchange.countdown(class).note_miss(Miss::Refill);
            self.widen_for(&mut exchange, class, flow);
            return false;
        }
        // SAFETY: the caller's promise, and the exchange holds as many.
        unsafe { self.pass(&mut exchange, open, class, held - count..held) };
        // The next refill has nothing to check: most such blocks were freed by another thread.
        if let Some(stamp) = open.magazine(class).stamp() {
            *stamp = 0;
        }
        open.countdown(class).note(Miss::Refill);
        true
    }

    /// The exchange, its lock held. The first flush makes it.
    fn open_exchange(&'static self, miss: Miss) -> Option<Opened<'static>> {
        match self.registry.exchange() {
            None if miss == Miss::Flush => self.make_exchange(),
            exchange => exchange,
        }?
        .try_open()
    }

    /// Whether blocks of the class may go through the exchange.
    #[inline(never)]
    pub(super) fn may_trade(&self, open: &Opened<'_>, class: Class, miss: Miss) -> bool {
        class.bytes() >= LEAST_BYTES
            && !open.inner.access.path.is_closed()
            && self.pages.limits().cache_slices() > 0
            && (self.registry.exchange().is_some() || miss == Miss::Flush && self.has_emptier())
    }

    /// Whether a purge thread can empty the exchange.
    fn has_emptier(&self) -> bool {
        self.pages.limits().driver() == Driver::Thread
    }

    #[cold]
    #[inline(never)]
    fn make_exchange(&'static self) -> Option<&'static Cache> {
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

    /// Moves some of the blocks of one magazine of `class` onto another.
    ///
    /// # Safety
    /// - Both are settled, and no other thread uses them.
    /// - One holds these blocks, and the other has room for them.
    #[inline(never)]
    unsafe fn pass(
        &self,
        from: &mut Opened<'_>,
        to: &mut Opened<'_>,
        class: Class,
        blocks: Range<usize>,
    ) {
        let (mut from, mut to) = (from.magazine(class), to.magazine(class));
        let (held, filled, count) = (from.filled(), to.filled(), blocks.len());
        debug_assert!(blocks.end <= held && filled + count <= to.bounds.capacity as usize);
        let target = (to.bounds.base + 8 * filled) as *mut usize;
        // SAFETY: the caller's promise: entries of one array, and room of another.
        unsafe {
            let source = (from.bounds.base as *mut usize).add(blocks.start);
            ptr::copy_nonoverlapping(source, target, count);
            ptr::copy(source.add(count), source, held - blocks.end);
            from.set_filled(held - count);
            to.set_filled(filled + count);
        }
    }

    /// For a round: counts the deep parts of the exchange's magazines. Returns whether the round
    /// empties the exchange, because no thread used it since the previous round, or because all
    /// memory is to go.
    #[inline(never)]
    pub(crate) fn is_exchange_due(&'static self, scope: Scope) -> bool {
        let Some(mut open) = self.registry.exchange().and_then(Cache::open_other) else {
            return false;
        };
        let deep = self.deep_bytes(&open);
        self.deep.fetch_add(deep, Ordering::Relaxed);
        open.is_idle() || scope == Scope::All
    }

    /// Gives back the blocks of the exchange of one class, and what was granted for them. Slabs
    /// that are empty then are as old as `age` says. False if the class has no room there.
    #[inline(never)]
    pub(crate) fn empty_exchange(&'static self, class: Class, age: Age) -> bool {
        let Some(mut open) = self.registry.exchange().and_then(Cache::open_other) else {
            return false;
        };
        let bytes = open.magazine(class).bounds.capacity as usize * class.bytes();
        self.restore(&mut open, bytes);
        self.empty_class(&mut open, class, age);
        bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::flush::give_one;
    use crate::cache::heap::HEAP;
    use crate::cache::refill::{most_capacity, passed_at_once};
    use crate::os::child;
    use crate::testing::crew::with_threads;
    use crate::testing::own_cache;
    use std::sync::mpsc::sync_channel;
    use std::sync::{Barrier, Mutex, MutexGuard};
    use std::vec::Vec;

    /// One test at a time, because all use the one exchange.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        HEAP.pages.limits().set_driver(Driver::Thread);
        ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What the exchange holds of a class, and may hold.
    fn held(class: Class) -> Option<(usize, usize)> {
        let mut open = HEAP.registry.exchange()?.open();
        let magazine = open.magazine(class);
        Some((magazine.filled(), magazine.bounds.capacity as usize))
    }

    fn take(cache: &Cache, class: Class) -> *mut u8 {
        own_cache::pop_held(cache, class).unwrap_or_else(|| own_cache::refill(cache, class))
    }

    fn empty_all() {
        assert!(HEAP.is_exchange_due(Scope::All));
        Class::all().for_each(|class| _ = HEAP.empty_exchange(class, Age::New));
    }

    /// A thread frees `count` blocks that it never had in its magazine.
    fn only_free(class: Class, count: usize) {
        let work = || {
            let cache = own_cache::enter().expect("a cache");
            (0..count).for_each(|_| own_cache::put(cache, class, HEAP.take_one(class)));
        };
        with_threads(1, work, |_| ());
    }

    /// A thread allocates `count` blocks and another frees them, at most 64 later. Returns what
    /// their magazines may hold then.
    fn send(class: Class, count: usize) -> [usize; 2] {
        let (sender, blocks) = sync_channel(64);
        let capacity = |cache: &Cache| cache.open().magazine(class).bounds.capacity as usize;
        std::thread::scope(|scope| {
            let giver = scope.spawn(move || {
                let cache = own_cache::enter().expect("a cache");
                (0..count).for_each(|_| sender.send(take(cache, class).addr()).expect("open"));
                let [refills, _] = cache.countdown(class).refills_and_flushes();
                assert!(refills > 16, "{refills}");
                capacity(cache)
            });
            let taker = scope.spawn(move || {
                let cache = own_cache::enter().expect("a cache");
                let put = |block| own_cache::put(cache, class, block as *mut u8);
                blocks.iter().for_each(put);
                capacity(cache)
            });
            [giver, taker].map(|thread| thread.join().expect("no panic"))
        })
    }

    #[test]
    fn blocks_of_a_thread_that_only_frees_serve_one_that_only_allocates() {
        let _alone = alone();
        let class = Class::of_size(5000);
        send(class, 4000);
        assert!(held(class).expect("an exchange").1 > 0);
        empty_all();
        assert_eq!(held(class), Some((0, 0)));
        let exchange = HEAP.registry.exchange().expect("an exchange");
        assert_eq!(exchange.open().granted(), 0);
    }

    #[test]
    fn a_thread_that_frees_what_it_allocated_needs_no_exchange_without_deep_magazines() {
        let _alone = alone();
        let (cache, class) = (own_cache::enter().expect("a cache"), Class::of_size(7000));
        for _ in 0..100 {
            let blocks: Vec<_> = (0..most_capacity(class))
                .map(|_| take(cache, class))
                .collect();
            let put = |block| own_cache::put(cache, class, block);
            blocks.into_iter().for_each(put);
        }
        assert_eq!(held(class).map_or(0, |(filled, _)| filled), 0);
    }

    #[test]
    fn what_a_deep_magazine_has_no_room_for_waits_for_the_next_batch() {
        let _alone = alone();
        let class = Class::of_size(32 << 10);
        let cycles = || {
            let cache = own_cache::enter().expect("a cache");
            for _ in 0..20 {
                let blocks: Vec<_> = (0..300).map(|_| take(cache, class)).collect();
                let put = |block| own_cache::put(cache, class, block);
                blocks.into_iter().for_each(put);
            }
            cache.open().magazine(class).filled()
        };
        let in_magazine = with_threads(1, cycles, |got| got[0]);
        let in_exchange = held(class).expect("an exchange").0;
        assert!(
            in_magazine + in_exchange >= 300,
            "{in_magazine} {in_exchange}"
        );
        empty_all();
    }

    #[test]
    fn magazines_between_which_blocks_pass_stay_small() {
        let _alone = alone();
        let class = Class::of_size(320);
        for capacity in send(class, 40_000) {
            assert!(capacity <= passed_at_once(class), "{capacity}");
        }
    }

    #[test]
    fn what_no_thread_passes_on_any_more_is_shrunk_while_other_classes_are_busy() {
        let _alone = alone();
        let [idle, busy] = [10_000, 16 << 10].map(Class::of_size);
        only_free(idle, 1000);
        let before = held(idle).expect("an exchange").1;
        assert!(before > 1);
        // On a loaded machine, fewer blocks of a turn go through the exchange.
        let mut turns = 0..20;
        let after = || held(idle).expect("an exchange").1;
        while after() >= before {
            assert!(turns.next().is_some(), "{} of {before}", after());
            send(busy, 120_000);
        }
    }

    #[test]
    fn the_exchange_is_no_thread() {
        let _alone = alone();
        only_free(Class::of_size(9000), 1000);
        let exchange = HEAP.registry.exchange().expect("an exchange");
        let _guard = HEAP.registry.lock.lock();
        // SAFETY: the lock is held.
        let listed: Vec<_> = unsafe { HEAP.registry.caches() }.collect();
        assert_eq!(listed.len(), HEAP.registry.count());
        assert!(!listed.into_iter().any(|cache| ptr::eq(cache, exchange)));
    }

    #[test]
    fn an_empty_magazine_has_nothing_to_hand_over() {
        let _alone = alone();
        let class = Class::of_size(11_000);
        only_free(class, 1000);
        let exchange = HEAP.registry.exchange().expect("an exchange");
        let work = || {
            let cache = own_cache::enter().expect("a cache");
            let before = exchange.open().inner.events;
            let handed = HEAP.hand_over(&mut cache.open(), class, usize::MAX);
            (handed, exchange.open().inner.events - before)
        };
        let got = with_threads(1, work, |got| got[0]);
        assert_eq!(got, (false, 0));
    }

    #[test]
    fn a_thread_that_does_not_get_the_lock_turns_to_slabs() {
        let _alone = alone();
        let class = Class::of_size(12_000);
        only_free(class, 1000);
        let exchange = HEAP.registry.exchange().expect("an exchange");
        let open = exchange.open();
        only_free(class, 1000);
        let allocate = || {
            let cache = own_cache::enter().expect("a cache");
            (0..1000).for_each(|_| {
                let block = take(cache, class).addr();
                // SAFETY: taken just above.
                unsafe { give_one(&HEAP, block) };
            });
        };
        with_threads(1, allocate, |_| ());
        drop(open);
    }

    /// A process may fork while a thread passes blocks.
    #[test]
    fn a_child_forgets_an_exchange_that_a_thread_was_changing() {
        let _alone = alone();
        let class = Class::of_size(13_000);
        only_free(class, 1000);
        let exchange = HEAP.registry.exchange().expect("an exchange");
        let [holds, done] = [2; 2].map(Barrier::new);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _open = exchange.open();
                holds.wait();
                done.wait();
            });
            holds.wait();
            let forgets = child::succeeds(child::Limit::None, || {
                HEAP.registry.forget_left_exchange();
                HEAP.registry.exchange().is_none()
            });
            done.wait();
            assert!(forgets);
        });
    }

    /// A signal handler may fork that interrupted its own thread in [`Heap::pass`]. That goes on in
    /// both processes.
    #[test]
    fn a_child_keeps_an_exchange_that_its_own_thread_was_changing() {
        let _alone = alone();
        let class = Class::of_size(14_000);
        only_free(class, 1000);
        let exchange = HEAP.registry.exchange().expect("an exchange");
        let mut open = exchange.open();
        let filled = open.magazine(class).filled();
        assert!(filled > 0);
        let goes_on = child::succeeds(child::Limit::None, || {
            HEAP.registry.forget_left_exchange();
            let is_kept = HEAP.registry.exchange().is_some() && exchange.lock().is_mine();
            is_kept && open.magazine(class).filled() == filled
        });
        assert!(goes_on);
    }
}
