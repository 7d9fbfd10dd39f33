//! Models of a fork's gate, explored by loom: threads change things under locks while one of them
//! forks.
//!
//! Locks, gate and waits are the real ones, compiled a second time here. Only [`futex`] differs:
//! its atomics are visible to the checker, and its kernel is a mutex and a condition variable. A
//! sleep with a timeout may end at once. loom treats sequentially consistent accesses as weaker
//! ones, so each has a full fence on either side.
//!
//! A change consists of two steps. A copy between the two is a failure, and so is a hang, in which
//! all threads sleep, or one retries forever.
//!
//! Bounds: two or three threads with one operation each, all interleavings within [`PREEMPTIONS`].
//!
//! The last tests break the rules on purpose and expect a failure.

#![allow(dead_code, unused_imports)]

use super::lock_loom;
use crate::base::sync::AtomicUsize;
use crate::base::sync::Ordering::Relaxed;
use futex::{Flaw, be, interrupt_next_wake};
use lock::FutexLock;
use lock_order::Rank;
use loom::sync::Arc;
use std::vec::Vec;

#[path = "../os/fork.rs"]
mod fork;
#[path = "../os/lock.rs"]
mod lock;
#[path = "../os/lock_order.rs"]
mod lock_order;

/// For the models with three threads; those with two have one more.
const PREEMPTIONS: usize = 2;
/// For one interleaving; more means a hang.
const MOST_BRANCHES: usize = 10_000;

mod thread {
    #[derive(Clone, Copy)]
    pub struct SignalMask;

    impl SignalMask {
        pub const NONE: SignalMask = SignalMask;

        pub fn all() -> SignalMask {
            SignalMask
        }
    }

    pub(super) fn mask_signals(mask: SignalMask) -> SignalMask {
        mask
    }
}

/// See the head of this file.
mod futex {
    pub(super) use crate::base::sync::Ordering;
    use crate::base::sync::{self as checked, fence};
    use loom::sync::{Condvar, Mutex};
    use std::cell::Cell;
    use std::vec::Vec;

    /// The part of the protocol that a model leaves out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Flaw {
        None,
        /// Sequential consistency.
        Order,
    }

    /// Executions so far, over all models; the contents of a static belong to one of them.
    static EXECUTION: std::sync::Mutex<(u64, Flaw)> = std::sync::Mutex::new((0, Flaw::None));

    pub(super) fn begin_execution(flaw: Flaw) {
        let mut now = EXECUTION.lock().unwrap();
        *now = (now.0 + 1, flaw);
    }

    fn now() -> (u64, Flaw) {
        *EXECUTION.lock().unwrap()
    }

    fn ordered<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
        let full = order == Ordering::SeqCst && now().1 != Flaw::Order;
        if full {
            fence(Ordering::SeqCst);
        }
        let result = access();
        if full {
            fence(Ordering::SeqCst);
        }
        result
    }

    macro_rules! atomic {
        ($name:ident, $value:ty, $($generic:ident)?) => {
            /// One that may be a static: made afresh for every execution, and never dropped.
            pub(super) struct $name$(<$generic: 'static>)? {
                first: $value,
                made: std::sync::Mutex<(u64, Option<&'static checked::$name$(<$generic>)?>)>,
            }

            // SAFETY: loom runs one thread at a time, and the pointers are plain values.
            unsafe impl$(<$generic>)? Sync for $name$(<$generic>)? {}
            // SAFETY: as above.
            unsafe impl$(<$generic>)? Send for $name$(<$generic>)? {}

            impl$(<$generic>)? core::fmt::Debug for $name$(<$generic>)? {
                fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    Ok(())
                }
            }

            impl$(<$generic>)? $name$(<$generic>)? {
                pub(super) const fn new(first: $value) -> Self {
                    Self { first, made: std::sync::Mutex::new((0, None)) }
                }

                fn get(&self) -> &'static checked::$name$(<$generic>)? {
                    let mut made = self.made.lock().unwrap();
                    match *made {
                        (execution, Some(atomic)) if execution == now().0 => atomic,
                        _ => {
                            let fresh = checked::$name::new(self.first);
                            let fresh = &*std::boxed::Box::leak(std::boxed::Box::new(fresh));
                            *made = (now().0, Some(fresh));
                            fresh
                        }
                    }
                }

                pub(super) fn load(&self, order: Ordering) -> $value {
                    ordered(order, || self.get().load(order))
                }

                pub(super) fn store(&self, value: $value, order: Ordering) {
                    ordered(order, || self.get().store(value, order));
                }
            }
        };
    }

    atomic!(AtomicUsize, usize,);
    atomic!(AtomicPtr, *mut T, T);

    impl AtomicUsize {
        pub(super) fn swap(&self, value: usize, order: Ordering) -> usize {
            ordered(order, || self.get().swap(value, order))
        }

        pub(super) fn compare_exchange(
            &self,
            old: usize,
            new: usize,
            order: Ordering,
            failed: Ordering,
        ) -> Result<usize, usize> {
            ordered(order, || {
                self.get().compare_exchange(old, new, order, failed)
            })
        }

        pub(super) fn fetch_max(&self, value: usize, order: Ordering) -> usize {
            ordered(order, || self.get().fetch_max(value, order))
        }

        pub(super) fn fetch_update(
            &self,
            order: Ordering,
            failed: Ordering,
            change: impl FnMut(usize) -> Option<usize>,
        ) -> Result<usize, usize> {
            ordered(order, || self.get().fetch_update(order, failed, change))
        }
    }

    loom::thread_local! {
        static NAME: Cell<usize> = Cell::new(0);
        /// What a signal handler does that runs before this thread's next wake-up.
        static HANDLER: Cell<Option<std::boxed::Box<dyn FnOnce()>>> = Cell::new(None);
    }

    loom::lazy_static! {
        static ref KERNEL: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
        static ref CHANGED: Condvar = Condvar::new();
    }

    /// The calling thread has this number from now on.
    pub(super) fn be(number: usize) {
        NAME.with(|name| name.set(number * 4));
    }

    pub(super) fn me() -> usize {
        NAME.with(Cell::get)
    }

    pub(super) fn interrupt_next_wake(handler: impl FnOnce() + 'static) {
        HANDLER.with(|next| next.set(Some(std::boxed::Box::new(handler))));
    }

    pub(super) const SPINS: u32 = 1;
    pub(super) const PLACES: usize = 3;
    /// The model reports a thread that never comes as a hang.
    pub(super) const MOST_WAITS: usize = usize::MAX;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Wake {
        One,
        All,
    }

    /// The kernel knows a sleeper by the word and its name.
    pub(super) fn sleep_while(word: &AtomicUsize, value: usize, ms: Option<u64>) {
        let sleeper = (core::ptr::from_ref(word).addr(), me());
        let mut sleepers = KERNEL.lock().unwrap();
        if word.load(Ordering::SeqCst) != value {
            return;
        }
        sleepers.push(sleeper);
        if ms.is_some() {
            drop(sleepers);
            loom::thread::yield_now();
            KERNEL.lock().unwrap().retain(|other| *other != sleeper);
            return;
        }
        while sleepers.contains(&sleeper) {
            sleepers = CHANGED.wait(sleepers).unwrap();
        }
    }

    pub(super) fn wake_sleepers(word: &AtomicUsize, count: Wake) {
        if let Some(handler) = HANDLER.with(Cell::take) {
            handler();
        }
        let word = core::ptr::from_ref(word).addr();
        let mut sleepers = KERNEL.lock().unwrap();
        let first = sleepers.iter().position(|&(on, _)| on == word);
        match (first, count) {
            (Some(first), Wake::One) => drop(sleepers.remove(first)),
            _ => sleepers.retain(|&(on, _)| on != word),
        }
        CHANGED.notify_all();
    }
}

/// Locks from left to right, and what is changed under the first.
struct World {
    left: FutexLock,
    middle: FutexLock,
    right: FutexLock,
    steps: [AtomicUsize; 2],
}

impl World {
    fn new() -> World {
        World {
            left: FutexLock::new(Rank::Step),
            middle: FutexLock::new(Rank::Draining),
            right: FutexLock::new(Rank::Pages),
            steps: [AtomicUsize::new(0), AtomicUsize::new(0)],
        }
    }

    /// Lets the checker see all words before there are two threads.
    fn touch(&self) {
        let locks = [&self.left, &self.middle, &self.right];
        let waits = locks.map(|lock| lock::GATE.waits.note(lock));
        drop(waits);
        self.fork(&locks);
    }

    fn change(&self) {
        for step in &self.steps {
            step.store(step.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Copies the process between closing and opening the gate.
    fn fork(&self, locks: &[&FutexLock]) {
        self.copy(locks, || self.assert_whole());
    }

    /// The same in a thread, or beside one, that is in the middle of a change.
    fn fork_whatever(&self, locks: &[&FutexLock]) {
        self.copy(locks, || ());
    }

    fn assert_whole(&self) {
        let [first, second] = self.steps.each_ref().map(|step| step.load(Relaxed));
        assert_eq!(first, second, "the copy finds a change half done");
    }

    fn copy(&self, locks: &[&FutexLock], look: impl FnOnce()) {
        let all: fork::EachLock<'_> = &|visit| locks.iter().for_each(|lock| visit(lock));
        let begin = || {
            // SAFETY: the gate is opened below, by this thread.
            unsafe { fork::FORK.begin() };
            fork::FORK.close(all, true)
        };
        while let Err(other) = begin() {
            // SAFETY: begun just now.
            unsafe { fork::FORK.in_parent() };
            fork::FORK.make_way(other);
        }
        look();
        // SAFETY: begun above.
        unsafe { fork::FORK.in_parent() };
    }
}

/// A thread's part.
type Part = fn(&Arc<World>);

/// One model at a time: they share the gate.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn explore<const PARTS: usize>(flaw: Flaw, parts: [Part; PARTS]) {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS + usize::from(PARTS == 2));
    model.max_branches = MOST_BRANCHES;
    model.check(move || {
        futex::begin_execution(flaw);
        let world = Arc::new(World::new());
        world.touch();
        let [first, others @ ..] = &parts[..] else {
            return;
        };
        let others: Vec<_> = others
            .iter()
            .enumerate()
            .map(|(number, &part)| {
                let world = world.clone();
                loom::thread::spawn(move || {
                    be(number + 2);
                    part(&world);
                })
            })
            .collect();
        be(1);
        first(&world);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

const FORKS: Part = |world| world.fork(&[&world.left, &world.right]);

const CHANGES: Part = |world| {
    let _guard = world.left.lock();
    world.change();
};

/// Changes under the left lock, before and after it waits for the right one.
const CHANGES_TWICE: Part = |world| {
    let _left = world.left.lock();
    world.change();
    let _right = world.right.lock();
    world.change();
};

/// Forks in a handler that interrupted a hold of the right lock.
const FORKS_INSIDE: Part = |world| {
    let _right = world.right.lock();
    world.fork(&[&world.left, &world.middle, &world.right]);
};

/// Forks in a handler that interrupted a change under the right lock.
const FORKS_RIGHT: Part = |world| {
    let _right = world.right.lock();
    world.steps[0].store(1, Relaxed);
    world.fork_whatever(&[&world.left, &world.right]);
    world.steps[1].store(1, Relaxed);
};

#[test]
fn a_copy_finds_every_change_whole() {
    explore(Flaw::None, [FORKS, CHANGES]);
    explore(Flaw::None, [FORKS, CHANGES_TWICE]);
}

#[test]
fn who_sleeps_for_a_lock_or_at_the_gate_is_woken() {
    explore(Flaw::None, [FORKS, CHANGES, CHANGES]);
}

#[test]
fn two_threads_may_fork() {
    explore(Flaw::None, [FORKS, FORKS]);
}

#[test]
fn a_fork_inside_does_not_wait_for_who_waits_for_it() {
    explore(Flaw::None, [FORKS_INSIDE, CHANGES_TWICE]);
}

#[test]
fn nor_for_who_waits_for_such_a_thread() {
    let links: Part = |world| {
        let _middle = world.middle.lock();
        let _right = world.right.lock();
    };
    let begins: Part = |world| {
        let _left = world.left.lock();
        world.change();
        let _middle = world.middle.lock();
        world.change();
    };
    explore(Flaw::None, [FORKS_INSIDE, begins, links]);
}

#[test]
fn two_threads_may_fork_inside() {
    let left: Part = |world| {
        let _left = world.left.lock();
        world.fork_whatever(&[&world.left, &world.right]);
    };
    explore(Flaw::None, [FORKS_RIGHT, left]);
}

/// Such a fork would copy half a change.
#[test]
fn a_fork_beside_waits_for_one_inside() {
    explore(Flaw::None, [FORKS, FORKS_RIGHT]);
}

/// The handler runs after the right lock is given up and before its waiters are woken.
#[test]
fn a_fork_wakes_whom_its_thread_was_about_to_wake() {
    let gives_up: Part = |world| {
        let right = world.right.lock();
        let handlers = world.clone();
        interrupt_next_wake(move || handlers.fork(&[&handlers.left, &handlers.right]));
        drop(right);
        interrupt_next_wake(|| ());
    };
    explore(Flaw::None, [gives_up, CHANGES_TWICE]);
}

#[test]
#[should_panic(expected = "a change half done")]
fn without_order_a_copy_finds_half_a_change() {
    explore(Flaw::Order, [FORKS, CHANGES]);
}

/// The gate stops a thread at the right lock while it holds the left one, for which the fork waits.
#[test]
#[should_panic(expected = "maximum number of branches")]
fn a_fork_that_closes_from_right_to_left_hangs() {
    let forks: Part = |world| {
        // SAFETY: as in `World::fork`.
        unsafe { fork::FORK.begin() };
        let end = fork::FORK.close(&|visit| visit(&world.right), true);
        assert_eq!(end, Ok(()));
        world.left.await_rest();
        // SAFETY: begun above.
        unsafe { fork::FORK.in_parent() };
    };
    explore(Flaw::None, [forks, CHANGES_TWICE]);
}
