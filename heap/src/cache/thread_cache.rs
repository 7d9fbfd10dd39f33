//! A thread's cache: its magazines, and what its slow path needs to know of them.

use super::countdown::{Counted, Drawn};
use super::magazine::{
    Door, GUARD, MAGAZINES, Magazine, STARTS, Start, TAGS_BY_SIZE, Tag, no_entries,
};
use crate::base::sync::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
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
    /// Requests of fewer bytes are served by [`super::machine::pop_sized`]; 0 unless the door is open
    /// and no drainer is at work. Written under the lock.
    pub below: AtomicUsize,
    /// By class index: what the profiler counts.
    pub counted: [Counted; CLASSES + 1],
    /// By what rate that was drawn, and what lies ahead of large blocks.
    pub drawn: Drawn,
    /// Held by the owner's slow path and by drainers; guards `inner` and the bounds of the
    /// magazines.
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
    /// Bytes of blocks that the magazines together may hold (their capacities), granted by the
    /// budget.
    pub granted: usize,
    /// Slow-path events so far; paces the shrinking of idle magazines.
    pub events: u32,
    /// The class that is looked at next for shrinking.
    pub hand: u8,
    /// Whether the fast path is shut off.
    pub door: Door,
    /// A drainer has offered what the magazines hold, and the door is the same since.
    pub is_offering: bool,
    /// How many more blocks the owner takes by its slow path while a drainer offers.
    pub patience: u8,
    /// Nothing was left to take when a drainer last came by.
    pub is_drained: bool,
    /// How many bytes after the start of its memory the cache begins.
    pub shift: u8,
    /// State of the random numbers that the profiler draws; 0 before the first.
    pub random: u64,
    /// What [`Opened::traces`] was when a round of decay last came by.
    pub seen: usize,
}

/// One magazine's true bounds and history.
pub struct Store {
    /// The array's first entry, past its guard; without an array [`no_entries`].
    pub base: usize,
    /// Address of the oldest entry: `base`, or above it after a drain.
    pub floor: usize,
    /// Entries the array has room for; 0 before the first use.
    pub room: u32,
    /// Entries the magazine may hold now.
    pub capacity: u32,
}

impl Store {
    /// No array, with a top that is at `base`.
    const fn none(base: usize) -> Store {
        Store {
            base,
            floor: base,
            room: 0,
            capacity: 0,
        }
    }

    /// Where the memory of the array begins, and how many entries it has room for; `None` without
    /// one.
    fn array(&self) -> Option<(NonNull<u8>, usize)> {
        let start = self.base - array_bytes(0);
        let array = NonNull::new(start as *mut u8).filter(|_| self.room != 0)?;
        Some((array, self.room as usize))
    }
}

/// Bytes of an array of `room` entries with its guard.
pub(crate) const fn array_bytes(room: usize) -> usize {
    (GUARD + room) * size_of::<usize>()
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

// SAFETY: cells are reached under `lock`; the magazines are atomics with the protocol of
// `magazine`.
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

/// Most bytes that a cache begins after the start of its memory: tops stand three words apart (see
/// `colour`).
pub const MOST_SHIFT: usize = size_of::<Magazine>() - size_of::<usize>();

const _: () = assert!(size_of::<Cache>() + MOST_SHIFT <= CACHE_BYTES);
// A load of this word must not look like one of a magazine's top (see `colour`).
const _: () =
    assert!(!(core::mem::offset_of!(Cache, below) % 4096).is_multiple_of(size_of::<Magazine>()));

impl Cache {
    /// A cache without capacity, `shift` bytes after the start of its memory.
    pub const fn new(shift: usize) -> Cache {
        let inner = Inner {
            stores: [const { Store::none(0) }; CLASSES + 1],
            arrays: [0; CLASSES / 64 + 1],
            granted: 0,
            events: 0,
            hand: 1,
            door: Door::Open,
            is_offering: false,
            patience: 0,
            is_drained: false,
            shift: shift as u8,
            random: 0,
            seen: 0,
        };
        Cache {
            magazines: [const { Magazine::closed() }; MAGAZINES],
            starts: STARTS,
            tags: TAGS_BY_SIZE,
            below: AtomicUsize::new(0),
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
        // SAFETY: the caller's promise; sentinels are never written, and no other thread has the
        // copy yet.
        let cache = unsafe {
            ptr::copy_nonoverlapping(&raw const EMPTY, place.as_ptr(), 1);
            &mut *place.as_ptr()
        };
        let inner = cache.inner.get_mut();
        inner.shift = shift as u8;
        for class in Class::all() {
            inner.stores[class.index()] = Store::none(no_entries());
            let magazine = &cache.magazines[class.index()];
            magazine.top.store(no_entries(), Ordering::Relaxed);
            magazine.bottom.store(no_entries(), Ordering::Relaxed);
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
        // SAFETY: tags are multiples of the stride and none is larger than LARGE, whose magazine is
        // the last.
        unsafe { &*self.magazines.as_ptr().byte_add(offset) }
    }

    /// What is counted of the class of `tag`.
    #[inline(always)]
    pub(super) fn counted_of(&self, tag: Tag) -> &Counted {
        let offset = tag.0 as usize * 8;
        debug_assert!(offset / size_of::<Counted>() <= CLASSES);
        debug_assert!(offset.is_multiple_of(size_of::<Counted>()));
        // SAFETY: tags of requests are those of classes, multiples of the stride.
        unsafe { &*self.counted.as_ptr().byte_add(offset) }
    }

    /// What tells where blocks of `tag` start.
    #[inline(always)]
    pub fn start(&self, tag: Tag) -> Start {
        let offset = tag.0 as usize * 4;
        debug_assert!(offset + size_of::<Start>() <= size_of_val(&self.starts));
        debug_assert!(offset.is_multiple_of(size_of::<Start>()));
        // SAFETY: as of `magazine`; a start is half as long.
        unsafe { *self.starts.as_ptr().byte_add(offset) }
    }

    /// In a fork's child: a drainer that had the cache in hand stayed in the parent.
    pub(super) fn unpin(&self) {
        // Writes only where it must: in a child a write costs a page.
        if self.pin.load(Ordering::Relaxed) != UNPINNED {
            self.pin.store(UNPINNED, Ordering::Relaxed);
        }
    }

    /// Whether the cache's lock is free now.
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

    /// In a fork's child, of a cache whose thread stayed in the parent, in the middle of a change:
    /// it has nothing to drain.
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

    /// Gives a magazine, whose entries are settled, an array of `room` entries, into which the
    /// entries are copied. Returns the old array and its room, if there was one. For the owner
    /// only. The fast path of a signal handler finds the magazine empty meanwhile, and full until
    /// it is [published](Opened::publish).
    ///
    /// # Safety
    /// - The array is the caller's, of [`array_bytes`], and has room for the entries.
    pub unsafe fn set_array(
        &mut self,
        class: Class,
        array: NonNull<u8>,
        room: usize,
    ) -> Option<(NonNull<u8>, usize)> {
        let filled = self.filled(class);
        debug_assert!(filled <= room);
        self.shut(class);
        // SAFETY: the caller's promise: the guard and the room.
        let base = unsafe {
            array.cast::<usize>().write_bytes(0, GUARD);
            array.cast::<usize>().add(GUARD)
        };
        self.inner.arrays[class.index() / 64] |= 1 << (class.index() % 64);
        let store = self.store(class);
        debug_assert_eq!(store.base, store.floor);
        let old = store.array();
        // SAFETY: the new array has room for the entries, which start at the old one's base.
        unsafe { ptr::copy_nonoverlapping(store.base as *const usize, base.as_ptr(), filled) };
        store.base = base.as_ptr().addr();
        store.floor = store.base;
        store.room = room as u32;
        self.set_filled(class, filled);
        old
    }

    /// The magazine of `class`.
    pub fn magazine(&self, class: Class) -> &Magazine {
        self.cache.magazine(Tag::of(class))
    }

    /// A number that changes when the owner allocates or frees, most likely: where its magazines
    /// stand, and how often it took the slow path.
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

    /// Whether the owner has not used the magazines since the last visit. Not a visit itself.
    pub fn is_unused(&self) -> bool {
        self.traces() == self.inner.seen
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

    /// What the profiler counts of `class`.
    pub fn counted(&self, class: Class) -> &Counted {
        &self.cache.counted[class.index()]
    }

    /// Moves the entries down to the array's start, and puts back a bottom that a drainer has
    /// offered. For the owner only: it writes `top`.
    pub fn settle(&mut self, class: Class) {
        let filled = self.filled(class);
        let store = self.store(class);
        let (from, to) = (store.floor, store.base);
        if from != to {
            store.floor = to;
            // SAFETY: both ranges lie in the array; the owner is in its slow path and drainers are
            // locked out.
            unsafe { ptr::copy(from as *const usize, to as *mut usize, filled) };
            self.magazine(class)
                .top
                .store(to + filled * 8, Ordering::Relaxed);
        }
        self.publish(class);
    }

    /// Takes the array of an empty magazine away, and how many entries it has room for. For the
    /// owner only.
    pub fn take_array(&mut self, class: Class) -> Option<(NonNull<u8>, usize)> {
        debug_assert_eq!(self.filled(class), 0);
        self.inner.arrays[class.index() / 64] &= !(1 << (class.index() % 64));
        let store = core::mem::replace(self.store(class), Store::none(no_entries()));
        // A handler that frees finds the magazine full from here on, one that allocates finds it
        // empty.
        self.magazine(class).limit.store(0, Ordering::Relaxed);
        self.magazine(class)
            .top
            .store(no_entries(), Ordering::Relaxed);
        self.publish(class);
        store.array()
    }

    /// The block that has `above` newer ones over it, whatever the door says. For the owner only.
    fn below(&mut self, class: Class, above: usize) -> Option<*mut u8> {
        if self.filled(class) <= above {
            return None;
        }
        let top = self.magazine(class).top.load(Ordering::Relaxed);
        // SAFETY: an entry between floor and top.
        Some(unsafe { *((top - 8 * (above + 1)) as *const *mut u8) })
    }

    /// Whether a block is one of the two newest ones: freed once more, it was freed twice. For the
    /// owner only.
    pub fn is_newest(&mut self, class: Class, block: *mut u8) -> bool {
        (0..2).any(|above| self.below(class, above) == Some(block))
    }

    /// The newest block if it lies again among the two below it: it was freed twice. For the owner
    /// only.
    pub fn repeated(&mut self, class: Class) -> Option<*mut u8> {
        let newest = self.below(class, 0)?;
        let is_below = (1..3).any(|above| self.below(class, above) == Some(newest));
        is_below.then_some(newest)
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
