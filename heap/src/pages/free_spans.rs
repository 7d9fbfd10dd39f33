//! Which free span serves a request; splitting and merging.
//!
//! Policy: warm spans (mostly resident) before tepid ones (partly), these before cold ones, then
//! the smallest that fits, then the lowest place; then the frontier of each arena; then a new
//! arena.

use super::arena::{Arena, Commit};
use super::heap::Locked;
use super::span::{Age, SpanRequest, SpanSource, Use};
use super::span::{FitKey, FitRank, Queue, SpanRecord, State, Warmth, may_merge};
use crate::base::tree::Node;
use crate::os::Os;
use core::ops::Range;
use core::ptr::{self, NonNull};

/// Committed room for a request: a free span, and the slice in it where the request begins.
pub(super) type Fit<'h> = (&'h SpanRecord, usize);

/// How many free spans that may be too short for an alignment are tried before one that is
/// certainly long enough.
const ALIGNED_TRIES: usize = 8;

impl<'h, O: Os> Locked<'h, O> {
    /// Committed room for a request.
    pub(super) fn find_ready(&self, request: &SpanRequest) -> Option<Fit<'h>> {
        let (free, at) = self.find_free(request)?;
        let (arena, to) = (self.arena(free.arena()), at + request.slices);
        let ready = free.all_dirty.get() || arena.find(at, to, Commit::No) == to;
        (ready && self.units_within(free, request).is_none()).then_some((free, at))
    }

    /// Room for a request, committed or not.
    pub(super) fn find_free(&self, request: &SpanRequest) -> Option<Fit<'h>> {
        match request.at {
            Some((id, at)) => self
                .free_at(self.arena(id), at)
                .filter(|free| free.slices.get() >= request.slices && !free.is_huge())
                .filter(|free| free.node() == request.node)
                .map(|free| (free, at)),
            None if request.is_too_long() => None,
            None => self.find_fit(request),
        }
    }

    fn find_fit(&self, request: &SpanRequest) -> Option<(&'h SpanRecord, usize)> {
        let order: &[Warmth] = match (request.source, request.use_) {
            (SpanSource::Resident, _) => &[Warmth::Warm, Warmth::Tepid],
            // Huge pages suit slabs, most of which are filled sooner or later.
            (SpanSource::Any, Use::Slab) => {
                &[Warmth::Warm, Warmth::Tepid, Warmth::Huge, Warmth::Cold]
            }
            (SpanSource::Any, _) => &[Warmth::Warm, Warmth::Tepid, Warmth::Cold],
        };
        order
            .iter()
            .find_map(|&warmth| self.find_among(warmth, request))
    }

    fn find_among(&self, warmth: Warmth, request: &SpanRequest) -> Option<(&'h SpanRecord, usize)> {
        let rank = FitRank::of(warmth, request.node);
        let key = |slices| FitKey {
            rank,
            slices,
            place: 0,
        };
        let mut from = key(request.slices);
        for _ in 0..ALIGNED_TRIES {
            let free = self.free_from(from).filter(|free| free.rank() == rank)?;
            if let Some(at) = self.aligned_start(free, request) {
                return Some((free, at));
            }
            from = free.key();
            from.place += 1;
        }
        let surely = key(request.slices + request.align - 1);
        let free = self.free_from(surely).filter(|free| free.rank() == rank)?;
        Some((free, self.aligned_start(free, request)?))
    }

    /// The first free span that does not come before `key` in the order by fit.
    pub(super) fn free_from(&self, key: FitKey) -> Option<&'h SpanRecord> {
        let found = self.inner.fit.at_least(key);
        // SAFETY: nodes of the tree are records of this heap's arenas, which stay in place as long
        // as it.
        found.map(|record| unsafe { record.as_ref() })
    }

    fn aligned_start(&self, free: &SpanRecord, request: &SpanRequest) -> Option<usize> {
        let arena = self.arena(free.arena());
        if request.is_for_slab() && free.dirty.get() > 0 && !self.heap.os.strict_commit() {
            return Some(arena.first_touched(free));
        }
        let at = arena.layout().align_up(free.index.get(), request.align);
        request.start_in(at, free.end())
    }

    /// Moves the frontier up to `to`, if it is not there yet. What it passes over becomes a free
    /// span of `node`. Returns that span.
    pub(super) fn pass_frontier(
        &mut self,
        id: usize,
        to: usize,
        node: usize,
    ) -> Option<&'h SpanRecord> {
        let arena = self.arena(id);
        let old = arena.frontier.get();
        (to > old).then(|| {
            arena.frontier.set(to);
            self.add_free(self.fresh(id, old, to - old, node), Age::New)
        })
    }

    /// The record of slices that never were in a span.
    pub(super) fn fresh(
        &self,
        id: usize,
        first: usize,
        slices: usize,
        node: usize,
    ) -> &'h SpanRecord {
        let record = self.arena(id).record(first);
        record.place(id as u8, first, node);
        record.dirty.set(0);
        record.all_dirty.set(false);
        self.arena(id).set_length(record, slices);
        record
    }

    /// The free span that starts at slice `index`.
    pub(super) fn free_at(&self, arena: &'h Arena, index: usize) -> Option<&'h SpanRecord> {
        let exists = index < arena.frontier.get();
        exists
            .then(|| arena.record(index))
            .filter(|record| record.state() == State::Free)
    }

    /// The free span that ends just before slice `index`.
    pub(super) fn free_before(&self, arena: &'h Arena, index: usize) -> Option<&'h SpanRecord> {
        let last = index
            .checked_sub(1)
            .filter(|&last| last >= arena.layout().head)?;
        self.free_at(arena, last - arena.record(last).back.get())
    }

    /// Cuts the slices `at..at + slices` out of a free span; what is left before and after them
    /// stays free and keeps its age. Returns the record of what was cut out, complete but for a
    /// state.
    pub(super) fn carve(
        &mut self,
        free: &'h SpanRecord,
        at: usize,
        slices: usize,
    ) -> &'h SpanRecord {
        let arena = self.arena(free.arena());
        let (first, cut, end) = (free.index.get(), at + slices, free.end());
        let (id, node) = (free.arena() as u8, free.node());
        // What is known to be clean is not counted: it may be millions of slices.
        let clean = first + free.clean_slices();
        let unknown = clean.min(at);
        let before = arena.share(free, unknown, at);
        debug_assert!(at - first > 1024 || before == arena.share(free, first, at));
        self.detach(free);
        let all = free.dirty.get();
        let taken = arena.share(free, at, cut);
        if cut < end {
            let tail = arena.record(cut);
            tail.place(id, cut, node);
            self.split_off(free, tail, end - cut, all - before - taken);
            tail.know_clean(clean.saturating_sub(cut));
        }
        if before == 0 {
            self.unqueue(free);
        }
        free.set_state(State::Blank);
        if first < at {
            free.dirty.set(before);
            arena.set_length(free, at - first);
            free.know_clean(unknown - first);
            self.attach(free);
        }
        let part = arena.record(at);
        part.place(id, at, node);
        part.dirty.set(taken);
        arena.set_length(part, slices);
        arena.inherit_zero_state(part, free);
        part
    }

    /// Cuts slices out of a free span for the kernel to work on without the lock. Until
    /// [`Locked::put_back`] no request finds them, but they count as free.
    pub(super) fn set_aside(
        &mut self,
        free: &'h SpanRecord,
        at: usize,
        slices: usize,
    ) -> &'h SpanRecord {
        let part = self.carve(free, at, slices);
        part.set_state(State::Aside);
        let counts = &mut self.inner.counts;
        counts.free_slices += slices;
        counts.free_dirty_pages += part.dirty.get();
        self.inner.aside += 1;
        part
    }

    /// Makes what was set aside free again; returns the span that it is part of.
    pub(super) fn put_back(&mut self, part: &'h SpanRecord, age: Age) -> &'h SpanRecord {
        self.end_aside(part);
        self.add_free(part, age)
    }

    /// Removes what was set aside from the counts. Afterwards it is in no span.
    pub(super) fn end_aside(&mut self, part: &SpanRecord) {
        let counts = &mut self.inner.counts;
        counts.free_slices -= part.slices.get();
        counts.free_dirty_pages -= part.dirty.get();
        self.inner.aside -= 1;
        part.set_state(State::Blank);
    }

    /// Puts back a part whose slices below `to` were purged. The kernel refused those that the
    /// masks still call dirty, so these do not merge with their neighbours. Returns the addresses
    /// of the free span that it becomes part of, if nothing there is dirty any more.
    pub(super) fn return_part(
        &mut self,
        part: &'h SpanRecord,
        to: usize,
    ) -> Option<(&'h Arena, Range<usize>)> {
        self.end_aside(part);
        let mut clean = None;
        let (id, end, node) = (part.arena(), part.end(), part.node());
        let (arena, mut at) = (self.arena(id), part.index.get());
        while at < end {
            let refused = arena.first_dirty(at, to);
            let next = refused.unwrap_or(end);
            if at < next {
                let span = self.fresh(id, at, next - at, node);
                span.dirty.set(arena.count_dirty(at, next));
                let age = if span.dirty.get() > 0 {
                    Age::Old
                } else {
                    Age::New
                };
                let whole = self.add_free(span, age);
                let [from, to] =
                    [whole.index.get(), whole.end()].map(|at| arena.layout().address(at));
                clean = Some((arena, from..to)).filter(|_| whole.dirty.get() == 0);
            }
            at = next;
            if refused.is_some() {
                let is_clean = |index: &usize| arena.count_dirty(*index, *index + 1) == 0;
                at = (next..to).find(is_clean).unwrap_or(to);
                let span = self.fresh(id, next, at - next, node);
                span.dirty.set(arena.count_dirty(next, at));
                span.set_freed_at(self.heap.os.now_ms());
                span.is_refused.set(true);
                self.inner.refused.push(span);
                self.attach(span);
            }
        }
        self.write_mirror();
        clean
    }

    /// Merges the spans that the kernel refused to purge at `time` (ms) or before with their
    /// neighbours. The result is due for a purge at once. False if there is no such span.
    pub(super) fn rejoin_refused(&mut self, time: u64) -> bool {
        let mut any = false;
        while let Some(span) = self.inner.refused.oldest()
            && span.freed_at() <= time
        {
            self.detach(span);
            self.unqueue(span);
            span.set_state(State::Blank);
            self.add_free(span, Age::Old);
            any = true;
        }
        any
    }

    /// Makes `tail` a free span, of the age and in the queue of the one it is cut from.
    fn split_off(&mut self, whole: &SpanRecord, tail: &'h SpanRecord, slices: usize, dirty: usize) {
        tail.dirty.set(dirty);
        tail.all_dirty.set(whole.all_dirty.get());
        tail.set_freed_at(whole.freed_at());
        self.arena(tail.arena()).set_length(tail, slices);
        tail.is_refused.set(whole.is_refused.get());
        if dirty > 0 {
            self.queue_of(whole).push_after(whole, tail);
        }
        self.attach(tail);
    }

    /// Makes slices that are in no span a free span, merged with its free neighbours.
    ///
    /// The result is as old as its part with the most dirty pages: small spans that come and go
    /// next to a large one must not keep it young. Returns it.
    pub(super) fn add_free(&mut self, span: &'h SpanRecord, age: Age) -> &'h SpanRecord {
        let arena = self.arena(span.arena());
        let before = self
            .free_before(arena, span.index.get())
            .filter(|before| may_merge(before, span));
        let after = self
            .free_at(arena, span.end())
            .filter(|after| may_merge(span, after));
        let neighbours = [before, after];
        for neighbour in neighbours.into_iter().flatten() {
            self.detach(neighbour);
        }
        let parts = [before, Some(span), after];
        let heir = neighbours
            .into_iter()
            .flatten()
            .filter(|n| n.dirty.get() > span.dirty.get())
            .max_by_key(|n| n.dirty.get());
        let merged = before.unwrap_or(span);
        self.inherit(neighbours, heir, merged);
        arena.unify(&parts);
        let sum = |of: fn(&SpanRecord) -> usize| parts.into_iter().flatten().map(of).sum::<usize>();
        let (slices, dirty) = (sum(|part| part.slices.get()), sum(|part| part.dirty.get()));
        let clean = clean_slices(parts.into_iter().flatten());
        if heir.is_none() && dirty > 0 {
            self.enqueue(merged, age);
        }
        for part in parts.into_iter().flatten() {
            part.set_state(State::Blank);
        }
        merged.dirty.set(dirty);
        arena.set_length(merged, slices);
        merged.know_clean(clean);
        self.attach(merged);
        merged
    }

    /// Takes the parts of a merged span out of the queue, and puts the merged span in the place of
    /// the part whose age it has, if there is one.
    fn inherit(
        &mut self,
        neighbours: [Option<&'h SpanRecord>; 2],
        heir: Option<&'h SpanRecord>,
        merged: &'h SpanRecord,
    ) {
        for neighbour in neighbours.into_iter().flatten() {
            if !heir.is_some_and(|heir| ptr::eq(heir, neighbour)) {
                self.unqueue(neighbour);
            }
        }
        match heir {
            Some(heir) if ptr::eq(heir, merged) => {}
            Some(heir) => {
                merged.set_freed_at(heir.freed_at());
                self.inner.aging.push_after(heir, merged);
                self.inner.aging.remove(heir);
            }
            None => {}
        }
    }

    /// Puts a span that becomes free into the queue by its age.
    fn enqueue(&mut self, span: &'h SpanRecord, age: Age) {
        match age {
            Age::New => {
                span.set_freed_at(self.heap.os.now_ms());
                self.inner.aging.push(span);
            }
            Age::Old => {
                // Due at once, and not younger than the oldest: the queue stays sorted.
                span.set_freed_at(0);
                self.inner.aging.push_oldest(span);
            }
        }
    }

    /// Puts a free span into the order by fit and into the counts.
    pub(super) fn attach(&mut self, free: &'h SpanRecord) {
        let pages = free.slices.get() * self.arena(free.arena()).layout().pages_per_slice;
        free.set_state(State::Free);
        free.set_warmth(pages);
        // SAFETY: not in the tree; records stay in place; a place has one span, so no key comes
        // twice.
        unsafe { self.inner.fit.insert(NonNull::from(free)) };
        self.inner.counts.free_slices += free.slices.get();
        self.inner.counts.free_dirty_pages += free.dirty.get();
    }

    /// Takes a free span out of the order by fit and out of the counts, so that it can change.
    pub(super) fn detach(&mut self, free: &'h SpanRecord) {
        debug_assert_eq!(free.state(), State::Free);
        // SAFETY: every free span is in the tree, and none changes while it is.
        unsafe { self.inner.fit.remove(NonNull::from(free)) };
        self.inner.counts.free_slices -= free.slices.get();
        self.inner.counts.free_dirty_pages -= free.dirty.get();
    }

    /// The queue of a free span with dirty pages.
    pub(super) fn queue_of(&mut self, span: &SpanRecord) -> &mut Queue {
        if span.is_refused.get() {
            &mut self.inner.refused
        } else {
            &mut self.inner.aging
        }
    }

    /// Takes a free span out of its queue, if it is in one.
    pub(super) fn unqueue(&mut self, entry: &SpanRecord) {
        if entry.dirty.get() > 0 {
            self.queue_of(entry).remove(entry);
            entry.is_refused.set(false);
        }
    }
}

/// How many slices from the first on are known to be clean in neighbours that become one span.
fn clean_slices<'h>(parts: impl Iterator<Item = &'h SpanRecord>) -> usize {
    let mut clean = 0;
    for part in parts {
        clean += part.clean_slices();
        if part.dirty.get() > 0 {
            break;
        }
    }
    clean
}
