//! What the hard limit grants: spans, and pages of spans in use that come back.

use super::heap::{Locked, PageHeap};
use super::limits::{Admission, STACK_BYTES};
use super::span::Use;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;

impl<O: Os> PageHeap<O> {
    /// Counts `bytes` bytes of spans in use as resident that [`PageHeap::count_absent`] excepted.
    /// False if the hard limit refuses them; then nothing has changed.
    pub fn readmit(&self, bytes: usize) -> bool {
        if self.limits.hard() != usize::MAX {
            return self.readmit_within_limit(bytes);
        }
        self.count_absent(-(bytes as isize));
        true
    }

    /// As [`PageHeap::make_room`] does, this looks once more while no piece is set aside.
    #[cold]
    fn readmit_within_limit(&self, bytes: usize) -> bool {
        let (_alone, mut is_settled) = (self.committing.lock(), false);
        loop {
            let locked = match is_settled {
                true => self.settled(),
                false => self.locked(),
            };
            match locked.judge_bytes(bytes) {
                Admission::Granted => {
                    // Under the lock, so that no other thread gets the same room.
                    self.count_absent(-(bytes as isize));
                    return true;
                }
                Admission::AfterPurge(most) if locked.may_purge() => {
                    drop(locked);
                    self.purge_above(most);
                }
                _ if is_settled || locked.inner.aside == 0 => return false,
                _ => is_settled = true,
            }
        }
    }
}

impl<O: Os> Locked<'_, O> {
    /// Whether `slices` more slices in use stay within the hard limit.
    pub(super) fn judge(&self, slices: usize, use_: Use) -> Admission {
        self.judge_bytes(match use_ {
            Use::Stack => STACK_BYTES,
            _ => slices.saturating_mul(SLICE_BYTES),
        })
    }

    /// Whether `bytes` more bytes in use stay within the hard limit.
    pub(super) fn judge_bytes(&self, bytes: usize) -> Admission {
        self.heap.limits.judge(bytes, || self.footprint())
    }
}
