//! Which thread waits for which lock.
//!
//! A fork in a signal handler that interrupted the heap holds locks of the heap itself. Another
//! thread may hold a lock that the fork closes, and wait for one of these: it cannot go on before
//! the handler returns. So the fork must not wait for it. Every thread that is about to sleep for a
//! lock says which lock, and the fork [follows](Waits::stuck) these words from thread to thread.
//!
//! The lock that a thread waits for stays in memory while the thread waits, and no longer. So who
//! leaves its place waits until no fork is looking. Both sides write, then read, sequentially
//! consistent: one of them sees the other.

use super::lock::{FutexLock, Rank};
use super::machine::{AtomicPtr, AtomicUsize, Ordering, PLACES, me, sleep_while};
use core::ptr::{from_ref, null_mut};

/// Longer chains of waits are not followed: every lock in one stands to the right of the one
/// before.
const MOST_LINKS: usize = 16;

/// How long a thread sleeps before it looks again whether a fork is looking, in ms.
const LOOK_MS: u64 = 1;

/// Why a thread cannot go on before a fork is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// It waits for a lock: what it changes is whole.
    AtRest,
    /// It is about to fork itself. If it holds locks, it does so in a handler that interrupted a
    /// change.
    Interrupted,
}

/// A thread that waits, and the lock that it waits for.
struct Place {
    /// 0: the place is free.
    thread: AtomicUsize,
    lock: AtomicPtr<FutexLock>,
}

/// Apart from [`Waits`], which a child reads: these it need not.
static NOTED: [Place; PLACES] = [const {
    Place {
        thread: AtomicUsize::new(0),
        lock: AtomicPtr::new(null_mut()),
    }
}; PLACES];

/// See the head of this file.
pub(super) struct Waits {
    /// No place from here on was ever taken.
    end: AtomicUsize,
    /// Not 0 while a fork looks at the locks that others wait for.
    looking: AtomicUsize,
}

/// The thread waits for a lock as long as this lives.
#[must_use]
pub struct Waiting<'a> {
    waits: &'a Waits,
    place: Option<&'static Place>,
}

impl Waits {
    pub(super) const fn none() -> Waits {
        Waits {
            end: AtomicUsize::new(0),
            looking: AtomicUsize::new(0),
        }
    }

    /// The calling thread is about to wait for `lock`.
    pub(super) fn note(&self, lock: &FutexLock) -> Waiting<'_> {
        let take = |place: &Place| {
            place.thread.load(Ordering::Relaxed) == 0
                && place
                    .thread
                    .compare_exchange(0, me(), Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let number = NOTED.iter().position(take);
        let place = number.map(|number| {
            // Most often a place before the end: then all who wait only read this line.
            if self.end.load(Ordering::SeqCst) <= number {
                self.end.fetch_max(number + 1, Ordering::SeqCst);
            }
            let place = &NOTED[number];
            place
                .lock
                .store(from_ref(lock).cast_mut(), Ordering::SeqCst);
            place
        });
        Waiting { waits: self, place }
    }

    fn noted(&self) -> impl Iterator<Item = &'static Place> {
        NOTED.iter().take(self.end.load(Ordering::SeqCst))
    }

    /// For a fork: why `thread` cannot go on before the calling thread gives a lock up, if so it
    /// is.
    pub(super) fn stuck(&self, thread: usize) -> Option<Stuck> {
        self.looking.store(1, Ordering::SeqCst);
        let stuck = self.follow(thread, MOST_LINKS);
        self.looking.store(0, Ordering::SeqCst);
        stuck
    }

    /// Looks at every link twice, the last one first the second time. A thread that was stuck at
    /// the second look is stuck for good, so what it holds it holds, and who waits for that waits.
    fn follow(&self, thread: usize, links: usize) -> Option<Stuck> {
        let is_forks = |lock: &&FutexLock| lock.rank() == Rank::Fork;
        if self.awaited_by(thread).any(|lock| is_forks(&lock)) {
            return Some(match self.awaited_by(thread).all(|lock| is_forks(&lock)) {
                true => Stuck::Interrupted,
                false => Stuck::AtRest,
            });
        }
        let lock = self.only_awaited_by(thread)?;
        let holder = lock.holder();
        let holds = match holder {
            Some(holder) if holder == me() => true,
            Some(holder) => links > 0 && self.follow(holder, links - 1).is_some(),
            // The handler may have interrupted its thread between giving the lock up and waking who
            // waits.
            None => {
                lock.wake_one();
                false
            }
        };
        let is_same = |now: &FutexLock| core::ptr::eq(now, lock);
        let is_stuck =
            holds && lock.holder() == holder && self.only_awaited_by(thread).is_some_and(is_same);
        is_stuck.then_some(Stuck::AtRest)
    }

    /// The lock that a thread waits for. `None` if it waits for none, or for two: a handler of
    /// signals runs on top of a wait.
    fn only_awaited_by(&self, thread: usize) -> Option<&FutexLock> {
        let mut locks = self.awaited_by(thread);
        let (lock, None) = (locks.next()?, locks.next()) else {
            return None;
        };
        Some(lock)
    }

    fn awaited_by(&self, thread: usize) -> impl Iterator<Item = &FutexLock> {
        let of_thread = move |place: &&Place| place.thread.load(Ordering::SeqCst) == thread;
        let places = self.noted().filter(of_thread);
        // SAFETY: null, or a lock that its waiter keeps in memory: it does not go on while
        // `looking` is set.
        places.filter_map(|place| unsafe { place.lock.load(Ordering::SeqCst).as_ref() })
    }

    /// In a fork's child: all threads but the calling one stayed in the parent.
    pub(super) fn keep_own(&self) {
        let is_others = |place: &&Place| ![0, me()].contains(&place.thread.load(Ordering::Relaxed));
        self.noted().filter(is_others).for_each(Place::clear);
    }
}

impl Place {
    fn clear(&self) {
        self.lock.store(null_mut(), Ordering::SeqCst);
        self.thread.store(0, Ordering::SeqCst);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else {
            return;
        };
        place.clear();
        while self.waits.looking.load(Ordering::SeqCst) != 0 {
            sleep_while(&self.waits.looking, 1, Some(LOOK_MS));
        }
    }
}
