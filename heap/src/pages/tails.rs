//! Tails: pages of a large span in use beyond the bytes that its user asked for.
//!
//! A large block takes whole slices, so up to 15 pages of its last slice are beyond its usable
//! bytes. Where an earlier span left them dirty, they would stay resident until the block is freed.
//! The heap counts the dirty pages of all tails ([`Locked::count_tail`]). Once they are a
//! [considerable part](are_tails_due) of what is in use, a sweep visits the spans and purges the
//! tails. A block that was just handed out may end before the next sweep, and the next owner of its
//! span may use the tail. So a sweep by age purges only the tails that an earlier sweep has seen.
//!
//! A tail is purged without the heap's lock, one at a time, under `purging`. Meanwhile its span
//! belongs to the block's owner, who may free the block, or resize it within its slices. So the
//! heap notes the one span whose tail is on its way, and each operation that changes where that
//! span ends [waits](PageHeap::locked_for) until the kernel has answered. The sweep lets those who
//! wait go first.
//!
//! While the heap asks for huge pages everywhere, no tail is purged: a part of a huge page would
//! not become free.

use super::arena::{SliceRef, pointer};
use super::heap::{Locked, PageHeap};
use super::huge::Policy;
use super::span::{SpanRecord, State, Use};
use crate::base::policy::{Scope, are_tails_due};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::thread::{give_way, with_signals_masked};
use crate::os::{Os, Purged, shared};
use core::ptr::{self, null};

impl<O: Os> PageHeap<O> {
    /// Whether there is anything for such a sweep to do. After two sweeps there is not, unless the
    /// program allocated meanwhile.
    pub fn has_tails(&self, sweep: Scope) -> bool {
        let locked = self.locked();
        let (counts, tails) = (&locked.inner.counts, locked.inner.tail_pages);
        let used = counts.used_slices * SLICE_BYTES;
        let kept = locked.kept_pages();
        let due = match sweep {
            Scope::Idle if kept > 0 && counts.free_dirty_pages <= kept => false,
            Scope::Idle => are_tails_due(tails * locked.page_bytes(), used),
            Scope::All => tails > 0,
        };
        // In a copy of a process, owners would not wait: see `after_tail`.
        let splits = self.huge_policy() == Policy::Always;
        due && !splits && !self.os.is_locked() && shared::is_mine()
    }

    /// Purges the tails of blocks in spans with this tag. Returns how many bytes.
    pub fn purge_tails(&self, sweep: Scope, tag: u8) -> usize {
        let mut bytes = 0;
        self.for_each_used(|place, use_| {
            if use_ == Use::Large && place.record().tail_pages() > 0 {
                if self.tail_waits.load(Relaxed) > 0 {
                    give_way();
                }
                // A handler of signals that frees the block could not wait for the thread below.
                with_signals_masked(|| {
                    bytes += self.purge_tail(place, sweep, tag);
                    true
                });
            }
        });
        self.locked().write_mirror();
        bytes
    }

    fn purge_tail(&self, place: SliceRef<'_>, sweep: Scope, tag: u8) -> usize {
        let _alone = self.purging.lock();
        let mask = self.locked().begin_tail(place, sweep, tag);
        if mask == 0 {
            return 0;
        }
        let (layout, last) = (place.arena.layout(), place.record().end() - 1);
        let (from, to) = (mask.trailing_zeros(), mask.ilog2() + 1);
        let start = layout.address(last) + from as usize * layout.page_bytes();
        let bytes = (to - from) as usize * layout.page_bytes();
        // SAFETY: pages of a span in use beyond the bytes that its user has, whose owner waits
        // before it changes that; spans in use are committed.
        let purged = unsafe { self.os.purge(pointer(start), bytes) };
        self.locked().end_tail(place, mask, purged)
    }

    /// The heap, locked for a change of a span in use by its owner. If its tail is on its way to
    /// the kernel, waits for the end of that.
    #[inline]
    pub(super) fn locked_for(&self, span: &SpanRecord) -> Locked<'_, O> {
        let locked = self.locked();
        match ptr::eq(locked.inner.tail, span) {
            true => self.after_tail(locked),
            false => locked,
        }
    }

    /// Whoever holds `purging` finds no tail on its way, unless the thread that purged it stayed
    /// in the parent of a fork. In a copy of a process that no handler of ours saw, that thread
    /// holds `purging` for good.
    #[cold]
    #[inline(never)]
    fn after_tail<'h>(&'h self, mut locked: Locked<'h, O>) -> Locked<'h, O> {
        if shared::is_mine() && !self.purging.is_mine() {
            drop(locked);
            self.tail_waits.fetch_add(1, Relaxed);
            locked = self.settled();
            // A fork's child forgets those of the parent.
            let fewer = |waits: usize| waits.checked_sub(1);
            let _ = self.tail_waits.fetch_update(Relaxed, Relaxed, fewer);
        }
        locked.inner.tail = null();
        locked
    }

    /// In a fork's child: the parent's threads wait for nothing here.
    pub fn after_fork_in_child(&self) {
        self.tail_waits.store(0, Relaxed);
        self.tables.cache.after_fork_in_child();
    }

    /// From now on no sweep purges the tail of a span in use, until the span's bytes are set anew.
    /// For its owner, before a change without the heap's lock.
    pub(super) fn keep_tail(&self, span: &SpanRecord) {
        if span.tail_pages() > 0 {
            self.locked_for(span).set_tail(span, 0);
        }
    }
}

impl<O: Os> Locked<'_, O> {
    /// Counts the tail of a span in use whose end or bytes changed, if it is a large one.
    pub(super) fn count_tail(&mut self, span: &SpanRecord) {
        if span.state() == State::Used(Use::Large) {
            self.set_tail(span, self.arena(span.arena()).tail_pages(span));
        }
    }

    /// Counts a tail of `pages` pages that no sweep has seen.
    pub(super) fn set_tail(&mut self, span: &SpanRecord, pages: usize) {
        self.inner.tail_pages = self.inner.tail_pages + pages - span.tail_pages();
        span.set_tail_pages(pages);
    }

    /// Visits a span. Returns the pages of its last slice that are to be purged, as in its mask.
    fn begin_tail(&mut self, place: SliceRef<'_>, sweep: Scope, tag: u8) -> u16 {
        let record = place.record();
        if record.state() != State::Used(Use::Large) || record.tail_pages() == 0 {
            return 0;
        }
        // Others lie between guards, are being handed out or freed, or are not of one mapping that
        // is the heap's own. A part of a huge page would not become free.
        let is_ours = place.tag() == tag
            && !(record.is_overmapped.get() || record.moved_slices() > 0 || record.is_huge());
        if !is_ours {
            self.set_tail(record, 0);
            return 0;
        }
        let was_seen = record.see_tail();
        if sweep == Scope::Idle && !was_seen {
            return 0;
        }
        place.arena.write_masks(record);
        let beyond = place.arena.layout().pages_per_slice - record.tail_pages();
        let mask = place.arena.mask(record.end() - 1).load(Relaxed) >> beyond << beyond;
        if mask != 0 {
            self.inner.tail = record;
        }
        mask
    }

    /// Notes the kernel's answer. Returns how many bytes are no longer dirty.
    fn end_tail(&mut self, place: SliceRef<'_>, pages: u16, purged: Purged) -> usize {
        let (record, page) = (place.record(), self.page_bytes());
        self.inner.tail = null();
        // What the kernel refuses once is not tried again.
        self.set_tail(record, 0);
        let mask = place.arena.mask(record.end() - 1);
        let dirty = pages.count_ones() as usize;
        self.count_purge(dirty * page, purged);
        if purged != Purged::Zero {
            return 0;
        }
        mask.store(mask.load(Relaxed) & !pages, Relaxed);
        record.dirty.set(record.dirty.get() - dirty);
        dirty * page
    }
}
