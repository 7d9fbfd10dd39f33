//! What the purge thread does while it is there.

use super::{attach, is_staying};
use crate::cache::decay::Told;
use crate::cache::heap::HEAP;
use crate::page::Chores;
use crate::slab::depot::{Round, Source};

/// Least time between two looks, in ms.
const LEAST_MS: u64 = 10;
/// Time between two looks under pressure, in ms; twice as long after each that gained less than [`WORTH_BYTES`].
const PRESSED_MS: u64 = 25;
const WORTH_BYTES: usize = 1 << 20;
/// It looks whether somebody asks at least so often, in ms.
const MOST_REST_MS: u64 = 1000;
/// The same where it stays to answer.
const ANSWER_MS: u64 = 250;
/// A round over slabs and magazines comes with every second look.
const LOOKS_A_ROUND: u32 = 2;
/// So many rounds without anything to do, and it ends.
const IDLE_ROUNDS: u32 = 2;

/// Until there is nothing left to do, or it is told to end.
pub(super) fn go_round() {
    look_around();
    let mut watch = Watch {
        idle_rounds: 0,
        looks: 0,
        freed: HEAP.tide.freed(),
        vain: 0,
        looked_at: HEAP.now_ms(),
    };
    while watch.idle_rounds < IDLE_ROUNDS
        || attach::rest_ms() != u64::MAX
        || (is_staying() && !HEAP.registry.is_empty())
    {
        HEAP.pages.set_chores(Chores::Elsewhere);
        let until_look = watch.rest_ms();
        let rest = until_look.min(attach::rest_ms()).min(most_rest_ms());
        let told = HEAP.tide.listen(rest);
        match told {
            Told::End => return,
            Told::MakeWay { stay } => {
                HEAP.pages.purge_above(stay);
            }
            Told::Nothing => {}
        }
        attach::serve();
        // The clock is coarse: who slept until the next look may be told that there are some ms left.
        let slept_through = told == Told::Nothing && rest == until_look;
        if slept_through || watch.rest_ms() == 0 {
            watch.look();
            watch.looked_at = HEAP.now_ms();
            HEAP.tide.attend();
            look_around();
        }
    }
}

/// After so long it looks whether somebody asks, in ms.
fn most_rest_ms() -> u64 {
    match is_staying() {
        true => ANSWER_MS,
        false => MOST_REST_MS,
    }
}

/// Files are read for it: not while the process forks, or the child would have them open.
fn look_around() {
    let _whole = HEAP.tide.step.lock();
    HEAP.look_around();
}

/// What the thread remembers from look to look.
struct Watch {
    /// Rounds without anything to do, one after the other.
    idle_rounds: u32,
    looks: u32,
    /// Bytes freed past magazines at the last round.
    freed: usize,
    /// Looks under pressure that gained next to nothing, one after the other.
    vain: u32,
    /// When it last looked, in ms.
    looked_at: u64,
}

impl Watch {
    fn look(&mut self) {
        self.looks += 1;
        let mut purged = HEAP.purge_free();
        let pressed = HEAP.is_pressed();
        if pressed {
            purged += HEAP.decay_round(Round::All);
            self.vain = if purged < WORTH_BYTES {
                self.vain + 1
            } else {
                0
            };
        } else if self.looks.is_multiple_of(LOOKS_A_ROUND) {
            purged += HEAP.decay_round(Round::Idle);
            self.vain = 0;
        } else {
            return;
        }
        let quiet = purged == 0 && self.freed == HEAP.tide.freed();
        let done = quiet && HEAP.pages.oldest_dirty().is_none();
        self.idle_rounds = if done { self.idle_rounds + 1 } else { 0 };
        self.freed = HEAP.tide.freed();
    }

    /// Time until the next look, in ms.
    fn rest_ms(&self) -> u64 {
        (self.looked_at + self.pause_ms()).saturating_sub(HEAP.now_ms())
    }

    /// Time between two looks, in ms: a quarter of the decay time, less under pressure, as long as that helps, more if it stays with nothing
    /// to do.
    fn pause_ms(&self) -> u64 {
        let least = match self.idle_rounds < IDLE_ROUNDS {
            true => LEAST_MS,
            false => ANSWER_MS,
        };
        let usual = (HEAP.decay_ms() / 4).max(least);
        match HEAP.is_pressed() {
            true => (PRESSED_MS << self.vain.min(8)).min(usual.max(PRESSED_MS)),
            false => usual,
        }
    }
}
