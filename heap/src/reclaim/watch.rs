//! What the purge thread does while it is there: it sleeps until something of its own is due, or
//! until it is woken.
//!
//! Two things are its own. *Free spans* are purged when the oldest reaches the decay time, together
//! with those that reach it within a quarter of that. *Rounds* over magazines, warm slabs, stacks
//! and pages inside slabs come half a decay time apart, from the moment that more than a floor was
//! freed (`Tide::is_wanted`) until [`IDLE_ROUNDS`] found nothing.

use super::state::Told;
use super::wakeup::Rest;
use crate::cache::heap::HEAP;
use crate::hook::instruments;
use crate::os::futex::Woken;
use crate::os::sandbox;
use crate::pages::Driver;
use crate::slab::Round;

/// Least time between two purges, in ms.
const LEAST_MS: u64 = 10;
/// Time between two rounds under pressure, in ms; twice as long after each that gained less than
/// [`WORTH_BYTES`].
const PRESSED_MS: u64 = 25;
const WORTH_BYTES: usize = 1 << 20;
/// Rounds stop after this many without anything to do.
const IDLE_ROUNDS: u32 = 2;
/// How long it is deaf after it was woken in vain, in ms; twice as long after each further time, up
/// to 64 times.
const DEAF_MS: u64 = 1;
const MOST_DOUBLINGS: u32 = 6;

/// Until it is told to end, or the process has entered a sandbox.
pub(super) fn go_round() {
    HEAP.pages.set_driver(Driver::Thread);
    let mut watch = Watch::new();
    while sandbox::allows_more() {
        let mut busy = match HEAP.tide.told() {
            Told::End => return,
            Told::MakeWay { most } => {
                HEAP.pages.purge_over(most);
                true
            }
            Told::Nothing => false,
        };
        busy |= instruments().answer_due();
        busy |= watch.look();
        watch.rest(busy);
    }
}

/// What the thread remembers.
struct Watch {
    /// When the next round is due, in ms; `None` while nothing is freed.
    round_at: Option<u64>,
    /// When the last round was, in ms.
    last_round: u64,
    /// Bytes freed past magazines at the last round.
    freed: usize,
    /// Rounds without anything to do, one after the other.
    idle_rounds: u32,
    /// Rounds under pressure that gained next to nothing, one after the other.
    vain: u32,
    /// The last sleep, and how it ended.
    slept: Option<(Rest, Woken)>,
    /// Times that it was woken in vain, one after the other.
    false_alarms: u32,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            round_at: None,
            last_round: 0,
            freed: HEAP.tide.freed(),
            idle_rounds: 0,
            vain: 0,
            slept: None,
            false_alarms: 0,
        }
    }

    /// Does what is due. False if nothing was.
    fn look(&mut self) -> bool {
        let looked = look_around();
        if HEAP.tide.is_wanted() {
            HEAP.tide.attend();
            self.idle_rounds = 0;
            let next = self.last_round + self.pause_ms();
            self.round_at = Some(self.round_at.unwrap_or(next).min(next));
        } else if looked && self.round_at.is_none() && HEAP.is_pressed() {
            self.round_at = Some(self.last_round + self.pause_ms());
        }
        let now = HEAP.now_ms() + self.early_ms();
        if self.round_at.is_some_and(|at| at <= now) {
            self.round();
            return true;
        }
        let purges = HEAP.pages.next_purge().is_some_and(|at| at <= now);
        if purges {
            HEAP.pages.purge_old();
        }
        looked || purges
    }

    /// The clock is coarse: what is due within this many ms is due now for a thread that slept
    /// until then.
    fn early_ms(&self) -> u64 {
        match self.slept {
            Some((Rest::Doze(_) | Rest::Park(_), Woken::ByTime)) => LEAST_MS,
            _ => 0,
        }
    }

    fn round(&mut self) {
        let pressed = HEAP.is_pressed();
        let purged = HEAP.decay_round(if pressed { Round::All } else { Round::Idle });
        self.vain = match pressed && purged < WORTH_BYTES {
            true => self.vain + 1,
            false => 0,
        };
        let freed = HEAP.tide.attend();
        let quiet = purged == 0 && self.freed == freed;
        self.idle_rounds = if quiet { self.idle_rounds + 1 } else { 0 };
        self.freed = freed;
        self.last_round = HEAP.now_ms();
        let goes_on = self.idle_rounds < IDLE_ROUNDS;
        self.round_at = goes_on.then(|| self.last_round + self.pause_ms());
    }

    /// Time between two rounds, in ms.
    fn pause_ms(&self) -> u64 {
        let usual = (HEAP.decay_ms() / 2).max(2 * LEAST_MS);
        match HEAP.is_pressed() {
            true => (PRESSED_MS << self.vain.min(8)).min(usual.max(PRESSED_MS)),
            false => usual,
        }
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
        let rest = match (is_new, self.round_at) {
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
        let own = [HEAP.pages.next_purge(), self.round_at]
            .into_iter()
            .flatten()
            .min();
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

/// Asks what presses for memory, at most once a second. Files are read for it: not while the
/// process forks, or the child would have them open.
fn look_around() -> bool {
    if !HEAP.pressure.is_outdated(HEAP.now_ms()) {
        return false;
    }
    let _whole = HEAP.tide.step.lock();
    HEAP.look_around();
    true
}
