//! When and how free pages go back to the kernel.
//!
//! Free spans with dirty pages wait in a queue. On the heap's own activity, and when asked, those past the
//! decay time are purged, oldest first, a bounded piece at a time. Where every commit is charged, whole
//! huge pages are uncommitted instead. A span that the kernel refuses to purge stays dirty, out of the queue.

use super::arena::{Arena, Commit};
use super::heap::{Locked, PageHeap};
use super::span::{Queued, Record, State};
use super::zero::DirtyRun;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_SLICES, SLICE_BYTES};
use crate::os::{Os, Purged};
use core::ptr::NonNull;

/// Most slices (16 MiB) and spans of one piece of work.
const MOST_SLICES: usize = (16 << 20) / SLICE_BYTES;
const MOST_SPANS: usize = 16;

/// What one piece of work may still do, and did.
struct Work {
    slices: usize,
    bytes: usize,
}

/// Which spans a piece of work is about.
#[derive(Clone, Copy)]
enum Due {
    /// Those that became free at this time or before, in ms.
    Until(u64),
    /// All.
    All,
    /// None.
    Nothing,
}

impl<O: Os> PageHeap<O> {
    /// Gives back the free pages that are past the decay time. Returns how many bytes.
    pub fn purge_due(&self) -> usize {
        self.purge_by_pieces(|locked| locked.due())
    }

    /// Gives back all free pages. Returns how many bytes.
    pub fn purge_all(&self) -> usize {
        let mut locked = self.locked();
        locked.forgive();
        let uncommitted = if self.os.strict_commit() {
            locked.relinquish()
        } else {
            0
        };
        drop(locked);
        uncommitted + self.purge_by_pieces(|_| Due::All)
    }

    /// Sets the decay time in ms; 0 purges at once.
    pub fn set_decay_ms(&self, ms: u64) {
        self.decay_ms.store(ms, Relaxed);
    }

    /// The lock is given up between pieces. Ends: every piece shortens the queue or purges pages.
    fn purge_by_pieces(&self, due: impl Fn(&Locked<'_, O>) -> Due) -> usize {
        let mut bytes = 0;
        loop {
            let mut locked = self.locked();
            let due = due(&locked);
            bytes += locked.purge_piece(due);
            if locked.next_due(due).is_none() {
                return bytes;
            }
        }
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// A piece of what is due, on the way of other work.
    pub(super) fn decay(&mut self) {
        if self.inner.aging.oldest().is_some() {
            let due = self.due();
            self.purge_piece(due);
        }
    }

    fn due(&self) -> Due {
        let decay = self.heap.decay_ms.load(Relaxed);
        match self.heap.os.now_ms().checked_sub(decay) {
            Some(time) => Due::Until(time),
            // The clock is younger than the decay time.
            None => Due::Nothing,
        }
    }

    fn next_due(&self, due: Due) -> Option<&'h Record> {
        self.inner.aging.oldest().filter(|oldest| match due {
            Due::Until(time) => oldest.freed_at() <= time,
            Due::All => true,
            Due::Nothing => false,
        })
    }

    /// Purges up to the most that one piece may. Returns the bytes given back.
    fn purge_piece(&mut self, due: Due) -> usize {
        let mut work = Work {
            slices: MOST_SLICES,
            bytes: 0,
        };
        for _ in 0..MOST_SPANS {
            let Some(span) = self.next_due(due) else {
                break;
            };
            self.purge_span(span, &mut work);
            if work.slices == 0 {
                break;
            }
        }
        work.bytes
    }

    /// Purges a free span, as far as the work allows.
    fn purge_span(&mut self, span: &'h Record, work: &mut Work) {
        let arena = self.arena(span.arena());
        self.detach(span);
        self.spell_out(span);
        if self.heap.os.strict_commit() {
            work.bytes += self.uncommit_units(arena, span);
        }
        let refused = self.purge_runs(arena, span, work);
        if span.dirty.get() == 0 {
            self.unqueue(span);
        } else if refused {
            self.unqueue(span);
            self.inner.refused.push(span);
        }
        self.attach(span);
    }

    /// Purges the dirty runs of a span. True if the kernel refused one.
    fn purge_runs(&mut self, arena: &Arena, span: &Record, work: &mut Work) -> bool {
        let (mut at, end, mut refused) = (span.index.get(), span.end(), false);
        while work.slices > 0
            && span.dirty.get() > 0
            && let Some(run) = arena.next_dirty(at, end, work.slices)
        {
            at = run.to;
            work.slices -= run.to - run.from;
            match self.purge_run(&run) {
                Purged::Zero => {
                    span.dirty
                        .set(span.dirty.get() - arena.clear_dirty(run.from, run.to));
                    work.bytes += run.bytes;
                    self.count_returned(run.bytes);
                }
                Purged::MaybeDirty => {
                    self.inner.counts.refused_purges += 1;
                    refused = true;
                }
            }
        }
        refused
    }

    fn purge_run(&mut self, run: &DirtyRun) -> Purged {
        self.inner.counts.calls.purge += 1;
        match NonNull::new(run.address as *mut u8) {
            // SAFETY: pages of a free span; dirty slices are committed, and the run holds only such.
            Some(start) => unsafe { self.heap.os.purge(start, run.bytes) },
            None => Purged::MaybeDirty,
        }
    }

    /// Lets refused spans stand in line again.
    fn forgive(&mut self) {
        while let Some(span) = self.inner.refused.oldest() {
            self.inner.refused.remove(span);
            span.set_freed_at(self.heap.os.now_ms());
            self.inner.aging.push(span);
        }
    }

    /// Uncommits every huge page of free spans. Returns how many bytes of commit went back.
    pub(super) fn relinquish(&mut self) -> usize {
        let mut bytes = 0;
        for arena in self.heap.arenas() {
            let mut index = arena.layout().head;
            while index < arena.frontier() {
                let span = arena.record(index);
                index = span.end();
                if span.state() == State::Free {
                    bytes += self.relinquish_span(arena, span);
                }
            }
        }
        bytes
    }

    fn relinquish_span(&mut self, arena: &Arena, span: &'h Record) -> usize {
        self.detach(span);
        self.spell_out(span);
        let bytes = self.uncommit_units(arena, span);
        if span.dirty.get() == 0 && span.queued() != Queued::No {
            self.unqueue(span);
        }
        self.attach(span);
        bytes
    }

    /// Uncommits the whole huge pages of a free span that is detached. Returns how many bytes of commit went
    /// back.
    fn uncommit_units(&mut self, arena: &Arena, span: &Record) -> usize {
        // An arena's base is a multiple of a huge page, so slice numbers tell the boundaries.
        let end = span.end() / HUGE_SLICES * HUGE_SLICES;
        let mut from = span.index.get().next_multiple_of(HUGE_SLICES);
        let mut bytes = 0;
        while from < end {
            from = arena.find(from, end, Commit::Yes) / HUGE_SLICES * HUGE_SLICES;
            if from >= end {
                break;
            }
            let to = arena
                .find(from, end, Commit::No)
                .next_multiple_of(HUGE_SLICES)
                .clamp(from + HUGE_SLICES, end);
            bytes += self.uncommit(arena, span, from, to);
            from = to;
        }
        bytes
    }

    fn uncommit(&mut self, arena: &Arena, span: &Record, from: usize, to: usize) -> usize {
        self.inner.counts.calls.uncommit += 1;
        let bytes = (to - from) * SLICE_BYTES;
        let Some(start) = NonNull::new(arena.layout().address(from) as *mut u8) else {
            return 0;
        };
        // SAFETY: slices of a free span, in one arena.
        if unsafe { self.heap.os.uncommit(start, bytes) }.is_err() {
            return 0;
        }
        span.dirty
            .set(span.dirty.get() - arena.clear_dirty(from, to));
        let returned = arena.note(from, to, Commit::No);
        self.inner.counts.committed_slices -= returned;
        self.count_returned(returned * SLICE_BYTES);
        returned * SLICE_BYTES
    }

    fn count_returned(&mut self, bytes: usize) {
        self.inner.counts.purges += 1;
        self.inner.counts.purged_bytes += bytes;
    }
}
