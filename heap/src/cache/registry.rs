//! All caches of the process, which begin and end with their threads.

use super::thread_cache::{Cache, ORPHANED, PINNED, UNPINNED};
use crate::base::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::os::lock::{Lock, Rank};
use crate::os::thread::{self, Key};
use crate::slab::class::Class;
use core::ffi::c_void;
use core::ptr;

/// With fewer caches the list is not swept for its size.
const LEAST_CROWD: usize = 16;

/// Most caches of a [`Batch`].
pub(super) const BATCH: usize = 32;

// A word has a bit for each place of a batch.
const _: () = assert!(BATCH <= u32::BITS as usize);

/// The list of caches and the key that ends them.
pub struct Registry {
    /// Held while a thread drains the caches of others, so that a cache is offered to one drainer
    /// at a time.
    pub draining: Lock,
    /// Guards the list.
    pub lock: Lock,
    pub(super) first: AtomicPtr<Cache>,
    pub(super) last: AtomicPtr<Cache>,
    /// The [exchange](super::exchange), which is not in the list; null: there is none.
    pub(super) exchange: AtomicPtr<Cache>,
    /// Caches in the list. Changes under the lock.
    pub(super) count: AtomicUsize,
    /// With this many caches, the list is swept for caches of threads that are gone. Changes under
    /// the lock.
    crowd: AtomicUsize,
    /// The process's first thread has ended, or is about to.
    pub(super) main_left: AtomicBool,
    /// [`NO_KEY`], [`MAKES_KEY`], or the number of the key of [`End::WithThread`] plus
    /// [`FIRST_KEY`].
    key: AtomicU64,
    /// Calls counted by caches that are gone: allocations, frees, requested bytes.
    past: [AtomicU64; 3],
    /// How many caches were [armed](super::arming) when they ended, and no other cache was armed in
    /// their place.
    owed: AtomicU32,
}

const NO_KEY: u64 = 0;
const MAKES_KEY: u64 = 1;
const FIRST_KEY: u64 = 2;

/// Caches that a drainer has pinned: their memory stays, though their threads may end.
pub(super) struct Batch {
    caches: [Option<&'static Cache>; BATCH],
}

impl Batch {
    /// The caches, each with its place in the batch.
    pub(super) fn caches(&self) -> impl Iterator<Item = (usize, &'static Cache)> {
        let caches = self.caches.iter().enumerate();
        caches.filter_map(|(place, cache)| Some((place, (*cache)?)))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.caches().count()
    }
}

/// What gives back the memory of a cache whose thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heir {
    /// The thread itself.
    Thread,
    /// The drainer that has pinned the cache.
    Drainer,
}

/// When a cache ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its thread, whose value of this key it is.
    WithThread(Key),
    /// With the process, which has no keys because it started with one thread.
    WithProcess,
}

/// Why a thread gets no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The cache could not end: the process has no keys left, or it got the functions of threads
    /// after its start and this is not the first thread.
    Lasting,
    /// The key is being made, perhaps by a caller of this very call: another library may have a
    /// `pthread_key_create` that allocates.
    Now,
}

/// What the C library calls with a thread's cache when the thread ends.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

impl Registry {
    /// No caches.
    pub const fn new() -> Registry {
        Registry {
            draining: Lock::new(Rank::Draining),
            lock: Lock::new(Rank::Registry),
            first: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            exchange: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            crowd: AtomicUsize::new(LEAST_CROWD),
            main_left: AtomicBool::new(false),
            key: AtomicU64::new(NO_KEY),
            past: [const { AtomicU64::new(0) }; 3],
            owed: AtomicU32::new(0),
        }
    }

    /// How many threads have a cache now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are twice as many caches as after the last sweep, or when a thread last ended.
    pub(super) fn is_crowded(&self) -> bool {
        self.count() >= self.crowd.load(Ordering::Relaxed)
    }

    /// Sets the next crowd, after the caches of threads that are gone have left the list.
    pub(super) fn note_swept(&self) {
        let _guard = self.lock.lock();
        let crowd = (2 * self.count()).max(LEAST_CROWD);
        self.crowd.store(crowd, Ordering::Relaxed);
    }

    /// Whether the process's first thread has ended. Then the purge thread could be the last one.
    pub fn has_main_left(&self) -> bool {
        self.main_left.load(Ordering::Relaxed)
    }

    /// The process's first thread ends.
    pub(crate) fn note_main_left(&self) {
        self.main_left.store(true, Ordering::Relaxed);
    }

    /// Counts a free of a thread that has no cache.
    pub(crate) fn count_free(&self) {
        self.past[1].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a cache that the caller has pinned is in the list. Searches backwards, because
    /// pinned caches are at the end.
    pub(super) fn is_listed(&self, cache: &Cache) -> bool {
        let _guard = self.lock.lock();
        // SAFETY: caches in the list are alive while the lock is held.
        let at = |link: &AtomicPtr<Cache>| unsafe { link.load(Ordering::Relaxed).as_ref() };
        let mut backwards =
            core::iter::successors(at(&self.last), move |cache| at(&cache.previous));
        backwards.any(|listed| ptr::eq(listed, cache))
    }

    /// Pins the first `most` caches of the list and moves them to its end, so that the next batch
    /// is of others. The caller holds `draining`.
    #[inline(never)]
    pub(super) fn pin(&self, most: usize) -> Batch {
        debug_assert!(most <= BATCH && self.draining.try_lock().is_none());
        let mut batch = Batch {
            caches: [None; BATCH],
        };
        let _guard = self.lock.lock();
        for place in batch.caches.iter_mut().take(most.min(self.count())) {
            // SAFETY: caches in the list are alive while the lock is held.
            let Some(cache) = (unsafe { self.first.load(Ordering::Relaxed).as_ref() }) else {
                break;
            };
            self.unlink(cache);
            self.append(cache);
            cache.pin.store(PINNED, Ordering::Relaxed);
            *place = Some(cache);
        }
        batch
    }

    /// Ends what [`Registry::pin`] began. Calls `release` with caches whose threads have ended
    /// since, which nothing else reaches any more.
    pub(super) fn unpin(&self, batch: &Batch, mut release: impl FnMut(&'static Cache)) {
        for (_, cache) in batch.caches() {
            let guard = self.lock.lock();
            let is_left = cache.pin.swap(UNPINNED, Ordering::Relaxed) == ORPHANED;
            drop(guard);
            if is_left {
                release(cache);
            }
        }
    }

    /// Calls `visit` with every cache and the exchange. The registry is locked, so none comes or
    /// goes meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(&Cache)) {
        self.visit(&mut visit);
    }

    #[inline(never)]
    fn visit(&self, visit: &mut dyn FnMut(&Cache)) {
        let _guard = self.lock.lock();
        // SAFETY: the lock is held.
        let caches = unsafe { self.caches() };
        caches.chain(self.exchange()).for_each(visit);
    }

    /// Whether a magazine of any thread holds the block of `class` at an address. Looks at all of
    /// them, with their locks.
    #[cold]
    pub(crate) fn holds(&self, class: Class, address: usize) -> bool {
        let mut is_held = false;
        self.for_each(|cache| {
            if let Some(mut open) = cache.open_other() {
                is_held |= open.magazine(class).blocks().any(|block| block == address);
            }
        });
        is_held
    }

    /// The exchange, if it was made. It stays for good.
    pub(super) fn exchange(&self) -> Option<&'static Cache> {
        // SAFETY: null, or a cache whose memory stays.
        unsafe { self.exchange.load(Ordering::Acquire).as_ref() }
    }

    /// The caches, from the first to the last.
    ///
    /// # Safety
    /// - The caller holds the lock as long as it uses them, or is a fork's child with one thread.
    pub(super) unsafe fn caches(&self) -> impl Iterator<Item = &'static Cache> + use<> {
        // SAFETY: the caller's promise: caches in the list are alive.
        let at = |link: &AtomicPtr<Cache>| unsafe { link.load(Ordering::Relaxed).as_ref() };
        core::iter::successors(at(&self.first), move |cache| at(&cache.next))
    }

    /// Counted calls of all threads, past and present: allocations, frees, requested bytes.
    pub fn counted(&self) -> [u64; 3] {
        let _guard = self.lock.lock();
        // Under the lock, because a cache that leaves moves its counts to `past`.
        let mut sums = self
            .past
            .each_ref()
            .map(|past| past.load(Ordering::Relaxed));
        // SAFETY: the lock is held.
        for cache in unsafe { self.caches() } {
            for (sum, count) in sums.iter_mut().zip(cache.counts.all()) {
                *sum += count;
            }
        }
        sums
    }

    /// How the cache of the calling thread, which has none yet, is to end. If it ends with the
    /// thread, the thread's key has `destructor`.
    pub(super) fn admit(&self, destructor: Destructor) -> Result<End, Refused> {
        if thread::are_there() {
            self.key(destructor).map(End::WithThread)
        } else if self.is_empty() {
            Ok(End::WithProcess)
        } else {
            Err(Refused::Lasting)
        }
    }

    /// The key of all threads, made by the first call.
    fn key(&self, destructor: Destructor) -> Result<Key, Refused> {
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        match self.key.compare_exchange(NO_KEY, MAKES_KEY, order, failed) {
            Ok(_) => {
                let made = Key::create(destructor);
                let number = made.map_or(NO_KEY, |key| u64::from(key.number()) + FIRST_KEY);
                self.key.store(number, Ordering::Release);
                made.ok_or(Refused::Lasting)
            }
            Err(MAKES_KEY) => Err(Refused::Now),
            Err(number) => Ok(Key::numbered((number - FIRST_KEY) as u32)),
        }
    }

    /// In a fork's child: a thread that was making the key stayed in the parent.
    pub(super) fn forget_unmade_key(&self) {
        if self.key.load(Ordering::Relaxed) == MAKES_KEY {
            self.key.store(NO_KEY, Ordering::Relaxed);
        }
    }

    pub(super) fn enroll(&self, cache: &Cache) {
        let _guard = self.lock.lock();
        self.append(cache);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a cache at the end of the list. The caller holds the lock.
    pub(super) fn append(&self, cache: &Cache) {
        let own = ptr::from_ref(cache).cast_mut();
        let last = self.last.swap(own, Ordering::Relaxed);
        cache.previous.store(last, Ordering::Relaxed);
        cache.next.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: caches in the list are alive while the lock is held.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.store(own, Ordering::Relaxed),
            None => self.first.store(own, Ordering::Relaxed),
        }
    }

    /// Takes a cache out of the list. The caller holds the lock.
    fn unlink(&self, cache: &Cache) {
        let next = cache.next.load(Ordering::Relaxed);
        let previous = cache.previous.load(Ordering::Relaxed);
        // SAFETY: neighbours in the list are alive while the lock is held.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.store(next, Ordering::Relaxed),
            None => self.first.store(next, Ordering::Relaxed),
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.previous.store(previous, Ordering::Relaxed),
            None => self.last.store(previous, Ordering::Relaxed),
        }
    }

    /// Whether no thread has a cache.
    pub fn is_empty(&self) -> bool {
        let _guard = self.lock.lock();
        self.first.load(Ordering::Relaxed).is_null()
    }

    /// Whether a cache is to be armed in place of one that ended. The caller arms one then.
    pub(super) fn take_owed(&self) -> bool {
        let one_less = |owed: u32| owed.checked_sub(1);
        let order = Ordering::Relaxed;
        self.owed.load(order) > 0 && self.owed.fetch_update(order, order, one_less).is_ok()
    }

    /// Takes a cache that holds nothing out of the list. Returns what gives its memory back.
    pub(super) fn leave(&self, cache: &Cache) -> Heir {
        let _guard = self.lock.lock();
        self.unlink(cache);
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a cache leaves that is not in the list");
        let crowd = (2 * before).max(LEAST_CROWD);
        if crowd < self.crowd.load(Ordering::Relaxed) {
            self.crowd.store(crowd, Ordering::Relaxed);
        }
        if cache.owner.load(Ordering::Relaxed) == thread::MAIN {
            self.note_main_left();
        }
        if cache.is_armed() {
            // No more than there are caches, so that those to come are not armed time after time.
            let one_more = |owed: u32| ((owed as usize) < before).then_some(owed + 1);
            let order = Ordering::Relaxed;
            _ = self.owed.fetch_update(order, order, one_more);
        }
        for (past, count) in self.past.iter().zip(cache.counts.all()) {
            past.fetch_add(count, Ordering::Relaxed);
        }
        match cache.pin.load(Ordering::Relaxed) {
            UNPINNED => Heir::Thread,
            _ => {
                cache.pin.store(ORPHANED, Ordering::Relaxed);
                Heir::Drainer
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::countdown::Counts;
    use super::*;
    use crate::base::sync::AtomicBool;
    use std::boxed::Box;

    const CACHES: u64 = 20_000;

    #[test]
    fn totals_do_not_fall_when_threads_end() {
        let (registry, is_over) = (Registry::new(), AtomicBool::new(false));
        let allocations = || registry.counted()[0];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..CACHES {
                    let cache = Box::new(Cache::new(0));
                    registry.enroll(&cache);
                    Counts::bump(&cache.counts.allocations, 1);
                    registry.leave(&cache);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = allocations();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(allocations(), CACHES);
    }
}
