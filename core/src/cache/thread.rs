//! A thread's cache: its magazines, and what its slow path needs to know of them.

use super::colour;
use super::counted::{Counted, Drawn};
use super::magazine::{MAGAZINES, Magazine, STARTS, Start, TAGS_BY_SIZE, Tag};
use crate::base::sync::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use crate::base::units::SLICE_BYTES;
use crate::os::lock::{Guard, Lock, Rank};
use crate::slab::class::{CLASSES, Class, TABLE_BYTES};
use core::ptr::{self, NonNull};

/// A thread's cache. Owned by its thread; the registry and drainers reach it under locks.
#[repr(C)]
pub struct Cache {
    /// By tag. The fast path touches these three and, to free, the arena's tag table; nothing else.
    magazines: [Magazine; MAGAZINES],
    /// By tag. The same in every cache: here it costs no instruction to find.
    pub starts: [Start; MAGAZINES],
    /// By size. Likewise.
    pub tags: [Tag; TABLE_BYTES + 1],
    /// By class index: what the profiler counts.
    pub counted: [Counted; CLASSES + 1],
    /// By what rate that was drawn, and what lies ahead of large blocks.
    pub drawn: Drawn,
    /// Held by the owner's slow path and by drainers; guards `inner` and the bounds of the magazines.
    lock: Lock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    /// The registry's list; guarded by the registry's lock.
    pub next: AtomicPtr<Cache>,
    /// The registry's list; guarded by the registry's lock.
    pub previous: AtomicPtr<Cache>,
    /// [`UNPINNED`], [`PINNED`] or [`ORPHANED`]; guarded by the registry's lock.
    pub pin: AtomicU8,
    /// Exact counters of the counting mode, written by the owner only.
    pub counts: Counts,
}

/// What the slow path knows.
pub struct Inner {
    /// By class index; 0 unused.
    pub stores: [Store; CLASSES + 1],
    /// The classes that have an array, by index.
    arrays: [u64; CLASSES / 64 + 1],
    /// Bytes of blocks that the magazines together may hold (their capacities), granted by the budget.
    pub granted: usize,
    /// Slow-path events so far; paces the shrinking of idle magazines.
    pub events: u32,
    /// The class that is looked at next for shrinking.
    pub hand: u8,
    /// Whether the fast path is shut off.
    pub door: Door,
    /// A drainer has offered what the magazines hold, and the door is the same since.
    pub is_offering: bool,
    /// Nothing was left to take when a drainer last came by.
    pub is_drained: bool,
    /// How many bytes after the start of its memory the cache begins.
    pub shift: u8,
    /// State of the random numbers that the profiler draws; 0 before the first.
    pub random: u64,
    /// What [`Opened::traces`] was when a round of decay last came by.
    pub seen: usize,
}

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

/// One magazine's true bounds and history.
pub struct Store {
    /// The array, 0 before the first use.
    pub base: usize,
    /// Address of the oldest entry: `base`, or above it after a drain.
    pub floor: usize,
    /// Entries the array has room for.
    pub room: u32,
    /// Entries the magazine may hold now.
    pub capacity: u32,
}

impl Store {
    /// No array.
    const NONE: Store = Store {
        base: 0,
        floor: 0,
        room: 0,
        capacity: 0,
    };
}

/// Calls as the counting mode counts them.
pub struct Counts {
    /// Blocks handed out.
    pub allocations: AtomicU64,
    /// Blocks taken back.
    pub frees: AtomicU64,
    /// Bytes asked for, summed over all allocations.
    pub requested: AtomicU64,
}

impl Counts {
    /// All zero.
    pub const fn new() -> Counts {
        Counts {
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            requested: AtomicU64::new(0),
        }
    }

    /// Allocations, frees, requested bytes.
    pub fn all(&self) -> [u64; 3] {
        [&self.allocations, &self.frees, &self.requested].map(|count| count.load(Ordering::Relaxed))
    }

    /// Adds `by` to a counter that only this thread writes.
    pub fn bump(counter: &AtomicU64, by: u64) {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
        counter.store(sum, Ordering::Relaxed);
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::new()
    }
}

// SAFETY: cells are reached under `lock`; the magazines are atomics with the protocol of `magazine`.
unsafe impl Sync for Cache {}

/// What a thread's slot holds before its first slow call: always empty, always full, never written.
pub static EMPTY: Cache = Cache::new(0);
/// What a thread's slot holds once its cache is gone (thread end, or no memory for one): likewise.
pub static GONE: Cache = Cache::new(0);

/// What [`Cache::pin`] says: no drainer has the cache in hand;
pub const UNPINNED: u8 = 0;
/// one has;
pub const PINNED: u8 = 1;
/// one has, and the thread has ended: the drainer gives the memory back.
pub const ORPHANED: u8 = 2;

/// Memory for a cache, in bytes.
pub const CACHE_BYTES: usize = 8 << 10;

const _: () = assert!(size_of::<Cache>() + colour::ROOM <= CACHE_BYTES);

impl Cache {
    /// A cache without capacity, `shift` bytes after the start of its memory.
    pub const fn new(shift: usize) -> Cache {
        let inner = Inner {
            stores: [Store::NONE; CLASSES + 1],
            arrays: [0; CLASSES / 64 + 1],
            granted: 0,
            events: 0,
            hand: 1,
            door: Door::Open,
            is_offering: false,
            is_drained: false,
            shift: shift as u8,
            random: 0,
            seen: 0,
        };
        Cache {
            magazines: [const { Magazine::closed() }; MAGAZINES],
            starts: STARTS,
            tags: TAGS_BY_SIZE,
            counted: [const { Counted::off() }; CLASSES + 1],
            drawn: Drawn::nothing(),
            lock: Lock::new(Rank::Apart),
            inner: UnsafeCell::new(inner),
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            pin: AtomicU8::new(UNPINNED),
            counts: Counts::new(),
        }
    }

    /// Puts a cache without capacity at `place`, `shift` bytes after the start of its memory. It is
    /// copied from a static: one made by value would pass through the caller's stack, and that may
    /// be a coroutine's.
    ///
    /// # Safety
    /// - `place` is aligned, holds a cache's bytes, and is the caller's.
    pub unsafe fn put(place: NonNull<Cache>, shift: usize) {
        debug_assert!(place.is_aligned());
        // SAFETY: the caller's promise; sentinels are never written, and nobody else has the copy
        // yet.
        unsafe {
            ptr::copy_nonoverlapping(&raw const EMPTY, place.as_ptr(), 1);
            (*place.as_ptr()).inner.get_mut().shift = shift as u8;
        }
    }

    /// Makes a new cache one for the classes in force, if these are not those built in.
    pub fn follow_classes(&mut self) {
        for class in Class::all() {
            let start = &mut self.starts[class.index()];
            (start.test, start.limit) = class.start_test();
            start.bytes = class.bytes() as u32;
        }
        for (size, tag) in self.tags.iter_mut().enumerate() {
            *tag = Tag::of(Class::serving(size));
        }
    }

    /// Whether this is one of the two sentinels, which hold nothing and are never written.
    #[inline]
    pub fn is_sentinel(&self) -> bool {
        ptr::eq(self, &EMPTY) || ptr::eq(self, &GONE)
    }

    /// The magazine of `tag`.
    #[inline(always)]
    pub fn magazine(&self, tag: Tag) -> &Magazine {
        let offset = tag.0 as usize * 8;
        debug_assert!(offset + size_of::<Magazine>() <= MAGAZINES * size_of::<Magazine>());
        debug_assert!(offset.is_multiple_of(size_of::<Magazine>()));
        // SAFETY: tags are multiples of the stride and none is larger than LARGE, whose magazine is the last.
        unsafe { &*self.magazines.as_ptr().byte_add(offset) }
    }

    /// What tells where blocks of `tag` start.
    #[inline(always)]
    pub fn start(&self, tag: Tag) -> Start {
        self.starts[tag.0 as usize * 8 / size_of::<Magazine>()]
    }

    /// In a fork's child: a drainer that had the cache in hand stayed in the parent.
    pub(super) fn unpin(&self) {
        // Writes only where it must: in a child a write costs a page.
        if self.pin.load(Ordering::Relaxed) != UNPINNED {
            self.pin.store(UNPINNED, Ordering::Relaxed);
        }
    }

    /// Whether nobody holds the cache's lock now.
    pub fn is_quiet(&self) -> bool {
        self.is_sentinel() || self.lock.try_lock().is_some()
    }

    /// The cache's lock, for a fork's child.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Takes the cache's lock and everything it guards.
    pub fn open(&self) -> Opened<'_> {
        let guard = self.lock.lock();
        // SAFETY: the lock is held until the guard in the same value is dropped.
        let inner = unsafe { &mut *self.inner.get() };
        Opened {
            cache: self,
            inner,
            _guard: guard,
        }
    }
}

/// A cache whose lock is held.
pub struct Opened<'a> {
    /// The cache.
    pub cache: &'a Cache,
    /// What the lock guards.
    pub inner: &'a mut Inner,
    _guard: Guard<'a>,
}

impl Opened<'_> {
    /// The store of `class`.
    pub fn store(&mut self, class: Class) -> &mut Store {
        &mut self.inner.stores[class.index()]
    }

    /// In a fork's child, of a cache whose thread stayed in the parent, in the middle of a change: it has nothing to drain.
    pub(super) fn abandon(&mut self) {
        self.inner.is_offering = false;
        self.inner.is_drained = true;
        self.inner.arrays = Default::default();
    }

    /// The classes whose magazines have an array.
    pub fn classes(&self) -> impl Iterator<Item = Class> + use<> {
        let words = self.inner.arrays.into_iter().enumerate();
        words.flat_map(|(word, mut bits)| {
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(Class::new(word * 64 + bit))
            })
        })
    }

    /// Gives a magazine, whose entries are settled, an array of `room` entries, into which the entries are copied. Returns the
    /// old array and its room, if there was one. For the owner only. The fast path, a signal handler's, finds
    /// the magazine empty and full until it is [published](Opened::publish).
    ///
    /// # Safety
    /// - The array is the caller's, and has room for the entries.
    pub unsafe fn set_array(
        &mut self,
        class: Class,
        array: NonNull<u8>,
        room: usize,
    ) -> Option<(NonNull<u8>, usize)> {
        let filled = self.filled(class);
        debug_assert!(filled <= room);
        self.shut(class);
        self.inner.arrays[class.index() / 64] |= 1 << (class.index() % 64);
        let store = self.store(class);
        debug_assert_eq!(store.base, store.floor);
        let (old, old_room) = (store.base, store.room as usize);
        // SAFETY: the new array has room for the entries, which start at the old one's base.
        unsafe { ptr::copy_nonoverlapping(old as *const usize, array.as_ptr().cast(), filled) };
        store.base = array.as_ptr().addr();
        store.floor = store.base;
        store.room = room as u32;
        self.set_filled(class, filled);
        Some((NonNull::new(old as *mut u8)?, old_room))
    }

    /// The magazine of `class`.
    pub fn magazine(&self, class: Class) -> &Magazine {
        self.cache.magazine(Tag::of(class))
    }

    /// A number that changes when the owner allocates or frees, most likely: where its magazines stand, and how often it
    /// took the slow path.
    pub fn traces(&self) -> usize {
        let tops = self
            .classes()
            .map(|class| self.magazine(class).top.load(Ordering::Relaxed));
        let mixed = tops.fold(0usize, |sum, top| sum.rotate_left(5) ^ top);
        mixed.wrapping_add(self.inner.events as usize)
    }

    /// A drainer comes by. Whether the owner has not used the magazines since the last visit.
    pub fn is_idle(&mut self) -> bool {
        let traces = self.traces();
        let idle = core::mem::replace(&mut self.inner.seen, traces) == traces;
        self.inner.is_drained &= idle;
        idle
    }

    /// The class that is looked at for shrinking now; the next time it is the one after.
    pub fn next_class(&mut self) -> Class {
        let class = Class::new(self.inner.hand as usize);
        self.inner.hand = match class {
            Class::LAST => 1,
            _ => self.inner.hand + 1,
        };
        class
    }

    /// Free blocks in the magazine of `class`.
    pub fn filled(&mut self, class: Class) -> usize {
        let top = self.magazine(class).top.load(Ordering::Acquire);
        (top - self.store(class).floor) / 8
    }

    /// Says that the magazine, settled, holds `filled` entries. For the owner only.
    pub fn set_filled(&mut self, class: Class, filled: usize) {
        let top = self.store(class).base + filled * 8;
        self.magazine(class).top.store(top, Ordering::Release);
    }

    /// Lets the fast path see the bounds of `class`, unless the door is closed.
    pub fn publish(&mut self, class: Class) {
        let door = self.inner.door;
        let store = self.store(class);
        // `free` reads the word before an empty array (see `Magazine`).
        debug_assert!(store.base == 0 || !store.base.is_multiple_of(SLICE_BYTES));
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

    /// Lets the fast path take nothing of `class`, nor add to it.
    fn shut(&mut self, class: Class) {
        let bottoms = [&self.magazine(class).bottom, &self.counted(class).bottom];
        let closed = |bottom: &AtomicUsize| bottom.store(usize::MAX, Ordering::Relaxed);
        bottoms.into_iter().for_each(closed);
        self.magazine(class).limit.store(0, Ordering::Relaxed);
    }

    /// What the profiler counts of `class`.
    pub fn counted(&self, class: Class) -> &Counted {
        &self.cache.counted[class.index()]
    }

    /// Says whether the fast path may be used.
    pub fn set_door(&mut self, door: Door) {
        self.inner.door = door;
        self.inner.is_offering = false;
        Class::all().for_each(|class| self.publish(class));
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

    /// Moves the entries down to the array's start, and puts back a bottom that a drainer has offered. For the owner only: it
    /// writes `top`.
    pub fn settle(&mut self, class: Class) {
        let filled = self.filled(class);
        let store = self.store(class);
        let (from, to) = (store.floor, store.base);
        if from != to {
            store.floor = to;
            // SAFETY: both ranges lie in the array; the owner is in its slow path and drainers are locked out.
            unsafe { ptr::copy(from as *const usize, to as *mut usize, filled) };
            self.magazine(class)
                .top
                .store(to + filled * 8, Ordering::Relaxed);
        }
        self.publish(class);
    }

    /// Takes the array of an empty magazine away, and how many entries it has room for. For the owner only.
    pub fn take_array(&mut self, class: Class) -> Option<(NonNull<u8>, usize)> {
        debug_assert_eq!(self.filled(class), 0);
        self.inner.arrays[class.index() / 64] &= !(1 << (class.index() % 64));
        let store = core::mem::replace(self.store(class), Store::NONE);
        // A handler that frees finds the magazine full from here on, one that allocates finds it empty.
        self.magazine(class).limit.store(0, Ordering::Relaxed);
        self.magazine(class).top.store(0, Ordering::Relaxed);
        self.publish(class);
        let array = NonNull::new(store.base as *mut u8)?;
        Some((array, store.room as usize))
    }

    /// The newest block whatever the door says. For the owner only.
    pub fn newest(&mut self, class: Class) -> Option<*mut u8> {
        if self.filled(class) == 0 {
            return None;
        }
        // SAFETY: there is an entry, so there is an array.
        Some(unsafe { self.magazine(class).below_top() })
    }

    /// Takes the newest block whatever the door says. For the owner only.
    pub fn pop(&mut self, class: Class) -> Option<*mut u8> {
        if self.filled(class) == 0 {
            return None;
        }
        let top = self.magazine(class).top.load(Ordering::Relaxed) - 8;
        self.magazine(class).top.store(top, Ordering::Relaxed);
        // SAFETY: the entry lies between floor and top.
        Some(unsafe { *(top as *const *mut u8) })
    }

    /// Adds a block whatever the door says; false if the magazine is full. For the owner only.
    pub fn push(&mut self, class: Class, block: *mut u8) -> bool {
        let top = self.magazine(class).top.load(Ordering::Relaxed);
        let store = self.store(class);
        if top >= store.base + store.capacity as usize * 8 {
            return false;
        }
        // SAFETY: below the capacity the array has room.
        unsafe { *(top as *mut *mut u8) = block };
        self.magazine(class).top.store(top + 8, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal handler may allocate between the two.
    #[test]
    fn a_new_array_is_not_seen_before_it_is_published() {
        let (cache, class) = (Cache::new(0), Class::of_size(64));
        let mut array = [7usize; 16];
        let mut open = cache.open();
        let start = NonNull::from(&mut array[1]).cast();
        // SAFETY: the array has room for fifteen entries, of which there are none, and outlives the cache's use.
        unsafe { open.set_array(class, start, 15) };
        let magazine = cache.magazine(Tag::of(class));
        assert_eq!(magazine.pop(), None);
        assert!(magazine.top.load(Ordering::Relaxed) >= magazine.limit.load(Ordering::Relaxed));
        open.publish(class);
        assert_eq!(magazine.pop(), None);
    }
}
