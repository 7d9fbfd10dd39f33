//! A fork: while the kernel copies the process, no thread is inside the heap.
//!
//! A fork that took every lock would write to every page they stand on, and its child would pay a
//! page fault for each of these. So a fork takes none. Every [lock](super::lock) has a
//! [rank](super::lock_order), and the [gate](super::lock) says up to which rank locks are closed:
//!
//! - A locker takes the lock's word, then looks at the gate. If the gate is closed for the lock's
//!   rank, the locker steps back and waits until it opens.
//! - A fork closes the gate for one rank after the other, from the top of the table down. After
//!   each step it waits until every lock of that rank is free.
//!
//! Both sides write, then read, sequentially consistent: one of them sees the other. A thread that
//! holds a lock and waits for one further down is never stopped by the gate, for the fork waits for
//! the first before it closes the second.
//!
//! The fork does not wait for some holders:
//!
//! - The forking thread itself. It forks in a signal handler that interrupted the heap. The
//!   operation goes on in both processes when the handler returns, and the lock stays held in both.
//! - A thread that [waits](Waits) for a lock of the forking thread, or for one whose holder
//!   does. It cannot go on before the handler returns. A thread waits for a lock only where the
//!   data under its other locks is consistent.
//! - A thread that is about to fork itself, in a handler that interrupted a change. A fork whose
//!   own thread holds no lock [makes way](Fork::make_way) for that thread, and begins anew
//!   afterwards. If both hold locks, each would wait for the other, so the fork goes on. Its copy
//!   contains half a change, and the lock over that change stays held there.
//!
//! The kernel copies lock words as they are, including those of threads that wait and of a locker
//! that is about to step back. Their holders stayed in the parent, so the child [sets them
//! free](FutexLock::free_if_whole).
//!
//! `testing/gate_models.rs` has the loom models.

use super::futex::{MOST_WAITS, me};
use super::lock::FutexLock;
use super::lock::{GATE, Waiting, Waits};
use super::lock_order::{Rank, forget_others};
use super::thread::{SignalMask, mask_signals};
use crate::base::sync::UnsafeCell;

/// How long a fork sleeps, in ms, before it checks again whether the holder itself waits, and
/// whether the wake-up went to a thread that the gate stops.
const LOOK_MS: u64 = 1;

/// Longer chains of waits are not followed: every lock in one stands further down than the one
/// before.
const MOST_LINKS: usize = 16;

/// Visits locks.
pub type EachLock<'a> = &'a dyn Fn(&mut dyn FnMut(&FutexLock));

/// Whether the calling thread holds one of these locks. If so, it is in a handler that interrupted
/// a change of its own.
pub fn holds_any(each_lock: EachLock<'_>) -> bool {
    let mut holds = false;
    each_lock(&mut |lock| holds |= lock.is_mine());
    holds
}

/// A fork in progress. Its words are next to the gate's.
pub struct Fork {
    /// Held by the thread that forks.
    whole: FutexLock,
    /// The signals that the forking thread had masked. guarded by: whole
    signals: UnsafeCell<SignalMask>,
}

// SAFETY: `signals` is reached only under `whole`.
unsafe impl Sync for Fork {}

/// The process's.
#[unsafe(link_section = "neap_fork")]
pub static FORK: Fork = Fork {
    whole: FutexLock::new(Rank::Fork),
    signals: UnsafeCell::new(SignalMask::NONE),
};

impl Fork {
    /// The calling thread is about to begin a fork, and waits for a lock that another fork may
    /// hold.
    pub fn note_coming(&self) -> Waiting<'_> {
        GATE.waits.note(&self.whole)
    }

    /// Begins a fork: masks signals, so that no handler forks within, and waits for another
    /// thread's.
    ///
    /// # Safety
    /// - Followed by [`Fork::in_parent`] or [`Fork::in_child`], on the same thread.
    pub unsafe fn begin(&self) {
        let signals = mask_signals(SignalMask::all());
        core::mem::forget(self.whole.lock());
        GATE.set_forker(me());
        // SAFETY: the lock is held.
        unsafe { *self.signals.get() = signals };
    }

    /// Closes the gate for one rank after the other, and waits after each until its locks are at
    /// rest. `each_lock` visits all locks, from the top of the table down. With `makes_way`, `Err`
    /// names a thread that must fork first. The caller then ends this fork and
    /// [waits](Fork::make_way).
    pub fn close(&self, each_lock: EachLock<'_>, makes_way: bool) -> Result<(), usize> {
        let mut end = Ok(());
        each_lock(&mut |lock| {
            if let (Ok(()), Some(coming)) = (end, self.close_one(lock))
                && makes_way
                && !holds_any(each_lock)
            {
                end = Err(coming);
            }
        });
        end
    }

    /// Waits until the lock is at rest. Returns the thread that holds it in the middle of a change
    /// and is about to fork, if there is one.
    fn close_one(&self, lock: &FutexLock) -> Option<usize> {
        debug_assert!(self.is_mine());
        debug_assert!(GATE.level() <= lock.rank().place());
        if GATE.level() != lock.rank().place() {
            GATE.close_to(lock.rank());
        }
        lock.await_rest()
    }

    /// Waits until `thread`, which is about to fork, no longer waits for its turn. The caller is
    /// not within a fork. False if that takes too long, because the thread waits for something
    /// else.
    pub fn make_way(&self, thread: usize) -> bool {
        (0..MOST_WAITS).any(|_| !GATE.waits.await_change(thread, &self.whole))
    }

    /// Ends a fork, in the parent.
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by this thread.
    pub unsafe fn in_parent(&self) {
        debug_assert!(self.is_mine());
        GATE.open_all();
        // SAFETY: held since `begin`.
        unsafe { self.give_up() };
    }

    /// Opens the gate in the child. Locks that threads of the parent held are still to be [set
    /// free](FutexLock::free_if_whole).
    ///
    /// # Safety
    /// - [`Fork::begin`] was called by the thread that this one is the copy of.
    /// - Followed by [`Fork::end_in_child`].
    pub unsafe fn in_child(&self) {
        debug_assert!(self.is_mine());
        GATE.open_all();
    }

    /// Ends a fork, in the child: handlers of signals run from now on.
    ///
    /// # Safety
    /// - As [`Fork::in_child`], which was called before.
    pub unsafe fn end_in_child(&self) {
        GATE.waits.keep_own();
        forget_others();
        // SAFETY: held since `begin`.
        unsafe { self.give_up() };
    }

    /// Gives up the lock of forks, and lets handlers of signals run.
    ///
    /// # Safety
    /// - The calling thread holds it.
    unsafe fn give_up(&self) {
        // SAFETY: the lock is held.
        let signals = unsafe { *self.signals.get() };
        GATE.set_forker(0);
        // SAFETY: the caller's promise.
        unsafe { self.whole.force_unlock() };
        mask_signals(signals);
    }

    /// Whether the calling thread is within a fork.
    pub fn is_mine(&self) -> bool {
        GATE.is_forker()
    }
}

impl FutexLock {
    /// For a fork that has closed the lock's rank: waits until no thread that the fork has to wait
    /// for holds it. Returns the holder if it is in the middle of a change and about to fork
    /// itself.
    pub(super) fn await_rest(&self) -> Option<usize> {
        while let Some(holder) = self.holder() {
            let stuck = match holder == me() {
                true => Some(Stuck::AtRest),
                false => stuck(holder),
            };
            if let Some(stuck) = stuck {
                return (stuck == Stuck::Interrupted).then_some(holder);
            }
            if self.sleep_while_held(Some(LOOK_MS)) {
                // The wake-up may have gone to another sleeper.
                self.wake_one();
            }
        }
        None
    }

    /// [`FutexLock::free_if_left`], unless the holder was interrupted in the middle of a change.
    /// Then the lock stays held for good: the child may `exec`, or end.
    pub fn free_if_whole(&self) -> bool {
        let is_whole = |holder| stuck(holder) != Some(Stuck::Interrupted);
        self.holder().is_some_and(is_whole) && self.free_if_left()
    }
}

/// Why a thread cannot continue before a fork is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    /// It waits for a lock: what it changes is whole.
    AtRest,
    /// It is about to fork itself. If it holds locks, it does so in a handler that interrupted a
    /// change.
    Interrupted,
}

/// For a fork: why `thread` cannot continue before the calling thread gives up a lock; `None` if it
/// can.
fn stuck(thread: usize) -> Option<Stuck> {
    GATE.waits
        .while_kept(|waits| follow(waits, thread, MOST_LINKS))
}

/// Checks every link twice, the second time in reverse order. A thread that is stuck at the second
/// check is stuck for good: it keeps its locks, and the threads that wait for them keep waiting.
fn follow(waits: &Waits, thread: usize, links: usize) -> Option<Stuck> {
    let is_forks = |lock: &&FutexLock| lock.rank() == Rank::Fork;
    if awaited_by(waits, thread).any(|lock| is_forks(&lock)) {
        return Some(
            match awaited_by(waits, thread).all(|lock| is_forks(&lock)) {
                true => Stuck::Interrupted,
                false => Stuck::AtRest,
            },
        );
    }
    let lock = only_awaited_by(waits, thread)?;
    // The thread may have left its note since the check above.
    if is_forks(&lock) {
        return Some(Stuck::Interrupted);
    }
    let holder = lock.holder();
    let holds = match holder {
        Some(holder) if holder == me() => true,
        Some(holder) => links > 0 && follow(waits, holder, links - 1).is_some(),
        // The handler may have interrupted its thread between giving the lock up and the wake-up.
        None => {
            lock.wake_one();
            false
        }
    };
    let is_same = |now: &FutexLock| core::ptr::eq(now, lock);
    let is_stuck =
        holds && lock.holder() == holder && only_awaited_by(waits, thread).is_some_and(is_same);
    is_stuck.then_some(Stuck::AtRest)
}

/// The lock that a thread waits for. `None` if it waits for none, or for two: a handler of
/// signals runs on top of a wait.
fn only_awaited_by(waits: &Waits, thread: usize) -> Option<&FutexLock> {
    let mut locks = awaited_by(waits, thread);
    let (lock, None) = (locks.next()?, locks.next()) else {
        return None;
    };
    Some(lock)
}

/// The locks that a thread waits for. `waits` comes from [`Waits::while_kept`].
fn awaited_by(waits: &Waits, thread: usize) -> impl Iterator<Item = &FutexLock> {
    let locks = waits.awaited_by(thread);
    // SAFETY: a lock that its waiter keeps in memory: it does not go on while the fork looks.
    locks.filter_map(|lock| unsafe { lock.cast::<FutexLock>().as_ref() })
}
