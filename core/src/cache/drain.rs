//! Draining a thread's magazines from another thread, at no price to the fast path.
//!
//! A magazine is not atomic, and its owner may sleep for ever. A drainer takes its oldest blocks:
//!
//! 1. It publishes a new `bottom` just below the newest block, under the cache's lock.
//! 2. A heavy barrier (`membarrier`, private expedited): every thread that runs has passed a full
//!    barrier since, every other one passed one when it was switched out. So every pop that begins
//!    from now on sees the new bottom and stays above it.
//! 3. A pop under way may have read the old bottom, but it takes the one entry below the `top` it
//!    read, and writes `top` once. So if `top` still stands above the new bottom after the barrier,
//!    that pop too ends at or above the new bottom: what lies below it is the drainer's. If not,
//!    the old bottom is put back and nothing was taken.
//!
//! The owner's pop is one load of `top`, one of `bottom`, and one store: no flag, no fence. While the profiler samples, its pops
//! read a bottom that stands apart ([`super::counted`]): both are published. Behind a closed door it does nothing without the lock.
//! `magazine_models.rs` has the loom model; `docs/decisions/0003-draining.md` the prices of the alternatives.

use super::gather::Gather;
use super::heap::Heap;
use super::slot;
use super::slow::first_capacity;
use super::thread::{Cache, Opened};
use crate::base::sync::Ordering;
use crate::os::thread::heavy_barrier;
use crate::slab::class::{CLASSES, Class};
use crate::slab::depot::Source;
use core::ptr;

impl Heap {
    /// Empties all magazines, but for one block of each of other threads'. Blocks go to their slabs.
    pub fn drain_all(&'static self) {
        let own = slot::get();
        self.registry.for_each(|cache| {
            if ptr::eq(cache, own) {
                self.flush_all(cache);
            } else {
                self.drain(&mut cache.open(), self);
            }
        });
    }

    /// Empties the calling thread's own magazines.
    #[inline(never)]
    fn flush_all(&'static self, cache: &Cache) {
        let mut open = cache.open();
        for class in Class::all() {
            open.settle(class);
            let filled = open.filled(class);
            self.flush(&mut open, class, filled);
        }
    }

    /// Takes the older blocks of another thread's magazines, and what was granted for them. Slabs that are empty then go to
    /// `source`. Out of line, so that callers on small stacks hold what it needs only once.
    #[inline(never)]
    pub(super) fn drain<S: Source>(&'static self, open: &mut Opened<'_>, source: &S) {
        let mut bottoms = [0; CLASSES + 1];
        for class in Class::all() {
            bottoms[class.index()] = open.offer(class).unwrap_or(0);
        }
        let offered = bottoms.iter().any(|&bottom| bottom != 0);
        let barrier = !offered || heavy_barrier();
        let mut gather = Gather::new(self, source);
        for class in Class::all() {
            let bottom = bottoms[class.index()];
            if bottom != 0 && barrier && open.magazine(class).is_ceded(bottom) {
                take(open, class, bottom, &mut gather);
            }
            self.take_grant_back(open, class);
            open.publish(class);
        }
        gather.finish();
    }

    /// Lowers a capacity to the first one. The array keeps its room, so a push under way stays inside it.
    fn take_grant_back(&self, open: &mut Opened<'_>, class: Class) {
        let store = open.store(class);
        let capacity = store.capacity as usize;
        let kept = capacity.min(first_capacity(class));
        store.capacity = kept as u32;
        let less = (capacity - kept) * class.bytes();
        open.inner.granted -= less;
        self.budget.restore(less);
    }

    /// For a thread that gets no capacity, because others hold all that the process may: drains them, so
    /// that what sleeping threads hold goes to those that work. At most once in [`RECLAIM_MS`].
    /// The caller holds no cache's lock.
    pub fn reclaim(&'static self) {
        let now = self.now_ms();
        let last = self.reclaimed_at.load(Ordering::Relaxed);
        let due = now >= last + RECLAIM_MS;
        let exchange = |old| {
            self.reclaimed_at
                .compare_exchange(old, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        if due && exchange(last).is_ok() {
            self.drain_all();
        }
    }
}

/// Least time between two reclaims, in ms: draining disturbs the threads that work, too.
const RECLAIM_MS: u64 = 100;

/// Takes the entries from the floor to `bottom`, which is the floor from now on.
fn take<S: Source>(open: &mut Opened<'_>, class: Class, bottom: usize, gather: &mut Gather<'_, S>) {
    let store = open.store(class);
    let (floor, count) = (store.floor as *const usize, (bottom - store.floor) / 8);
    store.floor = bottom;
    // SAFETY: entries of the array below the published bottom: the owner does not touch them (see above).
    gather.add(unsafe { core::slice::from_raw_parts(floor, count) });
}
