//! What a round returns to the kernel, and when the next one is due. Nothing here touches the heap.
//! [`super::round`] carries it out, and [`super::watch`] sleeps until something is due.
//!
//! Other files decide the rest: `base/policy.rs` how long free spans stay, `pages/limits.rs` the
//! bounds on them, `pages/tails.rs` which tails a sweep takes, and `stacks/warm.rs` the surplus of
//! stacks. Rounds come half a decay time apart ([`pause_ms`]).

use crate::pages::{Age, Driver, Sweep};
use crate::slab::Scope;
use crate::slab::decommitted::Cursor;

/// Least time between two purges of the thread, in ms.
pub(super) const LEAST_MS: u64 = 10;
/// Least time between two rounds of callers, in ms.
const LEAST_ROUND_MS: u64 = 4;
/// Time between two rounds of the thread under pressure, in ms; twice as long after each that
/// gained little.
const PRESSED_MS: u64 = 25;
/// The thread's rounds stop after this many without anything to do.
const IDLE_ROUNDS: u32 = 2;

/// A round under pressure that gained less than this many bytes gained little.
pub(super) const CALLERS_WORTH: usize = 64 << 10;
const THREAD_WORTH: usize = 1 << 20;

/// Why memory is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It idled.
    Age,
    /// Memory is short, and callers help.
    Shortage,
    /// All is to go that can: a request to trim, or the thread while memory is short.
    Demand,
    /// A request was refused. Free spans are room for it.
    Refusal,
}

impl Reason {
    /// Which magazines are emptied.
    pub(super) fn magazines(self) -> Scope {
        match self {
            Reason::Age | Reason::Shortage => Scope::Idle,
            Reason::Demand | Reason::Refusal => Scope::All,
        }
    }

    /// Stacks go that ended at this time (ms) or before, and slabs that have been empty since.
    pub(super) fn idle_since(self, now: u64, decay_ms: u64) -> u64 {
        match self {
            Reason::Age | Reason::Shortage => now.saturating_sub(decay_ms / 2),
            Reason::Demand | Reason::Refusal => u64::MAX,
        }
    }

    /// From which slabs in use pages of free blocks go. Only a hard limit counts them.
    pub(super) fn slab_pages(self, has_hard: bool) -> Option<Scope> {
        match self {
            Reason::Age => Some(Scope::Idle),
            Reason::Refusal if !has_hard => None,
            Reason::Shortage | Reason::Demand | Reason::Refusal => Some(Scope::All),
        }
    }

    /// Which free spans go.
    pub(super) fn spans(self) -> Option<Scope> {
        match self {
            Reason::Age => Some(Scope::Idle),
            Reason::Demand => Some(Scope::All),
            // Callers purge them past the decay time, whatever round there is.
            Reason::Shortage | Reason::Refusal => None,
        }
    }

    /// Which blocks' tails go. Rounds follow each other quickly while memory is short, so those of
    /// blocks that were handed out a moment ago stay even then.
    pub(super) fn tails(self) -> Option<Sweep> {
        match self {
            Reason::Age | Reason::Demand => Some(Sweep::Idle),
            Reason::Shortage | Reason::Refusal => None,
        }
    }

    /// The age of the spans that a round frees. New ones merge before they go.
    pub(super) fn age(self) -> Age {
        match self {
            Reason::Age | Reason::Shortage => Age::Old,
            Reason::Demand | Reason::Refusal => Age::New,
        }
    }
}

/// Time between two rounds, in ms. While memory is short, `vain` rounds in a row gained little.
pub(super) fn pause_ms(driver: Driver, decay_ms: u64, vain: Option<u32>) -> u64 {
    let half = decay_ms / 2;
    match (driver, vain) {
        (Driver::Thread, None) => half.max(2 * LEAST_MS),
        (Driver::Thread, Some(vain)) => (PRESSED_MS << vain.min(8)).min(half.max(PRESSED_MS)),
        (Driver::Callers, Some(0)) => 0,
        (Driver::Callers, Some(_)) => LEAST_ROUND_MS,
        (Driver::Callers, None) => half.max(LEAST_ROUND_MS),
    }
}

/// A round, in bounded steps.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) reason: Reason,
    pub(super) stage: Stage,
    /// When it began, in ms.
    pub(super) began: u64,
    /// Bytes that it gave back so far.
    pub(super) gained: usize,
}

/// Where a round stands. What a stage frees, a later one gives back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// So many threads' caches are still to be looked at.
    Magazines(usize),
    Stacks,
    Slabs(Cursor),
    Over,
}

/// When the thread's next round is due.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    /// When the last round ended, in ms.
    last: u64,
    /// Bytes freed past magazines by then.
    freed: usize,
    /// Rounds that are still to come, unless one finds something to do.
    left: u32,
    /// Rounds under pressure that gained little, one after the other.
    vain: u32,
}

impl Calendar {
    /// Nothing is due; so far `freed` bytes went past magazines.
    pub(super) fn after(freed: usize) -> Calendar {
        Calendar {
            freed,
            ..Calendar::default()
        }
    }

    /// More than the floor was freed: rounds come until they find nothing.
    pub(super) fn resume(&mut self) {
        self.left = IDLE_ROUNDS;
    }

    /// When the next round is due, in ms; `None` while nothing is freed.
    pub(super) fn next(&self, decay_ms: u64, pressed: bool) -> Option<u64> {
        let vain = pressed.then_some(self.vain);
        (self.left > 0).then(|| self.last + pause_ms(Driver::Thread, decay_ms, vain))
    }

    /// A round ended at `now` (ms), which gave back `purged` bytes; so far `freed` bytes went past
    /// magazines.
    pub(super) fn note_round(&mut self, now: u64, pressed: bool, purged: usize, freed: usize) {
        let is_vain = pressed && purged < THREAD_WORTH;
        self.vain = if is_vain { self.vain + 1 } else { 0 };
        let is_quiet = purged == 0 && freed == self.freed;
        self.left = if is_quiet {
            self.left.saturating_sub(1)
        } else {
            IDLE_ROUNDS
        };
        (self.last, self.freed) = (now, freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY_MS: u64 = 1000;

    #[test]
    fn rounds_come_half_a_decay_time_apart_until_two_found_nothing() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.next(DECAY_MS, false), None, "nothing was freed");
        calendar.resume();
        calendar.note_round(10_000, false, 4096, 1);
        assert_eq!(calendar.next(DECAY_MS, false), Some(10_500));
        calendar.note_round(10_500, false, 0, 1);
        assert_eq!(calendar.next(DECAY_MS, false), Some(11_000));
        calendar.note_round(11_000, false, 0, 1);
        assert_eq!(calendar.next(DECAY_MS, false), None);
        // Something went past a magazine meanwhile.
        calendar.resume();
        calendar.note_round(12_000, false, 0, 1);
        calendar.note_round(12_500, false, 0, 2);
        assert_eq!(calendar.next(DECAY_MS, false), Some(13_000));
    }

    #[test]
    fn rounds_under_pressure_come_less_often_while_they_gain_little() {
        let mut calendar = Calendar::default();
        for (last, pause) in [
            (1000, 50),
            (2000, 100),
            (3000, 200),
            (4000, 400),
            (5000, 500),
        ] {
            calendar.resume();
            calendar.note_round(last, true, 4096, 0);
            assert_eq!(calendar.next(DECAY_MS, true), Some(last + pause));
        }
        calendar.note_round(6000, true, 2 << 20, 0);
        assert_eq!(calendar.next(DECAY_MS, true), Some(6025));
        assert_eq!(
            calendar.next(DECAY_MS, false),
            Some(6500),
            "no longer short"
        );
    }

    #[test]
    fn free_spans_are_a_refused_requests_room() {
        assert_eq!(Reason::Refusal.spans(), None);
        assert_eq!(Reason::Refusal.slab_pages(false), None);
        assert_eq!(Reason::Refusal.slab_pages(true), Some(Scope::All));
        assert_eq!(Reason::Demand.spans(), Some(Scope::All));
        assert_eq!(Reason::Age.idle_since(5000, DECAY_MS), 4500);
    }
}
