//! The gate that a fork closes: while the kernel copies the process, no thread is inside the heap.
//!
//! A fork that took every lock would write to every page they stand on, and its child would pay a page
//! fault for each of these. So a fork takes none. Every [lock](super::lock) has a [`Rank`], and the gate
//! says up to which rank locks are closed:
//!
//! - A locker takes the lock's word, then looks at the gate. If the gate is closed for the lock's rank,
//!   the locker steps back and waits until it opens.
//! - A fork closes the gate for one rank after the other, from the left of the order of locks to the right.
//!   After each step it waits until every lock of that rank is free.
//!
//! Both sides write, then read, sequentially consistent: one of them sees the other. A thread that holds
//! a lock and waits for one to the right of it is never stopped by the gate, for the fork waits for the first
//! before it closes the second.
//!
//! Two holders are no reason to wait:
//!
//! - The forking thread itself. It forks in a signal handler that interrupted the heap. The operation goes on
//!   in both processes when the handler returns, and the lock stays held in both.
//! - The purge thread, if it waits for a lock of the forking thread. It cannot go on before the handler
//!   returns. It rests between two steps of its work; in the child, which has no such thread, its locks
//!   are [set free](Fork::in_child).

use super::lock::FutexLock;
use super::thread::{SignalMask, mask_signals};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::ptr::null_mut;

/// Where a lock stands in the order of locks: a thread that holds one waits only for locks of a higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The board's.
    Board = 1,
    /// The quarantine's.
    Quarantine,
    /// That of the profile's region.
    Profile,
    /// That of a step of decay.
    Step,
    /// That of the profiler's pace.
    Pace,
    /// That of a thread that drains others' magazines.
    Draining,
    /// The registry's.
    Registry,
    /// A depot's.
    Depot,
    /// One of metadata's depots.
    Meta,
    /// That of the pool of stacks.
    Stacks,
    /// That of a commit under way.
    Committing,
    /// That of a purge under way.
    Purging,
    /// The page heap's.
    Pages,
    /// Never closed: the holder also holds a lock that is, or the child does without.
    Apart = 15,
}

/// The low bits of [`Gate::word`] say up to which rank locks are closed, the others count forks.
const LEVEL: u32 = 15;
const ONE_FORK: u32 = LEVEL + 1;

/// See the head of this file.
pub(super) struct Gate {
    word: AtomicU32,
    /// Threads may sleep on `word`.
    awaited: AtomicU32,
}

impl Gate {
    const fn open() -> Gate {
        Gate {
            word: AtomicU32::new(0),
            awaited: AtomicU32::new(0),
        }
    }

    /// Whether locks of `rank` are closed for the calling thread.
    #[inline]
    pub(super) fn stops(&self, rank: Rank) -> bool {
        self.word.load(Ordering::SeqCst) & LEVEL >= rank as u32 && !FORK.is_mine()
    }

    /// Sleeps until locks of `rank` may be open.
    pub(super) fn wait(&self, rank: Rank) {
        while self.stops(rank) {
            let seen = self.word.load(Ordering::SeqCst);
            self.awaited.store(1, Ordering::SeqCst);
            if seen & LEVEL >= rank as u32 {
                super::lock::sleep_while(&self.word, seen);
            }
        }
    }

    fn close_to(&self, rank: Rank) {
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word.store(forks | rank as u32, Ordering::SeqCst);
    }

    fn open_all(&self) {
        // The count goes up, so that a thread about to sleep on an older word does not.
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word
            .store(forks.wrapping_add(ONE_FORK), Ordering::SeqCst);
        if self.awaited.swap(0, Ordering::SeqCst) != 0 {
            super::lock::wake(&self.word);
        }
    }
}

/// Most locks that the purge thread holds at a time.
const MOST_CUT: usize = 6;

/// All that a fork writes, in one place: every page of it costs the child a fault. So do words of other files that a fork's
/// child reads or writes: they stand in the same section, `neap_fork`.
#[repr(C, align(64))]
pub struct Fork {
    pub(super) gate: Gate,
    /// Held by the thread that forks.
    whole: FutexLock,
    /// The purge thread, as [`FutexLock`] knows threads; 0 while there is none.
    purger: AtomicUsize,
    /// The lock that the purge thread waits for.
    purger_awaits: AtomicPtr<FutexLock>,
    /// Locks of the purge thread's that the child sets free. guarded by: whole
    cut: [AtomicPtr<FutexLock>; MOST_CUT],
    /// The signals that the forking thread had masked. guarded by: whole
    signals: UnsafeCell<SignalMask>,
}

// SAFETY: `signals` is reached only under `whole`.
unsafe impl Sync for Fork {}

/// The process's.
#[unsafe(link_section = "neap_fork")]
pub static FORK: Fork = Fork {
    gate: Gate::open(),
    whole: FutexLock::new(Rank::Apart),
    purger: AtomicUsize::new(0),
    purger_awaits: AtomicPtr::new(null_mut()),
    cut: [const { AtomicPtr::new(null_mut()) }; MOST_CUT],
    signals: UnsafeCell::new(SignalMask::NONE),
};

impl Fork {
    /// Begins a fork: masks signals, so that no handler forks within, and waits for another thread's.
    ///
    /// # Safety
    /// - Followed by [`Fork::in_parent`] or [`Fork::in_child`], on the same thread.
    pub unsafe fn begin(&self) {
        let signals = mask_signals(SignalMask::ALL);
        core::mem::forget(self.whole.lock());
        // SAFETY: the lock is held.
        unsafe { *self.signals.get() = signals };
    }

    /// Closes the gate for `rank`, and waits until all `locks`, which are those of this rank, are at rest.
    pub fn close<'a>(&self, rank: Rank, locks: impl IntoIterator<Item = &'a FutexLock>) {
        debug_assert!(self.is_mine());
        self.gate.close_to(rank);
        for lock in locks {
            debug_assert_eq!(lock.rank(), rank);
            lock.await_rest();
        }
    }

    /// Ends a fork, in the parent.
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by this thread.
    pub unsafe fn in_parent(&self) {
        debug_assert!(self.is_mine());
        self.cut.iter().for_each(forget);
        // SAFETY: the lock is held since `begin`.
        let signals = unsafe { *self.signals.get() };
        self.gate.open_all();
        // SAFETY: as above.
        unsafe { self.whole.force_unlock() };
        mask_signals(signals);
    }

    /// For a child: sets those of `locks` free that threads of its parent hold. They found the gate closed, and were about
    /// to step back when the kernel copied the process.
    pub fn free_left<'a>(&self, locks: impl IntoIterator<Item = &'a FutexLock>) {
        debug_assert!(self.is_mine());
        locks.into_iter().for_each(FutexLock::free_if_left);
    }

    /// Opens the gate in the child, and sets free what its parent's purge thread held.
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by the thread that this one is the copy of.
    /// - Followed by [`Fork::end_in_child`].
    pub unsafe fn in_child(&self) {
        debug_assert!(self.is_mine());
        self.purger.store(0, Ordering::Relaxed);
        self.purger_awaits.store(null_mut(), Ordering::Relaxed);
        for cut in &self.cut {
            // SAFETY: null, or a lock of the heap, which lives as long as the process.
            if let Some(lock) = unsafe { cut.load(Ordering::Relaxed).as_ref() } {
                lock.free_if_left();
            }
        }
        self.cut.iter().for_each(forget);
        self.gate.open_all();
    }

    /// Ends a fork, in the child: handlers of signals run from now on.
    ///
    /// # Safety
    /// - As [`Fork::in_child`], which was called before.
    pub unsafe fn end_in_child(&self) {
        // SAFETY: held since `begin`.
        let signals = unsafe { *self.signals.get() };
        // SAFETY: as above.
        unsafe { self.whole.force_unlock() };
        mask_signals(signals);
    }

    /// Whether the calling thread is within a fork.
    pub fn is_mine(&self) -> bool {
        self.whole.is_mine()
    }

    /// Says that the calling thread is the purge thread.
    pub fn note_purger(&self) {
        self.purger.store(super::lock::me(), Ordering::SeqCst);
    }

    /// Says that the purge thread ends.
    pub fn forget_purger(&self) {
        self.purger.store(0, Ordering::SeqCst);
    }

    /// Notes that the purge thread waits for `lock`, if it is the calling thread.
    pub(super) fn note_waiting(&self, lock: &FutexLock) -> Option<Waiting> {
        (self.purger.load(Ordering::Relaxed) == super::lock::me()).then(|| {
            let lock = core::ptr::from_ref(lock).cast_mut();
            self.purger_awaits.store(lock, Ordering::SeqCst);
            Waiting
        })
    }

    /// Whether `holder` is the purge thread, and waits for a lock of the calling thread. Then `lock`, which it holds, is
    /// set free in the child.
    pub(super) fn cuts(&self, lock: &FutexLock, holder: usize) -> bool {
        if self.purger.load(Ordering::SeqCst) != holder {
            return false;
        }
        // SAFETY: null, or a lock that the purge thread waits for. It looks at the locks of threads that end only
        // under the registry's, which they leave first; then the memory is another cache's, or idle.
        let awaited = unsafe { self.purger_awaits.load(Ordering::SeqCst).as_ref() };
        let Some(awaited) = awaited else {
            return false;
        };
        if !awaited.is_mine() {
            // The handler may have interrupted this thread between giving the lock up and waking the next.
            awaited.wake_one();
            return false;
        }
        let free = |cut: &&AtomicPtr<FutexLock>| cut.load(Ordering::Relaxed).is_null();
        let place = self.cut.iter().find(free);
        debug_assert!(place.is_some());
        place.is_some_and(|place| {
            place.store(core::ptr::from_ref(lock).cast_mut(), Ordering::Relaxed);
            true
        })
    }
}

/// Writes only where it must: in a child a write costs a page.
fn forget(cut: &AtomicPtr<FutexLock>) {
    if !cut.load(Ordering::Relaxed).is_null() {
        cut.store(null_mut(), Ordering::Relaxed);
    }
}

/// The purge thread waits for a lock as long as this lives.
pub(super) struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        FORK.purger_awaits.store(null_mut(), Ordering::SeqCst);
    }
}
