//! A thread's cache: its magazines, what its slow path needs to know about them, and, in hardened
//! mode, the thread's freed blocks on their way to quarantine.
//!
//! Blocks wait in the lines of the quarantine, each of which has a lock. A thread brings its freed
//! blocks to its line [`MOST`] at a time, so that it seldom takes the lock. In return, the oldest
//! blocks of the line go into the thread's magazines.

use super::bounds::{Access, Bounds};
use super::countdown::{Countdown, Counts, Drawn};
use super::magazine::{MAGAZINES, Magazine, STARTS, Start, TAGS_BY_SIZE, Tag, no_entries};
use crate::base::sync::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicUsize, Ordering, UnsafeCell,
};
use crate::os::lock::{Lock, Rank};
use crate::os::{process, thread};
use crate::slab::class::{CLASSES, Class, Starts, TABLE_BYTES};
use core::mem::MaybeUninit;
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
    /// The thread's [`thread::lasting_id`]; 0 while the cache is new. Written while the cache is
    /// moved, and in a fork's child. The field fills a gap after the tags.
    pub(super) owner: AtomicI32,
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
    pub(super) lock: Lock,
    /// guarded by: lock
    pub(super) inner: UnsafeCell<Inner>,
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
    /// The path is [`FastPath::Hardened`](super::bounds::FastPath::Hardened). Written under the
    /// lock.
    pub(super) hardened: AtomicBool,
    /// Exact counters of the counting mode, written by the owner only.
    pub counts: Counts,
}

/// What the slow path knows.
pub(super) struct Inner {
    /// By class index; 0 unused.
    pub bounds: [Bounds; CLASSES + 1],
    /// The classes that have an array, by index.
    pub arrays: [u64; CLASSES / 64 + 1],
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
    /// What [`super::opened::Opened::traces`] was when a round of decay last came by.
    pub seen: usize,
}

// SAFETY: cells are reached under `lock`; the magazines are atomics with the protocol of
// `magazine`.
unsafe impl Sync for Cache {}

/// What a thread's slot holds before its first slow call: always empty, always full, never written.
pub static EMPTY: Cache = Cache::new(0);
/// What a thread's slot holds once its cache is gone (thread end, or no memory for one). Filled at
/// its first use with a copy of [`EMPTY`], so that it takes no bytes in the file.
static GONE: Gone = Gone(UnsafeCell::new(MaybeUninit::zeroed()));

struct Gone(UnsafeCell<MaybeUninit<Cache>>);

// SAFETY: filled under the registry's lock before the first reference to it, and never written
// afterwards.
unsafe impl Sync for Gone {}

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
/// `entry`).
pub const MOST_SHIFT: usize = size_of::<Magazine>() - size_of::<usize>();

const _: () = assert!(size_of::<Cache>() + MOST_SHIFT <= CACHE_BYTES);
// So that a tag finds them without a shift.
const _: () = assert!(size_of::<Bounds>() == size_of::<Magazine>());
#[cfg(not(target_arch = "aarch64"))]
// The address of this word must not collide with that of a magazine's top (see `entry`).
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
            owner: AtomicI32::new(0),
            pin: AtomicU8::new(UNPINNED),
            armed: AtomicBool::new(false),
            hardened: AtomicBool::new(false),
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
            let Starts { test, limit } = class.starts();
            let bytes = class.bytes() as u32;
            *start = Start { test, limit, bytes };
        }
        for (size, tag) in self.tags.iter_mut().enumerate() {
            *tag = Tag::of(Class::serving(size));
        }
    }

    /// Whether this is one of the two sentinels, which hold nothing and are never written.
    #[inline]
    pub fn is_sentinel(&self) -> bool {
        ptr::eq(self, &EMPTY) || ptr::eq(self, GONE.0.get().cast())
    }

    /// What a thread's slot holds once its cache is gone. The first call fills it.
    ///
    /// # Safety
    /// - The caller holds the registry's lock.
    pub(super) unsafe fn gone() -> &'static Cache {
        static IS_FILLED: AtomicBool = AtomicBool::new(false);
        let gone = GONE.0.get().cast::<Cache>();
        if !IS_FILLED.load(Ordering::Relaxed) {
            // SAFETY: the caller holds the lock, and there is no reference yet. `EMPTY` is never
            // written.
            unsafe { ptr::copy_nonoverlapping(&raw const EMPTY, gone, 1) };
            IS_FILLED.store(true, Ordering::Relaxed);
        }
        // SAFETY: a static that is filled and never written again.
        unsafe { &*gone }
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

    /// Notes the cache's owner, whose slot already shows the cache. If a handler interrupts this
    /// and forks, the child finds the cache, and this notes the child's thread.
    pub(super) fn note_owner(&self) {
        loop {
            let process = process::own();
            self.owner.store(thread::lasting_id(), Ordering::Relaxed);
            if process == process::own() {
                return;
            }
        }
    }

    /// Whether a thread is moving the cache.
    pub(super) fn is_moved(&self) -> bool {
        self.moved_by.load(Ordering::Relaxed) != NO_THREAD
    }

    /// Whether the calling thread is moving the cache.
    pub(super) fn is_moved_by_caller(&self) -> bool {
        self.moved_by.load(Ordering::Relaxed) == thread::own_name()
    }

    /// The cache's lock, for a fork's child.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }
}

/// The most blocks that a thread holds back before it brings them to quarantine.
pub const MOST: usize = 64;

/// A thread that holds back this many bytes brings its blocks earlier.
pub const MOST_BYTES: usize = 64 << 10;

/// Blocks with canaries that the program freed, at most [`MOST`].
#[derive(Clone, Debug)]
pub struct Blocks {
    count: usize,
    bytes: usize,
    /// The address of each block, and in the highest bits the tag of its class.
    words: [u64; MOST],
}

/// The lowest bit of the tag in a word. Addresses have fewer bits.
const TAG_SHIFT: u32 = 56;

impl Blocks {
    /// No blocks.
    pub const fn none() -> Blocks {
        Blocks {
            count: 0,
            bytes: 0,
            words: [0; MOST],
        }
    }

    /// How many blocks there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the thread must bring them now, because there is no room for more, or because they
    /// have enough bytes.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count == MOST || self.bytes >= MOST_BYTES
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        (self.count, self.bytes) = (0, 0);
    }

    /// Adds a block. There must be room.
    pub fn push(&mut self, address: usize, class: Class) {
        let is_pushed = self.push_tagged(address, Tag::of(class), class.bytes());
        debug_assert!(is_pushed);
    }

    /// Adds a block of `bytes` bytes. False if there is no room.
    #[inline(always)]
    pub(super) fn push_tagged(&mut self, address: usize, tag: Tag, bytes: usize) -> bool {
        debug_assert!(address >> TAG_SHIFT == 0);
        let Some(word) = self.words.get_mut(self.count) else {
            return false;
        };
        *word = address as u64 | u64::from(tag.byte()) << TAG_SHIFT;
        self.count += 1;
        self.bytes += bytes;
        true
    }

    /// The addresses and the tags of the classes.
    #[inline(always)]
    pub(super) fn tagged(&self) -> impl Iterator<Item = (usize, Tag)> + '_ {
        let words = self.words.get(..self.count).unwrap_or_default();
        words.iter().map(|word| {
            // SAFETY: the highest byte is a tag's.
            let tag = unsafe { Tag::from_byte((word >> TAG_SHIFT) as u8) };
            ((word & ((1 << TAG_SHIFT) - 1)) as usize, tag)
        })
    }

    /// The addresses and classes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Class)> + '_ {
        let class = |tag: Tag| tag.class().unwrap_or(Class::LAST);
        self.tagged()
            .map(move |(address, tag)| (address, class(tag)))
    }
}

/// Where a thread notes the blocks that it holds back.
pub(super) type Place = Option<NonNull<Blocks>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_come_with_their_classes() {
        let mut blocks = Blocks::none();
        let put: Vec<_> = Class::all()
            .take(MOST / 2)
            .enumerate()
            .map(|(number, class)| ((1 << 46) + number * 16, class))
            .collect();
        for &(address, class) in &put {
            blocks.push(address, class);
        }
        assert_eq!(blocks.iter().collect::<Vec<_>>(), put);
        assert_eq!(
            blocks.bytes(),
            put.iter().map(|(_, class)| class.bytes()).sum()
        );
    }
}
