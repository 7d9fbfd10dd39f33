//! All caches of the process: which come and go.

use super::colour;
use super::door::Door;
use super::heap::Heap;
use super::slot;
use super::thread::{CACHE_BYTES, Cache, GONE, ORPHANED, PINNED, UNPINNED, array_bytes};
use crate::base::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use crate::os::lock::{Lock, Rank};
use crate::os::thread::Key;
use crate::slab::class::{Class, table};
use core::ffi::c_void;
use core::ptr::{self, NonNull};

/// Most caches of a [`Batch`].
pub(super) const BATCH: usize = 32;

// A word has a bit for each place of a batch.
const _: () = assert!(BATCH <= u32::BITS as usize);

/// The list of caches and the key that ends them.
pub struct Registry {
    /// Held while a thread drains the caches of others, so that a cache is offered to one drainer
    /// at a time. Taken before `lock`.
    pub draining: Lock,
    /// Guards the list and `key`.
    pub lock: Lock,
    pub(super) first: AtomicPtr<Cache>,
    pub(super) last: AtomicPtr<Cache>,
    /// Caches in the list. Changes under the lock.
    pub(super) count: AtomicUsize,
    /// guarded by: lock
    key: UnsafeCell<Option<Key>>,
    /// Calls counted by caches that are gone: allocations, frees, requested bytes.
    past: [AtomicU64; 3],
}

// SAFETY: `key` is reached only under `lock`.
unsafe impl Sync for Registry {}

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

/// Who gives the memory of a cache back whose thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heir {
    /// The thread itself.
    Thread,
    /// The drainer that has pinned the cache.
    Drainer,
}

impl Registry {
    /// No caches.
    pub const fn new() -> Registry {
        Registry {
            draining: Lock::new(Rank::Draining),
            lock: Lock::new(Rank::Registry),
            first: AtomicPtr::new(ptr::null_mut()),
            last: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            key: UnsafeCell::new(None),
            past: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// How many threads have a cache now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
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
        let orphaned = self.take_orphans(batch);
        let left = |place: &usize| orphaned >> place & 1 != 0;
        for (_, cache) in batch.caches().filter(|(place, _)| left(place)) {
            release(cache);
        }
    }

    /// Unpins all caches of a batch. A bit for each whose thread has ended since, by its place.
    #[inline(never)]
    fn take_orphans(&self, batch: &Batch) -> u32 {
        let _guard = self.lock.lock();
        batch.caches().fold(0, |orphaned, (place, cache)| {
            let is_left = cache.pin.swap(UNPINNED, Ordering::Relaxed) == ORPHANED;
            orphaned | u32::from(is_left) << place
        })
    }

    /// Calls `visit` with every cache, the registry locked: none comes or goes meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(&Cache)) {
        let _guard = self.lock.lock();
        let mut next = self.first.load(Ordering::Relaxed);
        // SAFETY: caches in the list are alive while the lock is held.
        while let Some(cache) = unsafe { next.as_ref() } {
            visit(cache);
            next = cache.next.load(Ordering::Relaxed);
        }
    }

    /// Counted calls of all threads, past and present: allocations, frees, requested bytes.
    pub fn counted(&self) -> [u64; 3] {
        let mut sums = self
            .past
            .each_ref()
            .map(|past| past.load(Ordering::Relaxed));
        self.for_each(|cache| {
            for (sum, count) in sums.iter_mut().zip(cache.counts.all()) {
                *sum += count;
            }
        });
        sums
    }

    /// The key whose destructor ends a cache; `None` if the process has no keys left.
    fn key(&self) -> Option<Key> {
        let _guard = self.lock.lock();
        // SAFETY: the lock is held.
        let key = unsafe { &mut *self.key.get() };
        if key.is_none() {
            *key = Key::create(at_thread_end);
        }
        *key
    }

    fn enroll(&self, cache: &Cache) {
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

    /// Takes a cache that holds nothing out of the list. Says who gives its memory back.
    fn leave(&self, cache: &Cache) -> Heir {
        let _guard = self.lock.lock();
        self.unlink(cache);
        self.count.fetch_sub(1, Ordering::Relaxed);
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

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Heap {
    /// Makes a cache for the calling thread, which has none. `None` when out of memory: the call
    /// at hand goes without.
    #[cold]
    pub fn enter(&'static self) -> Option<&'static Cache> {
        // A cache and its magazines take two slabs, too much where writable memory is scant.
        let Some(key) = self.registry.key().filter(|_| !self.pages.is_scant()) else {
            // SAFETY: a static.
            unsafe { slot::set(&GONE) };
            return None;
        };
        let memory = self.take_meta(CACHE_BYTES)?;
        let shift = colour::shift(memory.addr().get());
        // SAFETY: at most `colour::ROOM`, so inside the memory.
        let block = unsafe { memory.byte_add(shift) }.cast::<Cache>();
        // SAFETY: the memory is large enough, the place in it aligned to a word, and ours.
        unsafe { Cache::put(block, shift) };
        if table::is_replaced() {
            // SAFETY: initialised just now, and no other thread has it yet.
            unsafe { &mut *block.as_ptr() }.follow_classes();
        }
        // SAFETY: initialised above; lives until `retire_cache`.
        let cache = unsafe { block.as_ref() };
        self.registry.enroll(cache);
        // Looked at once the cache is in the list: whoever changes the mode later finds it there.
        let mut open = cache.open();
        match self.door() {
            Door::Open => open.publish_door(),
            door => {
                open.set_door(door);
                self.begin_counting(&mut open);
            }
        }
        drop(open);
        // From here on calls from inside `key.set` find the cache.
        // SAFETY: the cache lives until the thread's end, where the slot is set again.
        unsafe { slot::set(cache) };
        // SAFETY: `at_thread_end` takes the block of a cache.
        if !unsafe { key.set(block.as_ptr().cast()) } {
            self.retire_cache(block);
            return None;
        }
        Some(cache)
    }

    /// Ends the calling thread's cache: all it holds goes back.
    fn retire_cache(&'static self, block: NonNull<Cache>) {
        // Destructors that run after this one are served without a cache.
        // SAFETY: a static.
        unsafe { slot::set(&GONE) };
        // SAFETY: the thread's own cache, alive until it is released below.
        let cache = unsafe { block.as_ref() };
        self.empty(cache);
        if self.registry.leave(cache) == Heir::Thread {
            self.release_cache(cache);
        }
        if self.registry.is_empty() {
            self.tide.end_soon();
        }
    }

    /// Gives back all that the calling thread's cache holds. It stays empty: its thread no longer
    /// reaches it.
    fn empty(&'static self, cache: &Cache) {
        let mut open = cache.open();
        for class in Class::all() {
            open.settle(class);
            let filled = open.filled(class);
            self.flush(&mut open, class, filled);
            let array = open.take_array(class);
            if let Some((array, room)) = array {
                // SAFETY: the array was allocated for this room; drainers are locked out and find
                // none from now on.
                unsafe { self.give_meta(array, array_bytes(room)) };
            }
        }
        let granted = core::mem::take(&mut open.inner.granted);
        self.budget.restore(granted);
    }

    /// Gives back the memory of an empty cache that is in no thread's slot, not in the list, and
    /// not pinned.
    pub(super) fn release_cache(&'static self, cache: &'static Cache) {
        let shift = cache.open().inner.shift as usize;
        let start = NonNull::from(cache).cast::<u8>();
        // SAFETY: where its memory starts; nothing reaches it any more.
        unsafe { self.give_meta(start.byte_sub(shift), CACHE_BYTES) };
    }
}

/// The destructor of the key: the thread is ending.
unsafe extern "C" fn at_thread_end(cache: *mut c_void) {
    if let Some(cache) = NonNull::new(cache.cast::<Cache>()) {
        super::heap::HEAP.retire_cache(cache);
    }
}
