//! The gate that a fork closes: while the kernel copies the process, no thread is inside the heap.
//!
//! Every [lock](super::lock) has a [rank](super::lock_order), and the gate says up to which rank
//! locks are closed. A locker takes the lock's word, then looks at the gate. If the gate is closed
//! for the lock's rank, the locker steps back and waits until it opens. [`super::fork`] closes and
//! opens it.

use super::lock_order::Rank;
use super::machine::{AtomicUsize, Ordering, Wake, me, sleep_while, wake};
use super::waits::Waits;

/// The low bits of [`Gate::word`] say up to which rank locks are closed, the others count forks.
const LEVEL: usize = 15;
const ONE_FORK: usize = LEVEL + 1;

/// What lockers read of a fork. All that a fork writes is in one place, because every page of it
/// costs the child a fault. Words of other files that a fork's child reads or writes are there as
/// well: they are in the same section, `neap_fork`.
#[repr(C, align(64))]
pub(super) struct Gate {
    word: AtomicUsize,
    /// Threads may sleep on `word`.
    awaited: AtomicUsize,
    /// The thread that forks, or 0.
    forker: AtomicUsize,
    pub(super) waits: Waits,
}

/// The process's.
#[unsafe(link_section = "neap_fork")]
pub(super) static GATE: Gate = Gate {
    word: AtomicUsize::new(0),
    awaited: AtomicUsize::new(0),
    forker: AtomicUsize::new(0),
    waits: Waits::none(),
};

impl Gate {
    /// Whether locks of `rank` are closed for the calling thread.
    #[inline]
    pub(super) fn stops(&self, rank: Rank) -> bool {
        self.word.load(Ordering::SeqCst) & LEVEL >= rank.place() && !self.is_forker()
    }

    /// Sleeps until locks of `rank` may be open.
    pub(super) fn wait(&self, rank: Rank) {
        while self.stops(rank) {
            let seen = self.word.load(Ordering::SeqCst);
            self.awaited.store(1, Ordering::SeqCst);
            if seen & LEVEL >= rank.place() {
                sleep_while(&self.word, seen, None);
            }
        }
    }

    /// Whether the calling thread is within a fork.
    pub(super) fn is_forker(&self) -> bool {
        self.forker.load(Ordering::Relaxed) == me()
    }

    /// Which thread forks; 0: none. The caller holds the lock of forks.
    pub(super) fn set_forker(&self, thread: usize) {
        self.forker.store(thread, Ordering::Relaxed);
    }

    pub(super) fn level(&self) -> usize {
        self.word.load(Ordering::Relaxed) & LEVEL
    }

    pub(super) fn close_to(&self, rank: Rank) {
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word.store(forks | rank.place(), Ordering::SeqCst);
    }

    pub(super) fn open_all(&self) {
        // The count goes up, so that a thread about to sleep on an older word does not.
        let forks = self.word.load(Ordering::Relaxed) & !LEVEL;
        self.word
            .store(forks.wrapping_add(ONE_FORK), Ordering::SeqCst);
        if self.awaited.swap(0, Ordering::SeqCst) != 0 {
            wake(&self.word, Wake::All);
        }
    }
}
