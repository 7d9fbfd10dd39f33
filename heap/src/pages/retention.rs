//! How many free pages stay resident, and for how long: by what was regretted lately.
//!
//! Two things follow from regrets. The heap may hold more than it ever held by as many bytes as it
//! lately regretted to have purged for room ([`PageHeap::way_for`]). And free spans stay for two or
//! four decay times ([`Locked::patience`]), but none longer than one decay time after the program
//! last freed a span.

use super::heap::{Locked, PageHeap};
use super::limits::STACK_BYTES;
use super::regret::{Cause, Regrets};
use super::span::Use;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::os::Os;

/// Regrets make free pages grow to at most this part of what is in use.
const TOLERANCE_PART: usize = 2;
/// A heap that grows by less than this part of what it holds need not make way.
const GROWTH_PART: usize = 64;

impl<O: Os> PageHeap<O> {
    /// A large block was just taken, of which `cold` bytes are not resident. If the heap holds more
    /// than ever before, returns how many bytes it should hold at most, free pages among them.
    ///
    /// What was used a moment ago is likely to be wanted again, so it gives way only where the
    /// process would otherwise grow. If even that is regretted, the process does grow.
    pub fn way_for(&self, cold: usize) -> Option<usize> {
        let mut locked = self.locked();
        let held = locked.footprint();
        let bound = held.used + held.used / TOLERANCE_PART;
        let regrets = locked.regrets();
        let most_held = regrets.most_held(held.total().saturating_sub(cold));
        let most = (most_held + regrets.tolerance()).min(bound).max(most_held);
        let excess = held.total().saturating_sub(most).min(held.dirty);
        (excess > held.total() / GROWTH_PART).then_some(held.total() - excess)
    }
}

impl<O: Os> Locked<'_, O> {
    /// Pages were purged, of which `resident` bytes were resident; by request, if without a cause.
    pub(super) fn note_purged(&mut self, resident: usize, cause: Option<Cause>) {
        if let Some(cause) = cause {
            self.regrets().note_purged(resident, cause);
        }
    }

    /// A request took pages of which `cold` bytes are not resident, for this use.
    pub(super) fn note_wanted(&mut self, cold: usize, use_: Use) {
        if cold == 0 || self.inner.regrets.is_clear() {
            return;
        }
        self.regrets().note_wanted(match use_ {
            Use::Stack => cold.min(STACK_BYTES),
            Use::Slab | Use::Large | Use::Meta => cold,
        });
    }

    /// By how many powers of two free spans stay longer than the decay time.
    pub(super) fn patience(&mut self) -> u32 {
        let held = self.footprint().total();
        self.regrets().patience(held)
    }

    fn regrets(&mut self) -> &mut Regrets {
        let (now, decay_ms) = (self.heap.os.now_ms(), self.heap.decay_ms.load(Relaxed));
        let regrets = &mut self.inner.regrets;
        regrets.forget(now, decay_ms);
        regrets
    }
}
