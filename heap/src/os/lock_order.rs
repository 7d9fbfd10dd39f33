//! The order of locks: the one table of them. Debug builds check it.
//!
//! A thread that holds a lock waits only for locks further down. One further up, or of its own
//! kind, it may only try. A fork closes the gate in this order ([`super::fork`]). Under the locks
//! of [`NO_WAITS`], for which all threads wait, a thread calls the kernel for nothing and waits for
//! no lock at all. Exempt is what costs no system call: the clock, and the size of a page.
//!
//! What a fork's child finds: what its own thread was changing, when a handler of
//! signals interrupted it and forked, it goes on changing, and the lock stays held. Every other
//! lock that is held the child sets free, but for those of a thread that was about to fork in a
//! handler itself: these stay held. Else the holder stood where it waited for another lock, for the
//! gate has waited for all others. Lost is memory that the child neither uses nor gives back: at
//! most some pieces of a few MiB, most of them not resident.

use super::futex::me;
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};

/// A line of the table.
#[derive(Debug)]
pub struct Row {
    /// Where it stands.
    pub rank: Rank,
    /// What it is called.
    pub name: &'static str,
}

macro_rules! order {
    ($($number:literal $rank:ident: $name:literal, $guards:literal, $left:literal;)*) => {
        /// A lock's place in the order. That of the depots is 0 in memory, so their table is zero
        /// at first, and takes no room in the library's file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(i8)]
        pub enum Rank {
            $(
                #[doc = concat!($name, ": ", $guards, ". If the holder stays in a fork's parent: ", $left)]
                $rank = $number - DEPOT,
            )*
            /// That of a fork itself. It is never closed.
            Fork,
            /// Never closed: the holder also holds a lock that is, or the child does without.
            Apart,
            /// That of the program's action of a fault ([`super::fault`]). It is never closed.
            Fault,
        }

        /// The locks that a fork closes.
        pub const ORDER: &[Row] = &[$(Row {
            rank: Rank::$rank,
            name: $name,
        }),*];
    };
}

/// The depots' place.
const DEPOT: i8 = 9;

impl Rank {
    /// Its place in the order, from 1.
    pub(super) const fn place(self) -> usize {
        (self as i8 + DEPOT) as usize
    }
}

order! {
    1 StatusPage: "status page", "the page itself, and its figures", "the page goes with the parent's";
    2 Quarantine: "quarantine", "blocks held back by `--check` or `--harden`", "a block that was freed is lost";
    3 Profile: "profile's region", "the sites and the live samples", "there is none";
    4 Pace: "profiler's pace", "the sampling rate of all caches", "its cache follows the next switch";
    5 Guarded: "guarded blocks", "the pool of `--guard`", "the block that was given out or freed is lost";
    6 Step: "step", "a step of a round of decay", "slabs to purge are lost";
    7 Draining: "draining", "what one thread takes from others' magazines", "these blocks are lost";
    8 Registry: "registry", "the list of caches", "it is whole; the child keeps its own cache only";
    9 Depot: "depot", "the slabs of one size class and user", "no holder waits";
    10 Stacks: "stacks", "ended stacks, and records", "records that were being made are lost";
    11 Committing: "committing", "memory on its way from the kernel", "it is committed once more, or its arena ends";
    12 Purging: "purging", "a piece of a free span, or a block's tail, on its way to the kernel", "the piece is lost";
    13 Pages: "page heap", "spans", "no holder waits";
}

/// All threads wait for these. Their holders wait for nothing but a page fault in a magazine.
const NO_WAITS: [Rank; 2] = [Rank::Depot, Rank::Pages];

/// In debug builds.
pub(super) const CHECKS: bool = cfg!(all(debug_assertions, not(loom)));

/// How many threads that hold locks are known at once. More go unchecked.
const PLACES: usize = 64;
const RANKS: u32 = 16;
const ALL_RANKS: usize = (1 << RANKS) - 1;

/// The threads that hold locks: [`me`], and below it a bit for each rank.
static HELD: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

const fn bit(rank: Rank) -> usize {
    1 << rank.place()
}

const SILENT: usize = bit(NO_WAITS[0]) | bit(NO_WAITS[1]);

/// The ranks of the locks that the calling thread holds, as bits.
fn held() -> usize {
    let mut words = HELD.iter().map(|place| place.load(Relaxed));
    let own = words.find(|word| word >> RANKS == me());
    own.map_or(0, |word| word & ALL_RANKS)
}

/// Whether the calling thread is known to hold a lock of this rank, or not known not to.
#[cfg(test)]
pub fn may_hold(rank: Rank) -> bool {
    !CHECKS || held() & bit(rank) != 0
}

/// The process ends in the calling thread, perhaps in a handler of signals that interrupted holders
/// of locks which nothing needs any more.
pub fn forget_held() {
    if CHECKS {
        change(|_| 0);
    }
}

/// Changes what the calling thread holds. Without a place it takes one, if there is something to
/// note.
#[inline(never)]
fn change(ranks: impl Fn(usize) -> usize) {
    let thread = me() << RANKS;
    let new = |old: usize| match ranks(old & ALL_RANKS) {
        0 => 0,
        held => thread | held,
    };
    let replaced = |which: usize| {
        let is_it = |old: usize| old & !ALL_RANKS == which;
        let replace = |place: &AtomicUsize| {
            place.fetch_update(Relaxed, Relaxed, |old| is_it(old).then(|| new(old)))
        };
        HELD.iter().any(|place| replace(place).is_ok())
    };
    let _ = replaced(thread) || replaced(0);
}

/// The calling thread has taken a lock.
#[inline(always)]
pub(super) fn note_taken(rank: Rank) {
    if CHECKS && rank < Rank::Fork {
        change(|ranks| ranks | bit(rank));
    }
}

/// The calling thread gives a lock up.
#[inline(always)]
pub(super) fn note_given_up(rank: Rank) {
    if CHECKS && rank < Rank::Fork {
        change(|ranks| ranks & !bit(rank));
    }
}

/// In a fork's child: what other threads held is none of its.
#[inline(always)]
pub(super) fn forget_others() {
    if CHECKS {
        let others = HELD
            .iter()
            .filter(|place| place.load(Relaxed) >> RANKS != me());
        others.for_each(|place| place.store(0, Relaxed));
    }
}

/// The calling thread may wait for a lock: debug builds end the process, unit tests panic, if it
/// holds one that stands further down. Out of line: some callers have small stacks.
#[inline(never)]
pub(super) fn assert_in_order(rank: Rank) {
    let wrong = held() & (SILENT | !(bit(rank) - 1));
    // A fork and a fault may come in a handler that interrupted any holder.
    if wrong != 0 && ![Rank::Fork, Rank::Fault].contains(&rank) {
        let holds = name_of(wrong.trailing_zeros() as usize);
        let waits = name_of(rank.place());
        fail(format_args!(
            "holds the lock {holds}, and waits for the lock {waits}"
        ));
    }
}

/// The calling thread may call the kernel: debug builds end the process, unit tests panic, if it
/// holds a lock of [`NO_WAITS`].
#[inline(always)]
pub fn assert_free() {
    if CHECKS && held() & SILENT != 0 {
        fail(format_args!(
            "a system call under a lock for which all others wait"
        ));
    }
}

fn name_of(rank: usize) -> &'static str {
    ORDER.get(rank - 1).map_or("without rank", |row| row.name)
}

#[cold]
fn fail(what: core::fmt::Arguments<'_>) -> ! {
    #[cfg(test)]
    panic!("{what}");
    #[cfg(not(test))]
    crate::os::process::fatal(what);
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::os::lock::FutexLock;

    fn panics<R>(work: impl FnOnce() -> R) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(work()))).is_err()
    }

    #[test]
    fn numbers_follow_the_table() {
        let numbers = ORDER.iter().map(|row| row.rank.place());
        assert!(numbers.eq(1..=ORDER.len()));
        assert_eq!(Rank::Fork.place(), ORDER.len() + 1);
    }

    #[test]
    fn only_locks_further_down_are_awaited() {
        let of = |rank| FutexLock::new(rank);
        let [registry, other, step, stacks] =
            [Rank::Registry, Rank::Registry, Rank::Step, Rank::Stacks].map(of);
        let held = registry.lock();
        assert!(panics(|| step.lock()) && panics(|| other.lock()));
        drop((
            step.try_lock().unwrap(),
            stacks.lock(),
            of(Rank::Apart).lock(),
        ));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(step.lock()));
            other.join().unwrap();
        });
        drop(held);
        drop(step.lock());
    }

    #[test]
    fn no_system_call_and_no_wait_under_the_page_heaps_lock() {
        let (pages, stacks) = (FutexLock::new(Rank::Pages), FutexLock::new(Rank::Stacks));
        let [depot, apart, fault] = [Rank::Depot, Rank::Apart, Rank::Fault].map(FutexLock::new);
        let held = pages.lock();
        assert!(panics(|| apart.lock()));
        drop(fault.lock());
        assert!(panics(assert_free));
        std::thread::scope(|scope| scope.spawn(assert_free).join().unwrap());
        drop(held);
        assert_free();
        let held = depot.lock();
        assert!(panics(|| pages.lock()) && panics(|| stacks.lock()));
        drop(held);
    }
}
