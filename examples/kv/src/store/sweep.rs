//! Expiry without a request: visits a few entries at a time, from the last place to the first.

use super::Store;

/// Entries visited per step, which takes less than a millisecond.
const STEP: usize = 2_048;

/// The result of a step of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// No key has a deadline: no step is needed until one has.
    Nothing,
    /// Few of the visited keys had expired: the next step may wait.
    Calm,
    /// A quarter of the visited keys with deadlines had expired: there may be many more.
    Busy,
}

impl Store {
    /// Removes the expired keys among the next few.
    pub fn sweep(&mut self) -> Sweep {
        if self.timed == 0 {
            return Sweep::Nothing;
        }
        if self.sweep_below == 0 || self.sweep_below > self.entries.len() {
            self.sweep_below = self.entries.len();
        }
        let start = self.sweep_below.saturating_sub(STEP);
        let timed = self.timed;
        let (mut seen, mut over) = (0, 0);
        for place in (start..self.sweep_below).rev() {
            seen += usize::from(self.entries[place].deadline != super::NEVER);
            if self.is_over(place) {
                over += 1;
                self.expire_at(place);
            }
        }
        self.sweep_below = start;
        debug_assert!(seen <= timed);
        if over * 4 > seen {
            Sweep::Busy
        } else {
            Sweep::Calm
        }
    }
}
