//! A magazine's bounds: what its owner's slow path and a drainer do to a magazine while they hold
//! the cache's lock. [`super::drain`] explains why the protocol is correct. The models in
//! `testing/magazine_models.rs` run this file.
//!
//! Pops for a class compare with a bottom: that of the magazine, or, while the profiler samples, a
//! separate one. Pops for a size compare with [`super::thread_cache::Cache::below`] only.

use super::magazine::{GUARD, Magazine, no_entries, word};
use crate::base::sync::{AtomicUsize, Ordering, plain};
use core::ptr::{self, NonNull};

/// What the fast path of a cache's owner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastPath {
    /// Bounds are published: pops and pushes.
    On,
    /// Pushes, and pops that count down to the next sample of the profiler.
    Sampling,
    /// Nothing: every call takes the slow path (the counting and the checking mode).
    Off,
    /// The same, but the slow path begins with a [short call](crate::watched::harden).
    Hardened,
}

impl FastPath {
    /// Whether magazines are closed to the fast path.
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, FastPath::Off | FastPath::Hardened)
    }
}

/// What pops that read no bottom may do for a cache's owner.
pub struct Access {
    /// What the owner may do while no drainer is at work.
    pub path: FastPath,
    /// Whether the owner may be in the middle of a pop though the fast path is closed: another
    /// thread closed it, and the owner has not taken the lock since.
    pub may_pop: bool,
    /// A drainer has offered what the magazines hold, and `path` is the same since.
    pub is_offering: bool,
    /// How many more blocks the owner takes on its slow path while a drainer offers.
    patience: u8,
}

/// How many blocks an owner takes on its slow path before it ends a drainer's offer. The drainer
/// may sleep, or may have stayed in a fork's parent.
const PATIENCE: u8 = 64;

impl Access {
    /// All pops and pushes.
    pub const fn on() -> Access {
        Access {
            path: FastPath::On,
            may_pop: false,
            is_offering: false,
            patience: 0,
        }
    }

    /// Publishes in `below` that pops for a size work for fewer bytes than `most`, or that none do.
    pub fn publish(&self, below: &AtomicUsize, most: usize) {
        let is_on = self.path == FastPath::On && !self.is_offering;
        let bound = if is_on { most } else { 0 };
        if below.load(Ordering::Relaxed) != bound {
            // Release: a thread that sees the bound sees the guards.
            below.store(bound, Ordering::Release);
        }
    }

    /// Sets whether a drainer offers what the magazines hold. Not published yet.
    pub fn set_offering(&mut self, is_offering: bool) {
        self.is_offering = is_offering;
        self.patience = PATIENCE;
    }

    /// Notes that the owner takes a block on its slow path. Returns whether to end a drainer's
    /// offer.
    pub fn loses_patience(&mut self) -> bool {
        if !self.is_offering {
            return false;
        }
        self.patience = self.patience.saturating_sub(1);
        self.patience == 0
    }
}

/// One magazine's true bounds.
pub struct Bounds {
    /// The array's first entry, past its guard; without an array [`no_entries`].
    pub base: usize,
    /// Address of the oldest entry: `base`, or above it after a drain.
    pub floor: usize,
    /// Entries the array has room for; 0 before the first use.
    pub room: u32,
    /// Entries the magazine may hold now.
    pub capacity: u32,
}

impl Bounds {
    /// No array, with a top that is at `base`.
    pub const fn none(base: usize) -> Bounds {
        Bounds {
            base,
            floor: base,
            room: 0,
            capacity: 0,
        }
    }

    /// Where the memory of the array begins, and how many entries it has room for; `None` without
    /// one.
    fn array(&self) -> Option<(NonNull<u8>, usize)> {
        let start = self.base - GUARD * size_of::<usize>();
        let array = NonNull::new(start as *mut u8).filter(|_| self.room != 0)?;
        Some((array, self.room as usize))
    }
}

/// Bytes of an array of `room` entries with its guard and its [stamp](Held::stamp).
pub(crate) const fn array_bytes(room: usize) -> usize {
    (GUARD + room + 1) * size_of::<usize>()
}

/// A magazine of a cache whose lock is held.
pub struct Held<'a> {
    magazine: &'a Magazine,
    /// The bottom of pops that count down to a sample.
    sampling_bottom: &'a AtomicUsize,
    /// Its bounds.
    pub(crate) bounds: &'a mut Bounds,
    path: FastPath,
}

impl<'a> Held<'a> {
    /// A magazine with its bounds.
    ///
    /// # Safety
    /// - `bounds` are those of `magazine`: they say where its array is.
    /// - The lock of its cache is held for as long.
    pub unsafe fn new(
        magazine: &'a Magazine,
        sampling_bottom: &'a AtomicUsize,
        bounds: &'a mut Bounds,
        path: FastPath,
    ) -> Held<'a> {
        Held {
            magazine,
            sampling_bottom,
            bounds,
            path,
        }
    }

    /// The word behind the room of the array, which the owner's refills use; `None` without an
    /// array.
    pub(super) fn stamp(&mut self) -> Option<&mut usize> {
        let end = self.bounds.base + self.bounds.room as usize * 8;
        // SAFETY: an array has a word more than its room, which only the cache's holder reaches.
        (self.bounds.room != 0).then(|| unsafe { &mut *(end as *mut usize) })
    }

    /// Free blocks in the magazine.
    pub fn filled(&self) -> usize {
        (self.magazine.top.load(Ordering::Acquire) - self.bounds.floor) / 8
    }

    /// Whether the magazine holds at most one block more than a quarter of its capacity.
    pub(crate) fn is_low(&self) -> bool {
        self.filled_enough().is_none()
    }

    /// Free blocks in the magazine, if it is not [low](Held::is_low).
    #[inline(always)]
    pub(crate) fn filled_enough(&self) -> Option<usize> {
        let filled = self.filled();
        (filled > self.bounds.capacity as usize / 4 + 1).then_some(filled)
    }

    /// Lets the fast path see the bounds, as far as it may use them.
    pub(crate) fn publish(&mut self) {
        let floor = self.bounds.floor;
        let end = self.bounds.base + self.bounds.capacity as usize * 8;
        let (bottom, sampling, limit) = match self.path {
            FastPath::On => (floor, usize::MAX, end),
            FastPath::Sampling => (usize::MAX, floor, end),
            FastPath::Off | FastPath::Hardened => (usize::MAX, usize::MAX, 0),
        };
        self.magazine.bottom.store(bottom, Ordering::Relaxed);
        self.sampling_bottom.store(sampling, Ordering::Relaxed);
        self.magazine.limit.store(limit, Ordering::Relaxed);
    }

    /// Sets that the magazine, settled, holds `filled` entries.
    ///
    /// # Safety
    /// - As [`Held::pop`].
    /// - The array begins with that many blocks of the magazine's class, which nothing else holds.
    pub(crate) unsafe fn set_filled(&mut self, filled: usize) {
        let top = self.bounds.base + filled * 8;
        self.magazine.top.store(top, Ordering::Release);
    }

    /// Moves the entries down to the array's start, and puts back a bottom that a drainer has
    /// offered.
    ///
    /// # Safety
    /// - As [`Held::pop`].
    pub(crate) unsafe fn settle(&mut self) {
        let filled = self.filled();
        let (from, to) = (self.bounds.floor, self.bounds.base);
        if from != to {
            self.bounds.floor = to;
            // SAFETY: both ranges lie in the array; the owner is in its slow path and drainers are
            // locked out.
            unsafe { ptr::copy(from as *const usize, to as *mut usize, filled) };
            let top = to + filled * 8;
            self.magazine.top.store(top, Ordering::Relaxed);
        }
        self.publish();
    }

    /// Gives the magazine, whose entries are settled, an array of `room` entries, into which the
    /// entries are copied. Returns the old array and its room, if there was one. The bounds are not
    /// [published](Held::publish).
    ///
    /// # Safety
    /// - As [`Held::pop`].
    /// - The array is the caller's, of [`array_bytes`], and has room for the entries.
    pub(crate) unsafe fn set_array(
        &mut self,
        array: NonNull<u8>,
        room: usize,
    ) -> Option<(NonNull<u8>, usize)> {
        let filled = self.filled();
        debug_assert!(filled <= room);
        debug_assert_eq!(self.bounds.base, self.bounds.floor);
        // SAFETY: the caller's promise: the guard and the room.
        let base = unsafe {
            array.cast::<usize>().write_bytes(0, GUARD);
            array.cast::<usize>().add(GUARD)
        };
        let old = self.bounds.array();
        let from = self.bounds.base as *const usize;
        // SAFETY: the new array has room for the entries, which start at the old one's base.
        unsafe { ptr::copy_nonoverlapping(from, base.as_ptr(), filled) };
        self.bounds.base = base.as_ptr().addr();
        self.bounds.floor = self.bounds.base;
        self.bounds.room = room as u32;
        // SAFETY: the entries were copied there.
        unsafe { self.set_filled(filled) };
        old
    }

    /// Takes the array of an empty magazine away, and how many entries it has room for.
    ///
    /// # Safety
    /// - As [`Held::pop`].
    pub(crate) unsafe fn take_array(&mut self) -> Option<(NonNull<u8>, usize)> {
        debug_assert_eq!(self.filled(), 0);
        let old = core::mem::replace(self.bounds, Bounds::none(no_entries()));
        // A handler that frees finds the magazine full from here on, one that allocates finds it
        // empty.
        self.magazine.limit.store(0, Ordering::Relaxed);
        self.magazine.top.store(no_entries(), Ordering::Relaxed);
        self.publish();
        old.array()
    }

    /// The blocks in the magazine, oldest first. Its owner may change an entry meanwhile by a store
    /// of one word: each address was in the magazine, or is now.
    pub fn blocks(&self) -> impl Iterator<Item = usize> + '_ {
        let floor = self.bounds.floor;
        (0..self.filled()).map(move |entry| {
            // SAFETY: the array stays while the cache's lock is held, and has that many entries.
            let entry = unsafe { word(floor + 8 * entry) };
            entry.load(plain::Ordering::Relaxed).addr()
        })
    }

    /// The block that has `above` newer ones over it, whatever the fast path may do.
    fn below(&self, above: usize) -> Option<*mut u8> {
        if self.filled() <= above {
            return None;
        }
        let top = self.magazine.top.load(Ordering::Relaxed);
        // SAFETY: an entry between floor and top.
        Some(unsafe { word(top - 8 * (above + 1)) }.load(plain::Ordering::Relaxed))
    }

    /// Whether a block is one of the two newest ones; if it is freed again, it was freed twice. For
    /// the owner, because only the owner changes these.
    pub(crate) fn is_newest(&self, block: *mut u8) -> bool {
        (0..2).any(|above| self.below(above) == Some(block))
    }

    /// The newest block if it lies again among the two below it: it was freed twice. For the owner,
    /// because only the owner changes these.
    pub(crate) fn repeated(&self) -> Option<*mut u8> {
        let newest = self.below(0)?;
        let is_below = (1..3).any(|above| self.below(above) == Some(newest));
        is_below.then_some(newest)
    }

    /// Takes the newest block, whatever the fast path may do.
    ///
    /// # Safety
    /// - The calling thread owns the cache, or no thread does and nothing else reaches it.
    pub(crate) unsafe fn pop(&mut self) -> Option<*mut u8> {
        let newest = self.below(0)?;
        let top = self.magazine.top.load(Ordering::Relaxed) - 8;
        self.magazine.top.store(top, Ordering::Relaxed);
        Some(newest)
    }

    /// [`Held::pop`] from a magazine that holds `filled` blocks.
    ///
    /// # Safety
    /// - As [`Held::pop`].
    /// - `filled` is what [`Held::filled`] says, and not 0.
    #[inline(always)]
    pub(crate) unsafe fn pop_newest(&mut self, filled: usize) -> *mut u8 {
        debug_assert!(filled == self.filled() && filled > 0);
        let top = self.bounds.floor + 8 * (filled - 1);
        self.magazine.top.store(top, Ordering::Relaxed);
        // SAFETY: the newest entry.
        unsafe { word(top) }.load(plain::Ordering::Relaxed)
    }

    /// Exchanges the newest of the `filled` blocks with the one that the random number chooses.
    /// Returns the chosen one, which is now the newest.
    ///
    /// # Safety
    /// - As [`Held::pop`]; the magazine is closed to the fast path.
    /// - `filled` is what [`Held::filled`] says, and not 0.
    #[inline(always)]
    pub(crate) unsafe fn choose(&mut self, filled: usize, random: u64) -> *mut u8 {
        debug_assert!(self.path.is_closed() && filled == self.filled() && filled > 0);
        let floor = self.bounds.floor;
        // SAFETY: two of the entries between floor and top.
        let (chosen, newest) = unsafe {
            let chosen = word(floor + 8 * pick(random, filled));
            (chosen, word(floor + 8 * (filled - 1)))
        };
        let block = chosen.load(plain::Ordering::Relaxed);
        let other = newest.load(plain::Ordering::Relaxed);
        chosen.store(other, plain::Ordering::Relaxed);
        newest.store(block, plain::Ordering::Relaxed);
        block
    }

    /// Adds a block, whatever the fast path may do; false if the magazine is full.
    ///
    /// # Safety
    /// - As [`Held::pop`].
    /// - `block` is a block of the magazine's class that nothing uses any more.
    pub(crate) unsafe fn push(&mut self, block: *mut u8) -> bool {
        let top = self.magazine.top.load(Ordering::Relaxed);
        if top >= self.bounds.base + self.bounds.capacity as usize * 8 {
            return false;
        }
        // SAFETY: below the capacity the array has room.
        unsafe { word(top) }.store(block, plain::Ordering::Relaxed);
        self.magazine.top.store(top + 8, Ordering::Release);
        true
    }

    /// [`Held::push`], but below the newest block, which stays the newest. Returns how many blocks
    /// there are now; `None` if the magazine is full, or there was no block.
    ///
    /// # Safety
    /// - As [`Held::push`].
    #[inline(always)]
    pub(crate) unsafe fn push_below(&mut self, block: *mut u8) -> Option<usize> {
        let top = self.magazine.top.load(Ordering::Relaxed);
        if top == self.bounds.floor || top >= self.bounds.base + self.bounds.capacity as usize * 8 {
            return None;
        }
        // SAFETY: below the capacity the array has room, and there is an entry below the top.
        let (free, newest) = unsafe { (word(top), word(top - 8)) };
        free.store(
            newest.load(plain::Ordering::Relaxed),
            plain::Ordering::Relaxed,
        );
        newest.store(block, plain::Ordering::Relaxed);
        self.magazine.top.store(top + 8, Ordering::Release);
        Some((top + 8 - self.bounds.floor) / 8)
    }

    /// A drainer's first step: publishes a bottom that leaves the newest block to the owner. `None`
    /// if there is nothing to take below it.
    pub(crate) fn offer(&mut self) -> Option<usize> {
        let bottom = self.to_offer()?;
        match self.path {
            FastPath::On => self.magazine.bottom.store(bottom, Ordering::Relaxed),
            FastPath::Sampling => self.sampling_bottom.store(bottom, Ordering::Relaxed),
            // The owner does nothing while the lock is held.
            FastPath::Off | FastPath::Hardened => {}
        }
        Some(bottom)
    }

    fn to_offer(&self) -> Option<usize> {
        let top = self.magazine.top.load(Ordering::Acquire);
        top.checked_sub(8)
            .filter(|&bottom| bottom > self.bounds.floor)
    }

    /// The bottom that a drainer offered and that has not been put back since; `None` if there is
    /// none.
    pub(crate) fn offered(&self) -> Option<usize> {
        let bottom = match self.path {
            FastPath::On => self.magazine.bottom.load(Ordering::Relaxed),
            FastPath::Sampling => self.sampling_bottom.load(Ordering::Relaxed),
            FastPath::Off | FastPath::Hardened => self.to_offer()?,
        };
        (bottom > self.bounds.floor).then_some(bottom)
    }

    /// A drainer's step after the heavy barrier: gives `take` the entries below the bottom that was
    /// offered, if they are the drainer's. Returns how many.
    ///
    /// # Safety
    /// - The owner has passed a full barrier since the bottom was offered, or its fast path is
    ///   closed and it is not in the middle of a pop.
    pub(crate) unsafe fn collect(&mut self, take: impl FnOnce(&[usize])) -> usize {
        let offered = self.offered();
        match offered.filter(|&bottom| self.is_ceded(bottom)) {
            Some(bottom) => {
                // SAFETY: it was offered before the barrier, and the owner's top is above it.
                let taken = unsafe { self.cede(bottom, take) };
                self.guard_floor();
                taken
            }
            None => 0,
        }
    }

    /// Whether what lies below `bottom` is the drainer's.
    pub(crate) fn is_ceded(&self, bottom: usize) -> bool {
        self.magazine.top.load(Ordering::Acquire) > bottom
    }

    /// Gives `take` the entries from the floor to `bottom`, which is the floor from now on.
    ///
    /// # Safety
    /// - `bottom` was offered before a full barrier of the owner, and is [ceded](Held::is_ceded).
    pub(crate) unsafe fn cede(&mut self, bottom: usize, take: impl FnOnce(&[usize])) -> usize {
        let (floor, count) = (self.bounds.floor, (bottom - self.bounds.floor) / 8);
        self.bounds.floor = bottom;
        // SAFETY: entries of the array below the published bottom: the owner does not touch them
        // (see `drain`).
        take(unsafe { core::slice::from_raw_parts(floor as *const usize, count) });
        count
    }

    /// The entries of the array below the new floor went to a drainer: its last ones become the
    /// guard.
    pub(crate) fn guard_floor(&mut self) {
        let floor = self.bounds.floor;
        debug_assert!(floor > self.bounds.base);
        for below in 1..=GUARD {
            // SAFETY: words of the array and its guard. The owner may compare with them meanwhile.
            unsafe { word(floor - 8 * below) }.store(ptr::null_mut(), plain::Ordering::Relaxed);
        }
    }
}

/// One of `count` places, by a random number: by its high half, without a division.
#[inline(always)]
fn pick(random: u64, count: usize) -> usize {
    (((random >> 32) * count as u64) >> 32) as usize
}
