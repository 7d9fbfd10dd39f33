//! A thread's cache: its magazines, and what its slow path needs to know about them.

use super::bias::{Bias, Turn};
use super::bounds::{Access, Bounds, FastPath, Held};
use super::countdown::{Countdown, Counts, Drawn};
use super::magazine::{MAGAZINES, Magazine, STARTS, Start, TAGS_BY_SIZE, Tag, no_entries};
use super::measures::{SECRETS, next_random};
use super::waiting::Place;
use crate::base::sync::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering, UnsafeCell};
use crate::os::lock::{Guard, Lock, Rank};
use crate::os::thread;
use crate::slab::class::{CLASSES, Class, TABLE_BYTES};
use core::ptr::{self, NonNull};

/// A thread's cache. Owned by its thread; the registry and drainers reach it under locks.
#[repr(C)]
pub struct Cache {
    /// By tag. The fast path touches these three and, to free, the arena's tag table; nothing else.
    pub(super) magazines: [Magazine; MAGAZINES],
    /// By tag. The same in every cache: here it costs no instruction to find.
    pub starts: [Start; MAGAZINES],
    /// By size. The same in every cache, as above.
    pub tags: [Tag; TABLE_BYTES + 1],
    /// Requests of fewer bytes are served by [`super::machine::pop_sized`]; 0 unless the fast path
    /// is on and no drainer is at work. Written under the lock. On AArch64 it stands elsewhere.
    #[cfg(not(target_arch = "aarch64"))]
    pub(super) below: AtomicUsize,
    /// By class index.
    pub(super) countdowns: [Countdown; CLASSES + 1],
    /// The rate of these draws, and the countdown for large blocks.
    pub drawn: Drawn,
    /// Held by the owner's slow path and by drainers; guards `inner` and the bounds of the
    /// magazines.
    lock: Lock,
    /// guarded by: lock, or a turn of the owner
    inner: UnsafeCell<Inner>,
    /// The registry's list; guarded by the registry's lock.
    pub next: AtomicPtr<Cache>,
    /// The registry's list; guarded by the registry's lock.
    pub previous: AtomicPtr<Cache>,
    /// The thread that is about to put the cache into the registry's list, or to take it out, and
    /// whose slot need not show it; 0: none. While there is one, nothing is granted to the cache
    /// under its lock.
    moved_by: AtomicUsize,
    /// [`UNPINNED`], [`PINNED`] or [`ORPHANED`]; guarded by the registry's lock.
    pub pin: AtomicU8,
    /// The owner is to get a guarded block soon (see `arming`). Written under the lock.
    pub(super) armed: AtomicBool,
    /// Lets the owner reach `inner` without the lock (hardened mode).
    pub(super) bias: Bias,
    /// Exact counters of the counting mode, written by the owner only.
    pub counts: Counts,
}

/// What the slow path knows.
pub(super) struct Inner {
    /// By class index; 0 unused.
    pub bounds: [Bounds; CLASSES + 1],
    /// The classes that have an array, by index.
    arrays: [u64; CLASSES / 64 + 1],
    /// Bytes of blocks that the magazines together may hold (their capacities), granted by the
    /// budget.
    pub granted: usize,
    /// Slow-path events so far; paces the shrinking of idle magazines.
    pub events: u32,
    /// The class that is looked at next for shrinking.
    pub hand: u8,
    /// What the owner's fast path may do.
    pub access: Access,
    /// Nothing was left to take when a drainer last came by.
    pub is_drained: bool,
    /// How many bytes after the start of its memory the cache begins.
    pub shift: u8,
    /// State of the random numbers: of hardened mode's choices, or of what the profiler draws; 0
    /// before the first.
    pub random: u64,
    /// The freed blocks that the owner holds back.
    pub waiting: Place,
    /// What [`Opened::traces`] was when a round of decay last came by.
    pub seen: usize,
}

// SAFETY: cells are reached under `lock`; the magazines are atomics with the protocol of
// `magazine`.
unsafe impl Sync for Cache {}

/// What a thread's slot holds before its first slow call: always empty, always full, never written.
pub static EMPTY: Cache = Cache::new(0);
/// What a thread's slot holds once its cache is gone (thread end, or no memory for one): no class
/// has an array.
pub static GONE: Cache = Cache::new(0);

/// What [`Cache::pin`] says: no drainer has the cache in hand;
pub const UNPINNED: u8 = 0;
/// one has;
pub const PINNED: u8 = 1;
/// one has, and the thread has ended: the drainer gives the memory back.
pub const ORPHANED: u8 = 2;

/// What [`Cache::moved_by`] says of a cache that stays where it is.
const NO_THREAD: usize = 0;

/// Memory for a cache, in bytes.
pub const CACHE_BYTES: usize = 8 << 10;

/// Most bytes that a cache begins after the start of its memory: tops are three words apart (see
/// `colour`).
pub const MOST_SHIFT: usize = size_of::<Magazine>() - size_of::<usize>();

const _: () = assert!(size_of::<Cache>() + MOST_SHIFT <= CACHE_BYTES);
// So that a tag finds them without a shift.
const _: () = assert!(size_of::<Bounds>() == size_of::<Magazine>());
#[cfg(not(target_arch = "aarch64"))]
// The address of this word must not collide with that of a magazine's top (see `colour`).
const _: () =
    assert!(!(core::mem::offset_of!(Cache, below) % 4096).is_multiple_of(size_of::<Magazine>()));

impl Cache {
    /// A cache without capacity, `shift` bytes after the start of its memory.
    pub const fn new(shift: usize) -> Cache {
        let inner = Inner {
            bounds: [const { Bounds::none(0) }; CLASSES + 1],
            arrays: [0; CLASSES / 64 + 1],
            granted: 0,
            events: 0,
            hand: 1,
            access: Access::on(),
            is_drained: false,
            shift: shift as u8,
            random: 0,
            waiting: None,
            seen: 0,
        };
        Cache {
            magazines: [const { Magazine::closed() }; MAGAZINES],
            starts: STARTS,
            tags: TAGS_BY_SIZE,
            #[cfg(not(target_arch = "aarch64"))]
            below: AtomicUsize::new(0),
            countdowns: [const { Countdown::off() }; CLASSES + 1],
            drawn: Drawn::nothing(),
            lock: Lock::new(Rank::Apart),
            inner: UnsafeCell::new(inner),
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            moved_by: AtomicUsize::new(NO_THREAD),
            pin: AtomicU8::new(UNPINNED),
            armed: AtomicBool::new(false),
            bias: Bias::closed(),
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
        #[cfg(target_arch = "aarch64")]
        cache
            .no_class()
            .bottom
            .store(cache.tags.as_ptr().addr(), Ordering::Relaxed);
        let inner = cache.inner.get_mut();
        inner.shift = shift as u8;
        for class in Class::all() {
            inner.bounds[class.index()] = Bounds::none(no_entries());
            let magazine = &cache.magazines[class.index()];
            magazine.top.store(no_entries(), Ordering::Relaxed);
            magazine.bottom.store(no_entries(), Ordering::Relaxed);
        }
    }

    /// The bound of requests that [`super::machine::pop_sized`] serves.
    #[cfg(not(target_arch = "aarch64"))]
    #[inline(always)]
    pub(super) fn below(&self) -> &AtomicUsize {
        &self.below
    }

    /// The same, in the top of the magazine of no class, the cache's first word: an instruction
    /// that loads and acquires has no room for an offset.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn below(&self) -> &AtomicUsize {
        &self.no_class().top
    }

    /// The magazine of no class, on whose words AArch64's fast path finds its bound and, as the
    /// bottom, the address of the tags. It stays empty and full: a bound is below any address, and
    /// the limit is 0.
    #[cfg(target_arch = "aarch64")]
    fn no_class(&self) -> &Magazine {
        &self.magazines[0]
    }

    /// Adapts a new cache to the classes in force, if these are not the built-in ones.
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

    /// The countdown of `class`.
    #[inline]
    pub fn countdown(&self, class: Class) -> &Countdown {
        &self.countdowns[class.index()]
    }

    /// The magazine of `tag`.
    #[inline(always)]
    pub fn magazine(&self, tag: Tag) -> &Magazine {
        let offset = tag.byte() as usize * 8;
        debug_assert!(offset + size_of::<Magazine>() <= MAGAZINES * size_of::<Magazine>());
        debug_assert!(offset.is_multiple_of(size_of::<Magazine>()));
        // SAFETY: tags are multiples of the stride and none is larger than LARGE, whose magazine is
        // the last.
        unsafe { &*self.magazines.as_ptr().byte_add(offset) }
    }

    /// The countdown of the class of `tag`.
    ///
    /// # Safety
    /// - `tag` is a class's.
    #[inline(always)]
    pub(super) unsafe fn countdown_of(&self, tag: Tag) -> &Countdown {
        let offset = tag.byte() as usize * 8;
        debug_assert!(offset / size_of::<Countdown>() <= CLASSES);
        debug_assert!(offset.is_multiple_of(size_of::<Countdown>()));
        // SAFETY: the caller's promise: one of the first tags, which are multiples of the stride.
        unsafe { &*self.countdowns.as_ptr().byte_add(offset) }
    }

    /// What tells where blocks of `tag` start.
    #[inline(always)]
    pub fn start(&self, tag: Tag) -> Start {
        let offset = tag.byte() as usize * 4;
        debug_assert!(offset + size_of::<Start>() <= size_of_val(&self.starts));
        debug_assert!(offset.is_multiple_of(size_of::<Start>()));
        // SAFETY: as of `magazine`; a start is half as long.
        unsafe { *self.starts.as_ptr().byte_add(offset) }
    }

    /// Whether the owner is to get a guarded block soon.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Whether a drainer has the cache in hand.
    pub(super) fn is_pinned(&self) -> bool {
        self.pin.load(Ordering::Relaxed) != UNPINNED
    }

    /// In a fork's child: a drainer that had the cache in hand stayed in the parent.
    pub(super) fn unpin(&self) {
        // Writes only where it must: in a child a write costs a page.
        if self.is_pinned() {
            self.pin.store(UNPINNED, Ordering::Relaxed);
        }
    }

    /// The calling thread is about to put the cache into the list, or to take it out. A handler of
    /// signals that interrupts it, and forks, finds the cache by this.
    pub(super) fn begin_move(&self) {
        // Release: such a handler sees what the thread did before.
        self.moved_by.store(thread::own_name(), Ordering::Release);
    }

    /// The cache is in the list, and its thread's slot shows it.
    pub(super) fn end_move(&self) {
        self.moved_by.store(NO_THREAD, Ordering::Relaxed);
    }

    /// In a fork's child: a thread that was moving the cache, and is not the caller, stayed in the
    /// parent. A new thread may have its name.
    pub(super) fn forget_mover(&self) {
        // Writes only where it must: in a child a write costs a page.
        let mover = self.moved_by.load(Ordering::Relaxed);
        if mover != NO_THREAD && mover != thread::own_name() {
            self.end_move();
        }
    }

    /// Whether the calling thread is moving the cache.
    pub(super) fn is_moved_by_caller(&self) -> bool {
        self.moved_by.load(Ordering::Relaxed) == thread::own_name()
    }

    /// The cache's lock, for a fork's child.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Takes the cache's lock and everything it guards. For the owner, and for caches that have no
    /// owner any more.
    pub fn open(&self) -> Opened<'_> {
        debug_assert!(!self.bias.is_at_work());
        self.opened(self.lock.lock())
    }

    /// The cache, whose lock is held, and whose owner has no turn.
    pub(super) fn opened<'a>(&'a self, guard: Guard<'a>) -> Opened<'a> {
        // SAFETY: the lock is held until the guard in the same value is dropped, and the owner has
        // no turn.
        let inner = unsafe { &mut *self.inner.get() };
        Opened {
            cache: self,
            inner,
            _guard: guard,
        }
    }

    /// Whether the owner may have a turn, most likely.
    #[inline(always)]
    pub(crate) fn has_turns(&self) -> bool {
        self.bias.is_ready()
    }

    /// For the owner: whether it is in a handler of signals that interrupted its turn.
    #[inline(always)]
    pub(crate) fn is_at_work(&self) -> bool {
        self.bias.is_at_work()
    }

    /// A turn of the owner at its magazines. `None` unless the path is [`FastPath::Biased`] and the
    /// lock is free, and in a handler of signals that interrupted a turn.
    #[inline(always)]
    pub(crate) fn begin_turn(&self) -> Option<AtWork<'_>> {
        let turn = self.bias.begin(|| self.lock.is_taken())?;
        // SAFETY: others wait until the turn in the same value is dropped.
        let inner = unsafe { &mut *self.inner.get() };
        Some(AtWork {
            cache: self,
            inner,
            _turn: turn,
        })
    }
}

/// A cache whose owner has a turn.
pub(crate) struct AtWork<'a> {
    cache: &'a Cache,
    pub(super) inner: &'a mut Inner,
    _turn: Turn<'a>,
}

impl AtWork<'_> {
    /// The magazine of the class of `tag`.
    ///
    /// # Safety
    /// - `tag` is a class's.
    #[inline(always)]
    pub(super) unsafe fn magazine(&mut self, tag: Tag) -> Held<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.magazine_of(self.cache, tag) }
    }

    /// A random number.
    #[inline(always)]
    pub(super) fn random(&mut self) -> u64 {
        next_random(&mut self.inner.random)
    }
}

impl Inner {
    /// [`Inner::magazine`] of the class of `tag`.
    ///
    /// # Safety
    /// - `tag` is a class's.
    #[inline(always)]
    unsafe fn magazine_of<'a>(&'a mut self, cache: &'a Cache, tag: Tag) -> Held<'a> {
        debug_assert!(tag.class().is_some());
        let offset = tag.byte() as usize * 8;
        let path = self.access.path;
        // SAFETY: the caller's promise: bounds are as long as magazines, and so are countdowns.
        // They are of this class, and what excludes others lasts as long as the borrow.
        unsafe {
            let bounds = &mut *self.bounds.as_mut_ptr().byte_add(offset);
            let countdown = cache.countdown_of(tag);
            Held::new(cache.magazine(tag), &countdown.bottom, bounds, path)
        }
    }

    /// The magazine of `class` of `cache`, whose lock is held, or whose owner has a turn.
    #[inline(always)]
    fn magazine<'a>(&'a mut self, cache: &'a Cache, class: Class) -> Held<'a> {
        let bounds = &mut self.bounds[class.index()];
        let sampling = &cache.countdowns[class.index()].bottom;
        let magazine = cache.magazine(Tag::of(class));
        // SAFETY: the bounds of this class; what excludes others lasts as long as the borrow.
        unsafe { Held::new(magazine, sampling, bounds, self.access.path) }
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
        self.cache.bias.set_open(false);
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
        self.inner.magazine(self.cache, class)
    }

    /// [`Opened::magazine`] of the class of `tag`.
    ///
    /// # Safety
    /// - `tag` is a class's.
    #[inline(always)]
    pub(super) unsafe fn magazine_of(&mut self, tag: Tag) -> Held<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.magazine_of(self.cache, tag) }
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

    /// Says what the owner may do by its fast path.
    pub fn set_path(&mut self, path: FastPath) {
        self.inner.access.path = path;
        self.cache.bias.set_open(path == FastPath::Biased);
        if path == FastPath::Biased {
            self.inner.random = SECRETS.next();
        }
        Class::all().for_each(|class| self.magazine(class).publish());
        self.set_offering(false);
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
        // SAFETY: the array has room for a guard and the other entries, and outlives the cache's
        // use.
        unsafe { open.set_array(class, NonNull::from(array).cast(), COUNT - GUARD) };
        // SAFETY: the array holds more.
        unsafe { open.magazine(class).set_filled(filled) };
        open.set_path(FastPath::On);
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
