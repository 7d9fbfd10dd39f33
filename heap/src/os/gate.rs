//! The gate that a fork closes: while the kernel copies the process, no thread is inside the heap.
//!
//! A fork that took every lock would write to every page they stand on, and its child would pay a
//! page fault for each of these. So a fork takes none. Every [lock](super::lock) has a [`Rank`],
//! and the gate says up to which rank locks are closed:
//!
//! - A locker takes the lock's word, then looks at the gate. If the gate is closed for the lock's
//!   rank, the locker steps back and waits until it opens.
//! - A fork closes the gate for one rank after the other, from the left of the order of locks to
//!   the right. After each step it waits until every lock of that rank is free.
//!
//! Both sides write, then read, sequentially consistent: one of them sees the other. A thread that
//! holds a lock and waits for one to the right of it is never stopped by the gate, for the fork
//! waits for the first before it closes the second.
//!
//! Some holders are no reason to wait:
//!
//! - The forking thread itself. It forks in a signal handler that interrupted the heap. The
//!   operation goes on in both processes when the handler returns, and the lock stays held in both.
//! - A thread that [waits](super::waits) for a lock of the forking thread, or for one whose holder
//!   does. It cannot go on before the handler returns. A thread waits for a lock only where all
//!   that it changes under others is whole.
//! - A thread that is about to fork itself, in a handler that interrupted a change. Each of two
//!   such forks would wait for the other. The copy holds half a change then, so its lock stays held
//!   there.
//!
//! The kernel copies lock words as they are: those of threads that wait, and those of a locker that
//! is about to step back. Their holders stayed in the parent, so the child [sets them
//! free](FutexLock::free_if_whole).
//!
//! `gate_models.rs` has the loom models.

use super::lock::FutexLock;
use super::machine::{AtomicUsize, Ordering, Wake, sleep_while, wake};
use super::thread::{SignalMask, mask_signals};
pub use super::waits::Waiting;
use super::waits::Waits;
use crate::base::sync::UnsafeCell;

/// Where a lock stands in the order of locks: a thread that holds one waits only for locks of a
/// higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The board's.
    Board = 1,
    /// The quarantine's.
    Quarantine,
    /// That of the profile's region.
    Profile,
    /// That of the profiler's pace.
    Pace,
    /// That of a step of decay.
    Step,
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
    /// That of a fork itself. It is never closed.
    Fork,
    /// Never closed: the holder also holds a lock that is, or the child does without.
    Apart = 15,
}

/// The low bits of [`Gate::word`] say up to which rank locks are closed, the others count forks.
const LEVEL: usize = 15;
const ONE_FORK: usize = LEVEL + 1;

/// See the head of this file.
pub(super) struct Gate {
    word: AtomicUsize,
    /// Threads may sleep on `word`.
    awaited: AtomicUsize,
}

impl Gate {
    const fn open() -> Gate {
        Gate {
            word: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
        }
    }

    /// Whether locks of `rank` are closed for the calling thread.
    #[inline]
    pub(super) fn stops(&self, rank: Rank) -> bool {
        self.word.load(Ordering::SeqCst) & LEVEL >= rank as usize && !FORK.is_mine()
    }

    /// Sleeps until locks of `rank` may be open.
    pub(super) fn wait(&self, rank: Rank) {
        while self.stops(rank) {
            let seen = self.word.load(Ordering::SeqCst);
            self.awaited.store(1, Ordering::SeqCst);
            if seen & LEVEL >= rank as usize {
                sleep_while(&self.word, seen, None);
            }
        }
    }

    fn level(&self) -> usize {
        self.word.load(Ordering::Relaxed) & LEVEL
    }

    fn close_to(&self, rank: Rank) {
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word.store(forks | rank as usize, Ordering::SeqCst);
    }

    fn open_all(&self) {
        // The count goes up, so that a thread about to sleep on an older word does not.
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word
            .store(forks.wrapping_add(ONE_FORK), Ordering::SeqCst);
        if self.awaited.swap(0, Ordering::SeqCst) != 0 {
            wake(&self.word, Wake::All);
        }
    }
}

/// All that a fork writes, in one place: every page of it costs the child a fault. So do words of
/// other files that a fork's child reads or writes: they stand in the same section, `neap_fork`.
#[repr(C, align(64))]
pub struct Fork {
    pub(super) gate: Gate,
    /// Held by the thread that forks.
    whole: FutexLock,
    pub(super) waits: Waits,
    /// The signals that the forking thread had masked. guarded by: whole
    signals: UnsafeCell<SignalMask>,
}

// SAFETY: `signals` is reached only under `whole`.
unsafe impl Sync for Fork {}

/// The process's.
#[unsafe(link_section = "neap_fork")]
pub static FORK: Fork = Fork {
    gate: Gate::open(),
    whole: FutexLock::new(Rank::Fork),
    waits: Waits::none(),
    signals: UnsafeCell::new(SignalMask::NONE),
};

impl Fork {
    /// The calling thread is about to begin a fork, and waits for a lock that another fork may
    /// hold.
    pub fn note_coming(&self) -> Waiting<'_> {
        self.waits.note(&self.whole)
    }

    /// Begins a fork: masks signals, so that no handler forks within, and waits for another
    /// thread's.
    ///
    /// # Safety
    /// - Followed by [`Fork::in_parent`] or [`Fork::in_child`], on the same thread.
    pub unsafe fn begin(&self) {
        let signals = mask_signals(SignalMask::ALL);
        core::mem::forget(self.whole.lock());
        // SAFETY: the lock is held.
        unsafe { *self.signals.get() = signals };
    }

    /// Closes the gate for the rank of `lock`, and waits until that is at rest. Called for every
    /// lock, from the left of the order of locks to the right.
    pub fn close(&self, lock: &FutexLock) {
        debug_assert!(self.is_mine());
        debug_assert!(self.gate.level() <= lock.rank() as usize);
        if self.gate.level() != lock.rank() as usize {
            self.gate.close_to(lock.rank());
        }
        lock.await_rest();
    }

    /// Ends a fork, in the parent.
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by this thread.
    pub unsafe fn in_parent(&self) {
        debug_assert!(self.is_mine());
        // SAFETY: the lock is held since `begin`.
        let signals = unsafe { *self.signals.get() };
        self.gate.open_all();
        // SAFETY: as above.
        unsafe { self.whole.force_unlock() };
        mask_signals(signals);
    }

    /// Opens the gate in the child. What threads held that stayed in the parent is still to be
    /// [set free](FutexLock::free_if_whole).
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by the thread that this one is the copy of.
    /// - Followed by [`Fork::end_in_child`].
    pub unsafe fn in_child(&self) {
        debug_assert!(self.is_mine());
        self.gate.open_all();
    }

    /// Ends a fork, in the child: handlers of signals run from now on.
    ///
    /// # Safety
    /// - As [`Fork::in_child`], which was called before.
    pub unsafe fn end_in_child(&self) {
        self.waits.keep_own();
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
}
