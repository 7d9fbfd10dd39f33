//! What the purge thread does while it is there: it sleeps until something of its own is due, or
//! until it is woken.
//!
//! What is due, and when, stands in [`super::schedule`].

use super::schedule::{Calendar, LEAST_MS, Reason};
use super::state::Told;
use super::wakeup::Rest;
use crate::cache::heap::HEAP;
use crate::hook::instruments;
use crate::os::futex::Woken;
use crate::os::sandbox;
use crate::pages::{Driver, Sweep};

/// How long it is deaf after it was woken in vain, in ms; twice as long after each further time, up
/// to 64 times.
const DEAF_MS: u64 = 1;
const MOST_DOUBLINGS: u32 = 6;

/// When it looks whether it is the last thread, in ms, once the first one has ended; twice as long
/// after each further look, up to 16 times.
const SWEEP_MS: u64 = 1000;
const MOST_SWEEP_MS: u64 = 16 * SWEEP_MS;

/// Up to this decay time, in ms, the thread gives back what it can where it leaves before a fork.
const SHORT_DECAY_MS: u64 = 10_000;

/// Until it is told to end, or the process has entered a sandbox.
pub(super) fn go_round() {
    HEAP.pages.limits().set_driver(Driver::Thread);
    let mut watch = Watch::new();
    while sandbox::allows_more() {
        let mut busy = false;
        match HEAP.tide.told() {
            Told::End => {
                // Not what a long decay time or `M_TRIM_THRESHOLD` keeps.
                let keeps = HEAP.decay_ms() > SHORT_DECAY_MS || HEAP.pages.limits().kept() > 0;
                if HEAP.tide.leaves_clean() && !keeps {
                    HEAP.decay(Reason::Demand);
                }
                return;
            }
            Told::MakeWay(bytes) => {
                HEAP.pages.purge_above(bytes);
                busy = true;
            }
            Told::Nothing => {}
        }
        busy |= instruments().answer_due();
        busy |= watch.look();
        watch.rest(busy);
    }
}

/// What the thread remembers.
struct Watch {
    rounds: Calendar,
    /// The last sleep, and how it ended.
    slept: Option<(Rest, Woken)>,
    /// When it last swept the caches of threads that are gone, in ms.
    swept: u64,
    /// How long after that it looks again, in ms.
    sweep_ms: u64,
    /// Times that it was woken in vain, one after the other.
    false_alarms: u32,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            rounds: Calendar::after(HEAP.tide.freed()),
            slept: None,
            swept: 0,
            sweep_ms: SWEEP_MS,
            false_alarms: 0,
        }
    }

    /// Does what is due. False if nothing was.
    fn look(&mut self) -> bool {
        if HEAP.tide.is_wanted() {
            HEAP.tide.attend();
            self.rounds.resume();
        }
        let now = HEAP.now_ms() + self.early_ms();
        if self.sweep_at().is_some_and(|at| at <= now) {
            self.swept = now;
            self.sweep_ms = (self.sweep_ms * 2).min(MOST_SWEEP_MS);
            HEAP.sweep();
        }
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if is_due(self.round_at()) {
            self.round();
            return true;
        }
        let purges = is_due(HEAP.pages.next_purge());
        if purges {
            HEAP.purge_spans(Reason::Age);
            self.heed_tails();
        }
        purges
    }

    /// Tails that no block's owner used need two rounds.
    fn heed_tails(&mut self) {
        if HEAP.pages.has_tails(Sweep::Idle) {
            self.rounds.resume();
        }
    }

    /// The clock is coarse: what is due within this many ms is due now for a thread that slept
    /// until then.
    fn early_ms(&self) -> u64 {
        match self.slept {
            Some((Rest::Doze(_) | Rest::Park(_), Woken::ByTime)) => LEAST_MS,
            _ => 0,
        }
    }

    /// Once the program's first thread has ended, this one may be the last, and nothing tells it
    /// so.
    fn sweep_at(&self) -> Option<u64> {
        let is_due = HEAP.registry.has_main_left();
        is_due.then_some(self.swept + self.sweep_ms)
    }

    fn round(&mut self) {
        let pressed = HEAP.is_pressed();
        let purged = HEAP.decay(if pressed { Reason::Demand } else { Reason::Age });
        let freed = HEAP.tide.attend();
        self.rounds
            .note_round(HEAP.now_ms(), pressed, purged, freed);
        self.heed_tails();
    }

    fn round_at(&self) -> Option<u64> {
        self.rounds.next(HEAP.decay_ms(), HEAP.is_pressed())
    }

    fn rest(&mut self, busy: bool) {
        let in_vain = match self.slept {
            _ if busy => 0,
            Some((Rest::Doze(_) | Rest::Park(_), Woken::Early)) => self.false_alarms + 1,
            Some((Rest::Deaf(_), _)) => self.false_alarms,
            _ => 0,
        };
        let is_new = in_vain > self.false_alarms;
        self.false_alarms = in_vain;
        let rest = match (is_new, self.round_at()) {
            (true, _) => Rest::Deaf(DEAF_MS << (in_vain - 1).min(MOST_DOUBLINGS)),
            (false, Some(_)) => Rest::Doze(self.next_ms().unwrap_or(LEAST_MS)),
            (false, None) => Rest::Park(self.next_ms()),
        };
        let woken = HEAP.tide.bell.rest(rest, || has_work(rest));
        self.slept = Some((rest, woken));
    }

    /// Time until something is due, in ms.
    fn next_ms(&self) -> Option<u64> {
        let now = HEAP.now_ms();
        let own = [HEAP.pages.next_purge(), self.round_at(), self.sweep_at()];
        let own = own.into_iter().flatten().min();
        let own = own.map(|at| at.saturating_sub(now).max(LEAST_MS));
        [own, instruments().due_in_ms()].into_iter().flatten().min()
    }
}

/// Whether there is something to do that the thread would sleep over. An observer may have asked
/// since the time to sleep was computed, and its answer may be due later than now, but before the
/// sleep ends.
fn has_work(rest: Rest) -> bool {
    let told = HEAP.tide.is_told();
    match rest {
        Rest::Deaf(_) => told,
        Rest::Doze(ms) => told || is_due_before(Some(ms)),
        Rest::Park(ms) => told || is_due_before(ms) || HEAP.tide.is_wanted(),
    }
}

/// Whether an observer is to be answered now, or clearly before `ms` from now; `None`: ever.
fn is_due_before(ms: Option<u64>) -> bool {
    let is_before = |due: u64| ms.is_none_or(|ms| due + LEAST_MS < ms);
    instruments()
        .due_in_ms()
        .is_some_and(|due| due == 0 || is_before(due))
}
