//! Models of the purge thread's sleep, explored by loom: wakers publish work and ring while the
//! thread goes to sleep.
//!
//! The bell is the real one. The kernel's futex is a mutex and a condition variable, which compares
//! and sleeps in one step. No sleep has a timeout, because a timeout would hide a lost wake-up. If
//! the thread still sleeps when all wakers are done, the model wakes it and fails.
//!
//! Bounds: one sleeper, one or two wakers with one ring each; all interleavings, those of two
//! wakers within [`PREEMPTIONS`].
//!
//! The last tests break the rules on purpose and expect that a wake-up is lost.

use crate::base::sync::{AtomicBool, AtomicU32, Ordering};
use crate::os::futex::Woken;
use crate::reclaim::wakeup::{Bell, Ear, Rest, Urgency, Words};
use loom::sync::{Arc, Condvar, Mutex};

/// For the models with two wakers.
const PREEMPTIONS: usize = 2;

/// The part of the protocol that a model leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// The kernel's comparison.
    Comparison,
    /// Publishing the work before the ring.
    Order,
    /// Looking for work once all threads can see that the thread sleeps.
    LastLook,
}

pub(super) struct Pair {
    shared: AtomicU32,
    own: AtomicU32,
    kernel: Mutex<Kernel>,
    changed: Condvar,
    flaw: Flaw,
}

#[derive(Default)]
struct Kernel {
    /// Rings so far, by ear.
    rings: [u32; 2],
    /// All wakers are done.
    over: bool,
    /// A sleeper was left asleep until then.
    overslept: bool,
}

impl Pair {
    pub(super) fn new(flaw: Flaw) -> Pair {
        Pair {
            shared: AtomicU32::new(0),
            own: AtomicU32::new(0),
            kernel: Mutex::new(Kernel::default()),
            changed: Condvar::new(),
            flaw,
        }
    }

    /// All wakers are done: a thread that sleeps on has missed one.
    pub(super) fn end(&self) {
        self.kernel.lock().unwrap().over = true;
        self.changed.notify_all();
    }

    pub(super) fn is_overslept(&self) -> bool {
        self.kernel.lock().unwrap().overslept
    }

    fn word(&self, ear: Ear) -> &AtomicU32 {
        match ear {
            Ear::Shared => &self.shared,
            Ear::Private => &self.own,
        }
    }

    fn wake(&self, ear: Ear) {
        self.kernel.lock().unwrap().rings[ear as usize] += 1;
        self.changed.notify_all();
    }
}

impl Words for Pair {
    fn read(&self, ear: Ear) -> u32 {
        self.word(ear).load(Ordering::SeqCst)
    }

    fn wait(&self, ear: Ear, seen: u32, _: Option<u64>) -> Woken {
        let mut kernel = self.kernel.lock().unwrap();
        let before = kernel.rings[ear as usize];
        let is_same = self.read(ear) == seen || self.flaw == Flaw::Comparison;
        while is_same && kernel.rings[ear as usize] == before {
            if kernel.over {
                kernel.overslept = true;
                break;
            }
            kernel = self.changed.wait(kernel).unwrap();
        }
        Woken::Early
    }

    fn ring(&self, ear: Ear) {
        self.own.fetch_add(1, Ordering::SeqCst);
        self.shared.fetch_add(1, Ordering::SeqCst);
        self.wake(ear);
    }
}

struct World {
    bell: Bell<Pair>,
    /// Work of two wakers.
    work: [AtomicBool; 2],
}

impl World {
    fn new(flaw: Flaw) -> Arc<World> {
        Arc::new(World {
            bell: Bell::of(Pair::new(flaw)),
            work: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    fn has_work(&self, waker: usize) -> bool {
        self.work[waker].load(Ordering::Relaxed)
    }

    /// A thread of the same process.
    fn call(&self, waker: usize, urgency: Urgency) {
        if self.bell.words.flaw == Flaw::Order {
            self.bell.ring(urgency);
        }
        self.work[waker].store(true, Ordering::Relaxed);
        if self.bell.words.flaw != Flaw::Order {
            self.bell.ring(urgency);
        }
    }

    /// Another process, which knows nothing of the state.
    fn observe(&self, waker: usize) {
        self.work[waker].store(true, Ordering::Release);
        self.bell.words.shared.fetch_add(1, Ordering::SeqCst);
        self.bell.words.wake(Ear::Shared);
    }

    /// The thread, until it has seen the work of this many wakers.
    fn sleep(&self, rest: Rest, wakers: usize) {
        let looks = self.bell.words.flaw != Flaw::LastLook;
        loop {
            let seen = [self.has_work(0), self.has_work(1)];
            if seen[..wakers].iter().all(|&seen| seen) {
                return;
            }
            let is_new = || (0..wakers).any(|waker| self.has_work(waker) && !seen[waker]);
            self.bell.rest(rest, || looks && is_new());
        }
    }
}

/// A waker's part.
type Waker = fn(&World);

/// A thread that sleeps in this way hears every waker.
fn heard<const WAKERS: usize>(flaw: Flaw, rest: Rest, wakers: [Waker; WAKERS]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (WAKERS > 1).then_some(PREEMPTIONS);
    model.check(move || {
        let world = World::new(flaw);
        let sleeping = world.clone();
        let sleeper = loom::thread::spawn(move || sleeping.sleep(rest, WAKERS));
        let wakers = wakers.map(|waker| {
            let world = world.clone();
            loom::thread::spawn(move || waker(&world))
        });
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        let pair = &world.bell.words;
        pair.end();
        sleeper.join().unwrap();
        assert!(!pair.is_overslept(), "a wake-up is lost");
    });
}

const SOON: Waker = |world| world.call(0, Urgency::Soon);
const NOW: Waker = |world| world.call(0, Urgency::Now);

#[test]
fn a_parked_thread_hears_of_work() {
    heard(Flaw::None, Rest::Park(None), [SOON]);
    heard(Flaw::None, Rest::Park(None), [NOW]);
}

#[test]
fn a_dozing_or_deaf_thread_hears_of_what_cannot_wait() {
    heard(Flaw::None, Rest::Doze(0), [NOW]);
    heard(Flaw::None, Rest::Deaf(0), [NOW]);
}

#[test]
fn an_observer_is_heard() {
    heard(Flaw::None, Rest::Park(None), [|world| world.observe(0)]);
}

#[test]
fn work_of_two_wakers_is_seen() {
    let other: Waker = |world| world.call(1, Urgency::Soon);
    heard(Flaw::None, Rest::Park(None), [SOON, other]);
}

#[test]
fn an_observer_and_a_waker_are_heard() {
    heard(
        Flaw::None,
        Rest::Park(None),
        [SOON, |world| world.observe(1)],
    );
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn without_the_comparison_a_ring_is_lost() {
    heard(Flaw::Comparison, Rest::Park(None), [SOON]);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_ring_before_the_work_is_lost() {
    heard(Flaw::Order, Rest::Park(None), [SOON]);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn without_the_last_look_work_is_lost() {
    heard(Flaw::LastLook, Rest::Park(None), [SOON]);
}
