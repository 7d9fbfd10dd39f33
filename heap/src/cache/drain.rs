//! Draining threads' magazines from another thread, at no cost to the fast path.
//!
//! A magazine is not atomic, and its owner may sleep indefinitely. A drainer takes its oldest
//! blocks:
//!
//! 1. *Offer*: it publishes a new `bottom` just below the newest block, under the cache's lock, and
//!    blocks the pops that read no bottom ([`super::machine::pop_sized`]) through the bound with
//!    which they compare the size ([`super::bounds::Access::publish`]).
//! 2. *Barrier* (`membarrier`, private expedited): every running thread has passed a full barrier
//!    since the offer, and every other thread passed one when it was switched out. So every pop
//!    that begins from now on sees the new bottom and stays above it, or sees the bound and takes
//!    the slow path.
//! 3. *Collect*, under the cache's lock again. A pop in progress may have read the old bottom, but
//!    it takes only the one entry below the `top` that it read, and writes `top` once. So if `top`
//!    is still above the new bottom after the barrier, that pop also ends at or above the new
//!    bottom, and the entries below it belong to the drainer. If not, the drainer puts the old
//!    bottom back and takes nothing. When it takes entries, it leaves a guard below the new floor
//!    ([`super::bounds::Held::collect`]), and pops for a size work again.
//!
//! One barrier serves a batch of caches, and the drainer holds no lock except
//! [`Registry::draining`](super::registry::Registry) meanwhile, so threads start, end, refill and
//! flush undisturbed. Between offer and collect an owner may therefore take its slow path. It puts
//! the old bottom back ([`super::bounds::Held::settle`]), which tells the drainer that its offer
//! has ended. Since only one thread drains at a time, a bottom above the floor is always one that
//! was offered before the barrier.
//!
//! Pops for a size are blocked only from offer to collect. An owner that takes the slow path often
//! in between ends the offer ([`Opened::lose_patience`]).
//!
//! A pop that compares with a bottom is one load of `top`, one of `bottom`, and one store: no flag,
//! no fence. A pop for a size is blocked by the compare that bounds the size, so it needs no extra
//! instruction either. While the profiler samples, pops read a separate bottom
//! ([`super::countdown`]), and the drainer publishes that one. With the fast path off, no pop
//! happens without the lock. An owner whose fast path has been closed since its last look at the
//! lock is in no pop. So a drainer that holds the cache needs no barrier. The protocol is in
//! `bounds.rs`, its loom models are in `testing/magazine_models.rs`, and the costs of the
//! alternatives in `docs/decisions/0003-draining.md`.

use super::flush::{GiveBack, Map};
use super::heap::Heap;
use super::machine;
use super::opened::Opened;
use super::origin::Origin;
use super::refill::first_capacity;
use super::registry::{BATCH, Batch};
use crate::base::sync::Ordering;
use crate::os::thread::heavy_barrier;
use crate::pages::Age;
use crate::slab::Scope;
use crate::slab::class::Class;
use core::ptr;

/// Least time between two batches that threads without capacity drain, in ms.
const RECLAIM_MS: u64 = 10;

/// The caches of a batch that offer something, a bit for the place of each.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    /// All of them.
    places: u32,
    /// Those whose owners may be in the middle of a pop, so that a drain needs the heavy barrier.
    popping: u32,
}

/// How much one batch may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A whole batch: the caller waits for the whole round.
    Whole,
    /// Some 50 µs, and only if no other thread drains: a caller of malloc or free on its way.
    OnTheWay,
}

impl Effort {
    /// Most caches that are looked at. No magazine is emptied once this many blocks were taken.
    fn bounds(self) -> (usize, usize) {
        match self {
            Effort::Whole => (BATCH, usize::MAX),
            Effort::OnTheWay => (8, 2048),
        }
    }
}

impl Heap {
    /// Empties the calling thread's own magazines. Blocks go to their slabs.
    #[inline(never)]
    pub(crate) fn flush_own(&'static self) {
        // SAFETY: the slot holds a sentinel or the thread's own cache.
        let own = unsafe { &*machine::slot() };
        let Some(mut open) = own.open_own() else {
            return;
        };
        for class in Class::all() {
            // SAFETY: the thread's own cache.
            unsafe { open.magazine(class).settle() };
            let filled = open.magazine(class).filled();
            // SAFETY: as above; settled.
            unsafe { self.flush(&mut open, class, filled, Age::New) };
        }
    }

    /// Takes the older blocks of other threads' magazines, and what was granted for them: of the
    /// caches that no drainer has looked at for longest, if they are in `scope`. Idle are those
    /// that were not used since a drainer last came by. Slabs that are empty then go to `source`.
    /// Returns how many caches it looked at.
    pub(crate) fn drain(&'static self, scope: Scope, effort: Effort, source: Origin) -> usize {
        let draining = &self.registry.draining;
        let alone = match effort {
            Effort::Whole => Some(draining.lock()),
            Effort::OnTheWay => draining.try_lock(),
        };
        let Some(_alone) = alone else {
            return 0;
        };
        let (caches, blocks) = effort.bounds();
        let batch = self.registry.pin(caches);
        let offer = self.offer_batch(&batch, scope);
        if offer.places != 0 {
            let ceded = match offer.popping == 0 || heavy_barrier() {
                true => offer.places,
                false => offer.places & !offer.popping,
            };
            self.collect_batch(&batch, offer.places, ceded, blocks, source);
        }
        self.bury(&batch);
        self.registry
            .unpin(&batch, |cache| self.release_cache(cache));
        batch.count()
    }

    /// Offers what the caches of a batch hold.
    #[inline(never)]
    fn offer_batch(&'static self, batch: &Batch, scope: Scope) -> Offer {
        let own = machine::slot();
        let mut offer = Offer::default();
        for (place, cache) in batch.caches().filter(|(_, cache)| !ptr::eq(*cache, own)) {
            let Some(mut open) = cache.open_other() else {
                continue;
            };
            self.deep
                .fetch_add(self.deep_bytes(&open), Ordering::Relaxed);
            let is_due = open.is_idle() || scope == Scope::All;
            if is_due && !open.inner.is_drained && self.offer_all(&mut open) {
                let access = &open.inner.access;
                let may_pop = !access.path.is_closed() || access.may_pop;
                offer.places |= 1 << place;
                offer.popping |= u32::from(may_pop) << place;
            }
        }
        offer
    }

    /// Offers all magazines of a cache; false if there is nothing to take. Capacity without blocks
    /// is taken back at once.
    fn offer_all(&'static self, open: &mut Opened<'_>) -> bool {
        let mut any = false;
        for class in open.classes() {
            any |= open.magazine(class).offer().is_some();
        }
        open.set_offering(any);
        open.inner.is_drained = !any;
        if !any {
            for class in open.classes() {
                self.take_grant_back(open, class);
            }
        }
        any
    }

    /// Takes what the caches at `places` have offered, as far as the offers still hold, until
    /// `most` blocks were taken. What is left goes back. Takes the grants of caches that no thread
    /// has used since the offer. An owner that works keeps its grants, because without them it
    /// would miss and have to grow again. Of caches that are not `ceded`, takes only grants: their
    /// owners may be in the middle of a pop, because the kernel refused the barrier. Out of line,
    /// so that callers on small stacks hold what it needs only once.
    #[inline(never)]
    fn collect_batch(
        &'static self,
        batch: &Batch,
        places: u32,
        ceded: u32,
        most: usize,
        source: Origin,
    ) {
        let mut back = GiveBack::new(source);
        let mut left = most;
        for (place, cache) in batch.caches().filter(|(place, _)| places >> place & 1 != 0) {
            let Some(mut open) = cache.open_other() else {
                continue;
            };
            let stands = open.inner.access.is_offering;
            let is_unused = stands && open.is_unused();
            let may_take = stands && ceded >> place & 1 != 0;
            for class in open.classes() {
                let has_room = left > 0;
                if may_take && has_room {
                    let add = |blocks: &[usize]| {
                        self.drained.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: what a drainer takes out of a magazine, nothing uses.
                        unsafe { back.add(&mut Map::of(self, class), blocks) };
                    };
                    // SAFETY: the batch was offered, then came the heavy barrier. Or the owner has
                    // a closed fast path and is not in the middle of a pop.
                    let taken = unsafe { open.magazine(class).collect(add) };
                    left = left.saturating_sub(taken);
                }
                match is_unused && has_room {
                    true => self.take_grant_back(&mut open, class),
                    false => open.magazine(class).publish(),
                }
            }
            open.set_offering(false);
            let took_all = may_take && left > 0;
            open.inner.is_drained = took_all && open.is_unused();
        }
        back.finish();
    }

    /// Lowers a capacity to the first one. The array keeps its room, so a push under way stays
    /// inside it.
    fn take_grant_back(&self, open: &mut Opened<'_>, class: Class) {
        let bounds = open.magazine(class).bounds;
        let capacity = bounds.capacity as usize;
        let kept = capacity.min(first_capacity(class));
        bounds.capacity = kept as u32;
        let less = (capacity - kept) * class.bytes();
        self.restore(open, less);
        open.magazine(class).publish();
    }

    /// For a thread that gets no capacity, because others hold all that the process may have:
    /// drains some threads that sleep. The caller holds no cache's lock.
    pub fn reclaim(&'static self) {
        let now = self.now_ms();
        let last = self.reclaimed_at.load(Ordering::Relaxed);
        let due = now >= last + RECLAIM_MS;
        let exchange = |old| {
            self.reclaimed_at
                .compare_exchange(old, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        if due && exchange(last).is_ok() {
            let source = Origin::blocks(self, Age::New);
            self.drain(Scope::Idle, Effort::OnTheWay, source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::heap::HEAP;
    use crate::cache::machine;
    use crate::cache::thread_cache::{Cache, ORPHANED};
    use crate::testing::crew::with_threads;
    use crate::testing::own_cache;
    use std::sync::{Barrier, OnceLock};
    use std::vec::Vec;

    #[test]
    fn an_owner_ends_what_a_drainer_left_in_the_middle() {
        let (cache, class) = (own_cache::enter().expect("a cache"), Class::of_size(328));
        own_cache::refill(cache, class);
        own_cache::refill(cache, class);
        cache.open().set_offering(true);
        let mut slow = 0;
        while own_cache::pop_sized(cache, 328).is_none() {
            assert!(slow < 1000, "the fast path stays barred");
            let block = own_cache::refill(cache, class);
            own_cache::put(cache, class, block);
            slow += 1;
        }
        assert!(slow > 1);
    }

    /// Fills a magazine of the calling thread with `count` blocks of `size` bytes. Does not use the
    /// front, whose fork handlers would then run in other tests.
    fn fill_magazine(size: usize, count: usize) {
        // SAFETY: the slot holds a sentinel or the thread's own cache.
        let own = unsafe { &*machine::slot() };
        let cache = match own.is_sentinel() {
            true => own_cache::enter().expect("a cache"),
            false => own,
        };
        let class = Class::of_size(size);
        let blocks: Vec<_> = (0..count)
            .map(|_| own_cache::refill(cache, class))
            .collect();
        blocks
            .into_iter()
            .for_each(|block| own_cache::put(cache, class, block));
    }

    #[test]
    fn a_caller_on_its_way_looks_at_few_caches() {
        const THREADS: usize = 100;
        let fill = || fill_magazine(48, 12);
        with_threads(THREADS, fill, |_| {
            assert!(HEAP.registry.count() >= THREADS);
            let source = Origin::blocks(&HEAP, Age::New);
            let looked_at = HEAP.drain(Scope::Idle, Effort::OnTheWay, source);
            assert!(looked_at <= Effort::OnTheWay.bounds().0, "{looked_at}");
        });
    }

    /// Pins the cache at `own`, and no other.
    fn pin_one(own: usize) -> Batch {
        loop {
            let batch = HEAP.registry.pin(1);
            if batch
                .caches()
                .any(|(_, cache)| ptr::from_ref(cache).addr() == own)
            {
                return batch;
            }
            HEAP.registry
                .unpin(&batch, |cache| HEAP.release_cache(cache));
        }
    }

    /// What the cache of a thread is granted before it is drained, and after. Between offer and
    /// collection the thread calls `work`. Also whether nothing is left to take.
    ///
    /// The call fails at its end if `work` returns false. A panic in it would leave the test
    /// waiting at a barrier.
    fn grants_around_a_drain(work: impl FnOnce(&Cache) -> bool + Send) -> (usize, usize, bool) {
        let [filled, offered, worked, done] = [2; 4].map(Barrier::new);
        let own = OnceLock::new();
        let _alone = HEAP.registry.draining.lock();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                (0..4).for_each(|_| fill_magazine(48, 100));
                own.get_or_init(|| machine::slot().addr());
                filled.wait();
                offered.wait();
                // SAFETY: the thread's own cache.
                let is_done = work(unsafe { &*machine::slot() });
                worked.wait();
                done.wait();
                is_done
            });
            filled.wait();
            let batch = pin_one(*own.wait());
            let granted = || {
                let caches = batch.caches();
                caches.map(|(_, cache)| cache.open().inner.granted).sum()
            };
            let before = granted();
            let places = HEAP.offer_batch(&batch, Scope::All).places;
            assert!(heavy_barrier());
            offered.wait();
            worked.wait();
            let source = Origin::blocks(&HEAP, Age::New);
            HEAP.collect_batch(&batch, places, places, usize::MAX, source);
            let after = granted();
            let is_drained = batch
                .caches()
                .all(|(_, cache)| cache.open().inner.is_drained);
            HEAP.registry
                .unpin(&batch, |cache| HEAP.release_cache(cache));
            done.wait();
            assert!(thread.join().unwrap(), "the thread could not work");
            (before, after, is_drained)
        })
    }

    #[test]
    fn a_thread_that_works_while_it_is_drained_keeps_what_it_is_granted() {
        let (before, after, is_drained) = grants_around_a_drain(|_| true);
        assert!(after < before, "of a thread that sleeps: {before}, {after}");
        assert!(is_drained, "the next drainer passes it by");
        // On its slow path, then on its fast path only.
        let (before, after, is_drained) = grants_around_a_drain(|cache| {
            let class = Class::of_size(4000);
            own_cache::put(cache, class, own_cache::refill(cache, class));
            true
        });
        assert!(after >= before, "after a refill: {before}, {after}");
        assert!(!is_drained);
        let (before, after, is_drained) =
            grants_around_a_drain(|cache| own_cache::pop(cache, Class::of_size(48)).is_some());
        assert_eq!((after, is_drained), (before, false), "after a pop");
    }

    #[test]
    fn a_thread_that_ends_while_it_is_drained_leaves_its_cache_to_the_drainer() {
        let (entered, end) = (Barrier::new(2), Barrier::new(2));
        let alone = HEAP.registry.draining.lock();
        let is = |cache: &Cache, own: usize| ptr::from_ref(cache).addr() == own;
        let (own, pinned) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                fill_magazine(64, 12);
                entered.wait();
                end.wait();
                machine::slot().addr()
            });
            entered.wait();
            // One after the other: a thread in the list comes before any is pinned twice.
            let pinned: Vec<Batch> = (0..HEAP.registry.count())
                .map(|_| HEAP.registry.pin(1))
                .collect();
            end.wait();
            (thread.join().unwrap(), pinned)
        });
        let caches = || pinned.iter().flat_map(Batch::caches);
        let cache = caches()
            .map(|(_, cache)| cache)
            .find(|cache| is(cache, own))
            .expect("it was in the list");
        // A thread's last destructors run after its scope has ended.
        while cache.pin.load(Ordering::Relaxed) != ORPHANED {
            std::thread::yield_now();
        }
        assert_eq!(cache.open().classes().count(), 0, "its arrays went back");
        let mut released = 0;
        for batch in &pinned {
            HEAP.registry.unpin(batch, |cache| {
                released += usize::from(is(cache, own));
                HEAP.release_cache(cache);
            });
        }
        assert_eq!(released, 1);
        drop(alone);
    }
}
