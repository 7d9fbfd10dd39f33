//! Models of the purge thread's work, explored by loom: threads free memory past their magazines
//! while the purge thread deals with it and goes to sleep.
//!
//! The count and the bell are the real ones; the kernel's futex is that of
//! [`super::wakeup_models`]. If the thread sleeps while more than the floor is freed, and all
//! others are done, the model wakes it and fails.
//!
//! Bounds: one sleeper, one or two threads that free twice in all; interleavings within four
//! preemptions, those of two threads within two.
//!
//! The last test breaks a rule on purpose and expects that the thread oversleeps.

use super::wakeup_models::{Flaw, Pair};
use crate::base::policy::WAKE_BYTES;
use crate::reclaim::wakeup::{Bell, Freed, Rest, Urgency};
use loom::sync::Arc;
use std::vec::Vec;

/// Bytes of one call: more than the floor.
const BYTES: usize = WAKE_BYTES + 1;

/// Calls in all.
const CALLS: usize = 2;

/// How the thread goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Right,
    /// It does not read the bytes once all threads can see that it sleeps.
    NoLastLook,
}

struct World {
    freed: Freed,
    bell: Bell<Pair>,
}

impl World {
    /// As `Tide::note_freed`.
    fn free(&self) {
        if self.freed.note(BYTES) {
            self.bell.ring(Urgency::Soon);
        }
    }

    /// The thread, until it has dealt with all calls.
    fn purge(&self, way: Way) {
        while self.freed.attend() < CALLS * BYTES {
            let looks = way != Way::NoLastLook;
            self.bell
                .rest(Rest::Park(None), || looks && self.freed.is_wanted());
        }
    }
}

/// The thread sleeps through no call of `threads` threads.
fn dealt_with(way: Way, threads: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads > 1 { 2 } else { 4 });
    model.check(move || {
        let world = Arc::new(World {
            freed: Freed::new(),
            bell: Bell::of(Pair::new(Flaw::None)),
        });
        let purging = world.clone();
        let purger = loom::thread::spawn(move || purging.purge(way));
        let freeing: Vec<_> = (0..threads)
            .map(|_| {
                let world = world.clone();
                loom::thread::spawn(move || (0..CALLS / threads).for_each(|_| world.free()))
            })
            .collect();
        freeing
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        world.bell.words.end();
        purger.join().unwrap();
        assert!(
            !world.bell.words.is_overslept(),
            "freed bytes are slept over"
        );
    });
}

/// A thread that frees less than the floor rings for nothing, even if the purge thread has already
/// dealt with later bytes.
#[test]
fn little_that_is_freed_causes_no_ring() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let freed = Arc::new(Freed::new());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let freed = freed.clone();
                loom::thread::spawn(move || assert!(!freed.note(1), "a ring for nothing"))
            })
            .collect();
        freed.attend();
        others.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_thread_that_frees_twice_is_noticed_both_times() {
    dealt_with(Way::Right, 1);
}

#[test]
fn two_threads_that_free_are_noticed() {
    dealt_with(Way::Right, 2);
}

#[test]
#[should_panic(expected = "freed bytes are slept over")]
fn without_the_last_look_freed_bytes_are_slept_over() {
    dealt_with(Way::NoLastLook, 1);
}
