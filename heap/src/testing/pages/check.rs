//! The invariants of the page heap, as code. For tests: it walks everything.

use super::arena::{Arena, Commit, SliceRef};
use super::heap::{Locked, PageHeap};
use super::span::{Queue, SpanRecord, State, Use, may_merge};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::tree::Node;
use crate::base::units::HUGE_SLICES;
use crate::os::Os;
use core::ptr::NonNull;

/// What a walk over all spans adds up to.
#[derive(Default)]
struct Sums {
    used: usize,
    free: usize,
    free_spans: usize,
    free_dirty: usize,
    aside: usize,
    queued: usize,
    committed: usize,
    tail_pages: usize,
}

fn require(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl<O: Os> PageHeap<O> {
    /// Checks every invariant; returns the one that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        self.locked().check()
    }

    /// Calls `visit` with the first slice of every span of one use. The lock is held: `visit` must
    /// not call back into the heap, nor allocate.
    pub fn for_each_span(&self, use_: Use, mut visit: impl FnMut(SliceRef<'_>)) {
        let locked = self.locked();
        locked.for_each_record(|place, record| {
            if record.state() == State::Used(use_) {
                visit(place);
            }
        });
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// Calls `visit` with every span, in the order of addresses within an arena.
    fn for_each_record(&self, mut visit: impl FnMut(SliceRef<'h>, &'h SpanRecord)) {
        for arena in self.heap.arenas() {
            for place in arena.spans(arena.layout().head, arena.frontier.get()) {
                visit(place, place.record());
            }
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let mut sums = Sums::default();
        for (id, arena) in self.heap.arenas().iter().enumerate() {
            self.check_arena(id, arena, &mut sums)?;
        }
        let counts = &self.inner.counts;
        require(
            sums.used == counts.used_slices,
            "the count of slices in use is off",
        )?;
        require(
            sums.free == counts.free_slices,
            "the count of free slices is off",
        )?;
        require(
            sums.free_dirty == counts.free_dirty_pages,
            "the count of free dirty pages is off",
        )?;
        require(
            sums.aside == self.inner.aside,
            "the count of pieces set aside is off",
        )?;
        require(
            sums.committed == counts.committed_slices,
            "the count of committed slices is off",
        )?;
        require(
            sums.tail_pages == self.inner.tail_pages,
            "the count of pages in tails is off",
        )?;
        let fit = &self.inner.fit;
        // SAFETY: nodes of the tree are records, which stay in place.
        let above = |at: &NonNull<SpanRecord>| fit.above(unsafe { at.as_ref() }.key());
        let tree_spans = core::iter::successors(fit.first(), above).count();
        require(
            sums.free_spans == tree_spans,
            "the tree holds other spans than the free ones",
        )?;
        let queued =
            check_queue(&self.inner.aging, false)? + check_queue(&self.inner.refused, true)?;
        require(
            queued == sums.queued,
            "the queues hold other spans than the dirty free ones",
        )
    }

    fn check_arena(
        &self,
        id: usize,
        arena: &'h Arena,
        sums: &mut Sums,
    ) -> Result<(), &'static str> {
        let (layout, frontier) = (arena.layout(), arena.frontier.get());
        require(layout.head <= frontier, "the frontier is among the tables")?;
        require(
            frontier <= arena.ready.get() && arena.ready.get() <= layout.slices,
            "slices without tables",
        )?;
        require(frontier <= arena.tagged.get(), "slices without tags")?;
        require(
            frontier <= arena.end.get() && frontier <= arena.reach.get(),
            "slices beyond the arena's end",
        )?;
        let mut at = layout.head;
        let mut before: Option<&SpanRecord> = None;
        while at < frontier {
            let record = arena.record(at);
            require(
                record.index.get() == at && record.arena() == id,
                "a record names another slice",
            )?;
            require(
                record.slices.get() > 0 && record.end() <= frontier,
                "a span passes the frontier",
            )?;
            require(record.state() != State::Blank, "a span has no state")?;
            let free = record.state() == State::Free;
            require(
                !(free && before.is_some_and(|before| may_merge(before, record))),
                "two free spans are neighbours",
            )?;
            self.check_span(arena, record)?;
            match record.state() {
                State::Free => self.check_free(arena, record, sums)?,
                State::Aside => {
                    sums.free += record.slices.get();
                    sums.free_dirty += record.dirty.get();
                    sums.aside += 1;
                }
                State::Used(_) | State::Blank => check_used(arena, record, sums)?,
            }
            (at, before) = (record.end(), Some(record).filter(|_| free));
        }
        sums.committed += (layout.head..arena.ready.get())
            .filter(|&index| arena.find(index, index + 1, Commit::Yes) == index)
            .count();
        require(at == frontier, "spans do not tile the arena")
    }

    fn check_span(&self, arena: &Arena, record: &SpanRecord) -> Result<(), &'static str> {
        let (first, end) = (record.index.get(), record.end());
        require(
            arena.record(end - 1).back.get() == end - 1 - first,
            "a span's end does not lead back",
        )?;
        let dirty = match record.all_dirty.get() {
            false => arena.count_dirty(first, end),
            true => (end - first) * arena.layout().pages_per_slice,
        };
        require(
            dirty == record.dirty.get(),
            "a span's dirty pages are miscounted",
        )?;
        for index in first + 1..end {
            require(
                arena.record(index).state() == State::Blank,
                "a span within a span",
            )?;
            require(SliceRef { arena, index }.tag() == 0, "a tag within a span")?;
        }
        let alike = (first..end).all(|at| arena.record(at).is_huge() == record.is_huge());
        require(alike, "a span is partly in a unit of huge pages")?;
        let unit = |index: usize| index / HUGE_SLICES;
        let within = !record.is_huge() || unit(first) == unit(end - 1);
        require(within, "a span passes the end of its unit")?;
        let full = arena.layout().full_mask();
        let beyond = (first..end).any(|index| arena.mask(index).load(Relaxed) & !full != 0);
        require(!beyond, "a mask names pages that are none")
    }

    fn check_free(
        &self,
        arena: &Arena,
        record: &SpanRecord,
        sums: &mut Sums,
    ) -> Result<(), &'static str> {
        let (first, end) = (record.index.get(), record.end());
        sums.free += record.slices.get();
        sums.free_dirty += record.dirty.get();
        sums.free_spans += 1;
        sums.queued += usize::from(record.dirty.get() > 0);
        require(
            SliceRef {
                arena,
                index: first,
            }
            .tag()
                == 0,
            "a free span has a tag",
        )?;
        let found = self.inner.fit.at_least(record.key());
        require(
            found.is_some_and(|found| core::ptr::eq(found.as_ptr(), record)),
            "a free span is not in the tree",
        )?;
        let is_dirty = |index| record.all_dirty.get() || arena.mask(index).load(Relaxed) != 0;
        let is_clean = !(first..first + record.clean_slices()).any(is_dirty);
        require(is_clean, "a slice that is known to be clean is dirty")?;
        let lost = (first..end)
            .any(|index| is_dirty(index) && arena.find(index, index + 1, Commit::Yes) > index);
        require(!lost, "a dirty slice is not committed")
    }
}

fn check_used(arena: &Arena, record: &SpanRecord, sums: &mut Sums) -> Result<(), &'static str> {
    sums.used += record.slices.get();
    require(!record.is_refused.get(), "a span in use is in a queue")?;
    let (tail, counted) = (arena.tail_pages(record), record.tail_pages());
    let is_large = record.state() == State::Used(Use::Large);
    require(
        counted == 0 || is_large && counted == tail,
        "a span's tail is miscounted",
    )?;
    sums.tail_pages += counted;
    let committed = arena.find(record.index.get(), record.end(), Commit::No) == record.end();
    require(committed, "a span in use is not committed")
}

/// The number of entries, if they are in order.
fn check_queue(queue: &Queue, is_refused: bool) -> Result<usize, &'static str> {
    let (mut count, mut time, mut next) = (0, 0, queue.oldest());
    while let Some(entry) = next {
        require(
            entry.state() == State::Free
                && entry.dirty.get() > 0
                && entry.is_refused.get() == is_refused,
            "a queue holds what it should not",
        )?;
        require(
            is_refused || entry.freed_at() >= time,
            "the queue is out of order",
        )?;
        (count, time, next) = (count + 1, entry.freed_at(), queue.after(entry));
    }
    Ok(count)
}
