//! Expiry without a request: a few entries at a time, from the last place to the first.

use super::Store;

/// Entries looked at in a step; below a millisecond.
const STEP: usize = 2_048;

/// What a step of the sweep found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// No key has a deadline: nothing to do until one has.
    Nothing,
    /// Few of the keys seen were over: the next step may wait.
    Calm,
    /// A quarter of the timed keys seen were over: there may be many more.
    Busy,
}

impl Store {
    /// Removes the keys that are over among the next few.
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
