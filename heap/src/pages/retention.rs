//! How many free pages stay resident, and for how long: by what was regretted lately.
//!
//! Two things follow from regrets. The heap may hold more than it ever held by as many bytes as it
//! lately regretted to have purged for room ([`PageHeap::way_for`]). And free spans stay for two or
//! four decay times ([`PageHeap::patience_ms`]), but none longer than one decay time after the
//! program last freed a span.

use super::heap::{Locked, PageHeap};
use super::limits::STACK_BYTES;
use super::regret::{Cause, Regrets};
use super::span::{SpanRecord, Use};
use crate::os::Os;

/// Regrets make free pages grow to at most this part of what is in use.
const TOLERANCE_PART: usize = 4;
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

    /// When free spans are to be purged next by their age, in ms; `None` when none will be: the
    /// program locked its memory, or all of them may stay.
    pub fn next_purge(&self) -> Option<u64> {
        let mut locked = self.locked();
        let Some(oldest) = locked.oldest_due().map(SpanRecord::freed_at) else {
            return locked.next_try();
        };
        let newest = locked.newest_freed_at().max(oldest);
        let patient = oldest.saturating_add(locked.patience_ms());
        let due = patient.min(newest).saturating_add(self.limits.decay_ms());
        Some(locked.next_try().map_or(due, |again| again.min(due)))
    }

    /// For how much longer than the decay time free spans stay now, in ms.
    pub fn patience_ms(&self) -> u64 {
        self.locked().patience_ms()
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
        let regretted = self.regrets().note_wanted(match use_ {
            Use::Stack => cold.min(STACK_BYTES),
            Use::Slab | Use::Large | Use::Meta => cold,
        });
        self.inner.counts.regretted_bytes += regretted;
    }

    /// For how much longer than the decay time free spans stay now, in ms. A quarter of the decay
    /// time before a program rests for that long, it counts as resting: what is due by then goes
    /// with the oldest.
    pub(super) fn patience_ms(&mut self) -> u64 {
        if self.inner.regrets.is_content() {
            return 0;
        }
        let (now, decay_ms) = (self.heap.os.now_ms(), self.heap.limits.decay_ms());
        let held = self.footprint().total();
        let rests_at = self
            .newest_freed_at()
            .saturating_add(decay_ms - decay_ms / 4);
        match rests_at <= now {
            true => 0,
            false => decay_ms.saturating_mul((1 << self.regrets().patience(held)) - 1),
        }
    }

    /// When the last free span that is dirty became free, in ms; 0 without any.
    fn newest_freed_at(&self) -> u64 {
        self.inner.aging.newest().map_or(0, SpanRecord::freed_at)
    }

    fn regrets(&mut self) -> &mut Regrets {
        let (now, decay_ms) = (self.heap.os.now_ms(), self.heap.limits.decay_ms());
        let regrets = &mut self.inner.regrets;
        regrets.forget(now, decay_ms);
        regrets
    }
}
