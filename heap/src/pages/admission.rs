//! What the hard limit grants: spans, and pages of spans in use that come back.

use super::free_spans::Fit;
use super::heap::{Locked, PageHeap};
use super::limits::{Admission, STACK_BYTES};
use super::request::SpanRequest;
use super::span::Use;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;

impl<O: Os> PageHeap<O> {
    /// Counts as resident `bytes` bytes of spans in use that [`PageHeap::count_absent`] excepted.
    /// Returns false, and changes nothing, if the hard limit refuses them.
    pub fn readmit(&self, bytes: usize) -> bool {
        if self.limits.hard() != usize::MAX {
            return self.readmit_within_limit(bytes);
        }
        self.count_absent(-(bytes as isize));
        true
    }

    /// Like [`PageHeap::make_room`], this tries once more while no piece is set aside.
    #[cold]
    fn readmit_within_limit(&self, bytes: usize) -> bool {
        let (_alone, mut is_settled) = (self.committing.lock(), false);
        loop {
            let mut locked = match is_settled {
                true => self.settled(),
                false => self.locked(),
            };
            match self.limits.judge(bytes, 0, || locked.footprint()) {
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
    /// Whether a request that is about to take `room` stays within the hard limit. Dirty pages of
    /// the room are resident already, and pages that are to be moved there count once. Without
    /// room: whether the request may be granted, whatever room it finds.
    pub(super) fn judge(
        &self,
        request: &SpanRequest,
        use_: Use,
        room: Option<Fit<'_>>,
    ) -> Admission {
        if self.heap.limits.hard() == usize::MAX {
            return Admission::Granted;
        }
        let warm = room.map_or(usize::MAX, |room| self.warm_bytes(room, request.slices));
        let (wanted, warm) = match use_ {
            // All but the pages that a stack uses first are purged before its first use.
            Use::Stack => (STACK_BYTES, warm.min(STACK_BYTES)),
            _ => (request.slices.saturating_mul(SLICE_BYTES), warm),
        };
        let (added, warm) = (wanted - request.moved, warm.saturating_sub(request.moved));
        self.heap.limits.judge(added, warm, || self.footprint())
    }

    /// Bytes of dirty pages in the first `slices` slices of room.
    fn warm_bytes(&self, (free, at): Fit<'_>, slices: usize) -> usize {
        let arena = self.arena(free.arena());
        arena.share(free, at, at + slices) * self.page_bytes()
    }
}
