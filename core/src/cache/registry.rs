//! All caches of the process: who comes, who goes, and what is left of a fork.

use super::colour;
use super::heap::Heap;
use super::slot;
use super::thread::{CACHE_BYTES, Cache, Door, GONE};
use crate::base::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};
use crate::os::gate::FORK;
use crate::os::lock::{Lock, Rank};
use crate::os::thread::Key;
use crate::slab::class::{Class, table};
use core::ffi::c_void;
use core::ptr::{self, NonNull};

/// The list of caches and the key that ends them.
pub struct Registry {
    /// Guards the list and `key`.
    pub lock: Lock,
    first: AtomicPtr<Cache>,
    /// guarded by: lock
    key: UnsafeCell<Option<Key>>,
    /// Calls counted by caches that are gone: allocations, frees, requested bytes.
    past: [AtomicU64; 3],
}

// SAFETY: `key` is reached only under `lock`.
unsafe impl Sync for Registry {}

impl Registry {
    /// No caches.
    pub const fn new() -> Registry {
        Registry {
            lock: Lock::new(Rank::Registry),
            first: AtomicPtr::new(ptr::null_mut()),
            key: UnsafeCell::new(None),
            past: [const { AtomicU64::new(0) }; 3],
        }
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
        let first = self.first.load(Ordering::Relaxed);
        cache.next.store(first, Ordering::Relaxed);
        // SAFETY: caches in the list are alive while the lock is held.
        if let Some(first) = unsafe { first.as_ref() } {
            first
                .previous
                .store(ptr::from_ref(cache).cast_mut(), Ordering::Relaxed);
        }
        self.first
            .store(ptr::from_ref(cache).cast_mut(), Ordering::Relaxed);
    }

    /// Whether no thread has a cache.
    pub fn is_empty(&self) -> bool {
        let _guard = self.lock.lock();
        self.first.load(Ordering::Relaxed).is_null()
    }

    fn leave(&self, cache: &Cache) {
        let _guard = self.lock.lock();
        let next = cache.next.load(Ordering::Relaxed);
        let previous = cache.previous.load(Ordering::Relaxed);
        // SAFETY: neighbours in the list are alive while the lock is held.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.store(next, Ordering::Relaxed),
            None => self.first.store(next, Ordering::Relaxed),
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.previous.store(previous, Ordering::Relaxed);
        }
        for (past, count) in self.past.iter().zip(cache.counts.all()) {
            past.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// In a fork's child: only the calling thread is left. The caches of the others stay behind, with at most the bytes
    /// that were granted to them. False, and nothing written, if there were no others.
    fn keep_only(&self, cache: Option<&Cache>) -> bool {
        let only = cache.map_or(ptr::null_mut(), |cache| ptr::from_ref(cache).cast_mut());
        let is_only = |cache: &Cache| cache.next.load(Ordering::Relaxed).is_null();
        if self.first.load(Ordering::Relaxed) == only && cache.is_none_or(is_only) {
            return false;
        }
        self.first.store(only, Ordering::Relaxed);
        if let Some(cache) = cache {
            cache.next.store(ptr::null_mut(), Ordering::Relaxed);
            cache.previous.store(ptr::null_mut(), Ordering::Relaxed);
        }
        true
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
        let Some(key) = self.registry.key() else {
            // SAFETY: a static.
            unsafe { slot::set(&GONE) };
            return None;
        };
        let memory = self.meta.allocate(CACHE_BYTES, || self.meta_slice())?;
        let shift = colour::shift(memory.addr().get());
        // SAFETY: at most `colour::ROOM`, so inside the memory.
        let block = unsafe { memory.byte_add(shift) }.cast::<Cache>();
        // SAFETY: the memory is large enough, the place in it aligned to a word, and ours.
        unsafe { block.write(Cache::new(shift)) };
        if table::is_replaced() {
            // SAFETY: initialised just now, and nobody else has it yet.
            unsafe { &mut *block.as_ptr() }.follow_classes();
        }
        // SAFETY: initialised above; lives until `retire_cache`.
        let cache = unsafe { block.as_ref() };
        self.registry.enroll(cache);
        // Looked at once the cache is in the list: whoever changes the mode later finds it there.
        let mut open = cache.open();
        match self.door() {
            Door::Open => {}
            door => {
                open.set_door(door);
                self.begin_counting(&mut open);
            }
        }
        drop(open);
        // From here on calls from inside `key.set` find the cache.
        // SAFETY: the cache lives until the thread's end, where the slot is set again.
        unsafe { slot::set(cache) };
        if !key.set(block.as_ptr().cast()) {
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
        self.registry.leave(cache);
        let mut open = cache.open();
        Class::all().for_each(|class| {
            open.settle(class);
            let filled = open.filled(class);
            self.flush(&mut open, class, filled);
            let store = open.store(class);
            if let Some(array) = NonNull::new(store.base as *mut u8) {
                // SAFETY: the array was allocated for this room and nobody reaches it any more.
                unsafe { self.meta.release(array, store.room as usize * 8) };
            }
        });
        self.budget.restore(open.inner.granted);
        let shift = open.inner.shift as usize;
        drop(open);
        // SAFETY: where its memory starts. Out of the registry and the slot, so nobody reaches it any more.
        unsafe { self.meta.release(block.cast().byte_sub(shift), CACHE_BYTES) };
        if self.registry.is_empty() {
            self.tide.end_soon();
        }
    }

    /// Before a fork: brings all below the front to rest, from the left of the order of locks to the right.
    pub fn close_for_fork(&self) {
        FORK.close(Rank::Step, [&self.tide.step]);
        FORK.close(Rank::Pace, [&self.pace.lock]);
        FORK.close(Rank::Registry, [&self.registry.lock]);
        FORK.close(Rank::Depot, self.depots.locks());
        FORK.close(Rank::Meta, [&self.meta.lock]);
        FORK.close(Rank::Stacks, [self.stacks.lock()]);
        let [purging, pages] = self.pages.locks();
        FORK.close(Rank::Purging, [purging]);
        FORK.close(Rank::Pages, [pages]);
    }

    /// After a fork, in the child, whose only thread this is. What the thread was changing when a handler of a signal
    /// interrupted it, and forked, it goes on changing.
    pub fn after_fork_in_child(&'static self) {
        // SAFETY: the slot holds a sentinel or the thread's own cache.
        let cache = Some(unsafe { &*slot::get() }).filter(|cache| !cache.is_sentinel());
        if let Some(cache) = cache {
            cache.lock().free_if_left();
        }
        let at_rest =
            !self.registry.lock.is_mine() && !cache.is_some_and(|cache| cache.lock().is_mine());
        if at_rest && self.registry.keep_only(cache) {
            let granted = cache.map_or(0, |cache| cache.open().inner.granted);
            self.budget.reset(granted);
        }
    }
}

/// The destructor of the key: the thread is ending.
unsafe extern "C" fn at_thread_end(cache: *mut c_void) {
    if let Some(cache) = NonNull::new(cache.cast::<Cache>()) {
        super::heap::HEAP.retire_cache(cache);
    }
}
