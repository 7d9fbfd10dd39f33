//! Locks that allocate nothing and keep `errno`, and the gate by which a fork closes them: while
//! the kernel copies the process, no thread is inside the heap.
//!
//! [`FutexLock`] is the machine's. [`Lock`] is the same, except under a model checker, where it is
//! one the checker can schedule. [`super::lock_order`] is the table of all locks.
//!
//! Every lock has a [rank](super::lock_order), and the gate says up to which rank locks are closed.
//! A locker takes the lock's word, then looks at the gate. If the gate is closed for the lock's
//! rank, the locker steps back and waits until it opens. [`super::fork`] closes and opens it.
//!
//! A fork in a signal handler that interrupted the heap holds locks of the heap itself. Another
//! thread may hold a lock that the fork closes, and wait for one of these. It cannot continue
//! before the handler returns, so the fork must not wait for it. Every thread that is about to
//! sleep for a lock notes which lock ([`Waits`]), and the fork follows these notes from thread to
//! thread.

use super::futex::{
    AtomicPtr, AtomicUsize, Ordering, PLACES, SPINS, Wake, me, sleep_while, wake_sleepers,
};
#[cfg(loom)]
pub use super::lock_loom::{Guard, Lock};
pub use super::lock_order::Rank;
use super::lock_order::{CHECKS, assert_in_order, note_given_up, note_taken};
#[cfg(not(loom))]
pub use FutexGuard as Guard;
#[cfg(not(loom))]
pub use FutexLock as Lock;
use core::ptr::{from_ref, null_mut};

/// The low bits of [`Gate::word`] say up to which rank locks are closed, the others count forks.
const LEVEL: usize = 15;
const ONE_FORK: usize = LEVEL + 1;

/// How long a thread sleeps before it checks again whether a fork is reading the notes, in ms.
const LOOK_MS: u64 = 1;

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

// The section begins at a multiple of 1,024 bytes and is shorter, so it lies on one page. The heap
// comes before it (`cache/heap.rs`), and behind it what is zero at first.
#[cfg(not(loom))]
core::arch::global_asm!(
    ".pushsection neap_heap,\"aw\",@progbits",
    ".popsection",
    ".pushsection neap_fork,\"aw\",@progbits",
    ".p2align 10",
    ".popsection",
);

/// The process's.
#[unsafe(link_section = "neap_fork")]
pub(super) static GATE: Gate = Gate {
    word: AtomicUsize::new(0),
    awaited: AtomicUsize::new(0),
    forker: AtomicUsize::new(0),
    waits: Waits::none(),
};

/// Whether a fork has begun to close locks.
pub fn is_closing() -> bool {
    GATE.word.load(Ordering::SeqCst) & LEVEL != 0
}

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
            wake_sleepers(&self.word, Wake::All);
        }
    }
}

/// A thread that waits, and the lock that it waits for.
struct Place {
    /// 0: the place is free.
    thread: AtomicUsize,
    lock: AtomicPtr<()>,
}

/// Separate from [`Waits`], because a child reads only that.
static NOTED: [Place; PLACES] = [const {
    Place {
        thread: AtomicUsize::new(0),
        lock: AtomicPtr::new(null_mut()),
    }
}; PLACES];

/// Which thread waits for which lock.
///
/// The lock that a thread waits for is certain to stay in memory only while the thread waits. So a
/// thread that removes its note waits until no fork is reading it. Both sides write, then read,
/// with sequential consistency, so one of them sees the other.
pub(super) struct Waits {
    /// From here on, no place was ever taken.
    end: AtomicUsize,
    /// Not 0 while a fork looks at the locks that others wait for.
    looking: AtomicUsize,
}

/// While this lives, the thread waits for a lock.
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
    pub(super) fn note<L>(&self, lock: &L) -> Waiting<'_> {
        let take = |place: &Place| {
            place.thread.load(Ordering::Relaxed) == 0
                && place
                    .thread
                    .compare_exchange(0, me(), Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let number = NOTED.iter().position(take);
        let place = number.map(|number| {
            // Most often this takes a place before the end, so that waiting threads only read this
            // line.
            if self.end.load(Ordering::SeqCst) <= number {
                self.end.fetch_max(number + 1, Ordering::SeqCst);
            }
            let place = &NOTED[number];
            place
                .lock
                .store(from_ref(lock).cast_mut().cast(), Ordering::SeqCst);
            place
        });
        Waiting { waits: self, place }
    }

    fn noted(&self) -> impl Iterator<Item = &'static Place> {
        NOTED.iter().take(self.end.load(Ordering::SeqCst))
    }

    /// Runs `look`, during which every lock that is awaited stays in memory.
    pub(super) fn while_kept<R>(&self, look: impl FnOnce(&Self) -> R) -> R {
        self.looking.store(1, Ordering::SeqCst);
        let found = look(self);
        self.looking.store(0, Ordering::SeqCst);
        found
    }

    /// The locks that a thread waits for: more than one if a handler of signals runs on top of a
    /// wait.
    pub(super) fn awaited_by(&self, thread: usize) -> impl Iterator<Item = *const ()> {
        let of_thread = move |place: &&Place| place.thread.load(Ordering::SeqCst) == thread;
        let places = self.noted().filter(of_thread);
        let locks = places.map(|place| place.lock.load(Ordering::SeqCst).cast_const());
        locks.filter(|lock| !lock.is_null())
    }

    /// Whether `thread` waits for `lock`. If so, sleeps a while first. Any thread may call this.
    pub(super) fn await_change<L>(&self, thread: usize, lock: &L) -> bool {
        let lock = from_ref(lock).cast();
        let waits = self.awaited_by(thread).any(|awaited| awaited == lock);
        if waits {
            sleep_while(&self.looking, 0, Some(LOOK_MS));
        }
        waits
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

const FREE: usize = 0;
/// Added to the holder: threads may sleep on the lock.
const AWAITED: usize = 1;

/// A mutex of one word: [`FREE`], or its holder, with [`AWAITED`].
#[derive(Debug)]
pub struct FutexLock {
    state: AtomicUsize,
    rank: Rank,
}

/// Holds a [`FutexLock`]; gives it up when dropped.
#[derive(Debug)]
pub struct FutexGuard<'a> {
    lock: &'a FutexLock,
}

impl FutexLock {
    /// A free lock.
    pub const fn new(rank: Rank) -> Self {
        Self {
            state: AtomicUsize::new(FREE),
            rank,
        }
    }

    /// Its place in the order of locks.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> FutexGuard<'_> {
        // A fork comes from a handler that may have interrupted any holder.
        if CHECKS && !GATE.is_forker() {
            assert_in_order(self.rank);
        }
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Takes the lock if it is free, and open.
    #[inline]
    pub fn try_lock(&self) -> Option<FutexGuard<'_>> {
        self.take(me())
    }

    /// The thread that holds the lock.
    pub(super) fn holder(&self) -> Option<usize> {
        match self.state.load(Ordering::SeqCst) & !AWAITED {
            FREE => None,
            holder => Some(holder),
        }
    }

    /// Whether the calling thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.holder().is_some_and(|holder| holder == me())
    }

    /// First the word, then the gate: see [`self`].
    #[inline]
    fn take(&self, value: usize) -> Option<FutexGuard<'_>> {
        self.state
            .compare_exchange(FREE, value, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        let guard = FutexGuard { lock: self };
        note_taken(self.rank);
        if self.rank != Rank::Apart && GATE.stops(self.rank) {
            drop(guard);
            return None;
        }
        Some(guard)
    }

    #[cold]
    fn lock_contended(&self) -> FutexGuard<'_> {
        let _waiting = GATE.waits.note(self);
        let mut value = me();
        loop {
            GATE.wait(self.rank);
            for _ in 0..SPINS {
                if self.state.load(Ordering::Relaxed) == FREE
                    && let Some(guard) = self.take(value)
                {
                    return guard;
                }
                core::hint::spin_loop();
            }
            // Sleepers are woken one at a time. The lock then counts as awaited, which costs at
            // most one needless wake-up.
            value |= AWAITED;
            match self.announce() {
                FREE => {
                    if let Some(guard) = self.take(value) {
                        return guard;
                    }
                }
                held => sleep_while(&self.state, held, None),
            }
        }
    }

    /// Marks a held lock as awaited. Returns its new word; [`FREE`] if no thread holds it.
    fn announce(&self) -> usize {
        let mark = |state| (state != FREE).then_some(state | AWAITED);
        self.state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark)
            .map_or(FREE, |held| held | AWAITED)
    }

    /// Sleeps as long as the lock is held, for at most `ms` milliseconds if there are any. May
    /// return early; false if no thread held it.
    pub(super) fn sleep_while_held(&self, ms: Option<u64>) -> bool {
        match self.announce() {
            FREE => false,
            held => {
                sleep_while(&self.state, held, ms);
                true
            }
        }
    }

    /// In a child of fork: frees the lock if its holder stayed in the parent. Returns whether it
    /// did.
    pub fn free_if_left(&self) -> bool {
        let is_left = self.holder().is_some_and(|holder| holder != me());
        if is_left {
            self.state.store(FREE, Ordering::Release);
        }
        is_left
    }

    pub(super) fn wake_one(&self) {
        wake_sleepers(&self.state, Wake::One);
    }

    /// Gives up the lock on behalf of a guard that was forgotten.
    ///
    /// # Safety
    /// - The calling thread took the lock and forgot the guard.
    #[inline]
    pub unsafe fn force_unlock(&self) {
        debug_assert!(self.is_mine());
        note_given_up(self.rank);
        if self.state.swap(FREE, Ordering::SeqCst) & AWAITED != 0 {
            self.wake_one();
        }
    }
}

impl Drop for FutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard represents the lock taken by this thread, and is gone after this.
        unsafe { self.lock.force_unlock() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    #[test]
    fn only_one_holder_at_a_time() {
        struct Shared(FutexLock, crate::base::sync::UnsafeCell<u64>);
        // SAFETY: the cell is only touched under the lock.
        unsafe impl Sync for Shared {}
        let shared = Arc::new(Shared(
            FutexLock::new(Rank::Apart),
            crate::base::sync::UnsafeCell::new(0),
        ));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        let _guard = shared.0.lock();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        // SAFETY: all threads are gone.
        assert_eq!(unsafe { *shared.1.get() }, 40_000);
    }

    /// A thread that was woken alone wakes the next one.
    #[test]
    fn no_sleeper_is_forgotten() {
        for _ in 0..20 {
            let lock = Arc::new(FutexLock::new(Rank::Apart));
            let guard = lock.lock();
            let wait = |_| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || drop(lock.lock()))
            };
            let sleepers: Vec<_> = (0..8).map(wait).collect();
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(guard);
            sleepers
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn a_held_lock_is_not_had_until_it_is_given_up() {
        let lock = FutexLock::new(Rank::Apart);
        core::mem::forget(lock.lock());
        assert!(lock.try_lock().is_none());
        // SAFETY: this thread holds it, the guard is forgotten.
        unsafe { lock.force_unlock() };
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn contention_keeps_errno() {
        let lock = Arc::new(FutexLock::new(Rank::Apart));
        let guard = lock.lock();
        let waiter = {
            let lock = Arc::clone(&lock);
            std::thread::spawn(move || {
                crate::os::loader::set_errno(77);
                drop(lock.lock());
                crate::os::loader::errno()
            })
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(guard);
        assert_eq!(waiter.join().unwrap(), 77);
    }
}
