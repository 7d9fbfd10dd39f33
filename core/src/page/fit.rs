//! Which free span serves a request; splitting and merging.
//!
//! Policy: warm spans (mostly resident) before tepid ones (partly), these before cold ones, then the smallest that
//! fits, then the lowest place; then the frontier of each arena; then a new arena.

use super::arena::Arena;
use super::heap::Locked;
use super::huge::may_merge;
use super::span::{Detail, FitKey, Queue, Queued, Record, State, Warmth};
use super::want::{Age, Density, From, Want};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::tree::Node;
use crate::os::{Os, OutOfMemory};
use core::ptr::{self, NonNull};

/// Longest span (8 TiB): its OS pages are counted in 32 bits.
const MOST_SLICES: usize = u32::MAX as usize / 32;

/// How many free spans that may be too short for an alignment are looked at before one that cannot be.
const ALIGNED_TRIES: usize = 8;

impl<'h, O: Os> Locked<'h, O> {
    pub(super) fn arena(&self, id: usize) -> &'h Arena {
        &self.heap.arenas()[id]
    }

    /// A free span and the slice in it from which on the request fits and is committed.
    pub(super) fn find(&mut self, want: &Want) -> Option<(&'h Record, usize)> {
        if want.slices > MOST_SLICES {
            return None;
        }
        match self.find_once(want) {
            Ok(found) => found,
            Err(OutOfMemory) if self.relinquish() > 0 => self.find_once(want).ok().flatten(),
            Err(OutOfMemory) => None,
        }
    }

    /// `None` when there is no room, an error when the kernel refused to commit it: only then may giving
    /// back what is free help.
    fn find_once(&mut self, want: &Want) -> Result<Option<(&'h Record, usize)>, OutOfMemory> {
        if let Some((free, at)) = self.find_fit(want) {
            if free.detail() == Detail::Masks {
                self.commit(self.arena(free.arena()), at, at + want.slices, free.end())?;
            }
            return Ok(Some((free, at)));
        }
        if want.from == From::Dirty {
            return Ok(None);
        }
        if let Some(found) = self.open_huge_unit(want) {
            return Ok(Some(found));
        }
        for id in 0..self.heap.arenas().len() {
            if let Some(found) = self.extend(id, want)? {
                return Ok(Some(found));
            }
        }
        match self.open_arena(want)? {
            Some(id) => self.extend(id, want),
            None => Ok(None),
        }
    }

    fn find_fit(&self, want: &Want) -> Option<(&'h Record, usize)> {
        let order: &[Warmth] = match (want.from, want.density) {
            (From::Dirty, _) => &[Warmth::Warm, Warmth::Tepid],
            (From::Anywhere, Density::Unknown) => &[Warmth::Warm, Warmth::Tepid, Warmth::Cold],
            (From::Anywhere, Density::Dense) => {
                &[Warmth::Warm, Warmth::Tepid, Warmth::Huge, Warmth::Cold]
            }
        };
        order
            .iter()
            .find_map(|&warmth| self.find_among(warmth, want))
    }

    fn find_among(&self, warmth: Warmth, want: &Want) -> Option<(&'h Record, usize)> {
        let key = |slices| FitKey {
            warmth,
            slices,
            place: 0,
        };
        let mut next = self.record(self.inner.fit.at_least(key(want.slices)));
        for _ in 0..ALIGNED_TRIES {
            let free = next.filter(|free| free.warmth() == warmth)?;
            if let Some(at) = self.aligned_start(free, want) {
                return Some((free, at));
            }
            next = self.record(self.inner.fit.above(free.key()));
        }
        let surely = key(want.slices + want.align - 1);
        let free = self
            .record(self.inner.fit.at_least(surely))
            .filter(|free| free.warmth() == warmth)?;
        Some((free, self.aligned_start(free, want)?))
    }

    fn aligned_start(&self, free: &Record, want: &Want) -> Option<usize> {
        let at = self
            .arena(free.arena())
            .layout()
            .align_up(free.index.get(), want.align);
        (at + want.slices <= free.end()).then_some(at)
    }

    /// Makes room at the frontier of an arena. `None` if it ends too soon.
    fn extend(
        &mut self,
        id: usize,
        want: &Want,
    ) -> Result<Option<(&'h Record, usize)>, OutOfMemory> {
        let arena = self.arena(id);
        let start = self
            .free_before(arena, arena.frontier())
            .filter(|free| !free.is_huge())
            .map_or(arena.frontier(), |r| r.index.get());
        let at = arena.layout().align_up(start, want.align);
        if at + want.slices > arena.end() {
            return Ok(None);
        }
        self.extend_to(id, at, at + want.slices)?;
        Ok(self
            .free_before(arena, arena.frontier())
            .map(|free| (free, at)))
    }

    /// Commits the slices `from..to` and moves the frontier up to `to`, if it is not there yet: what it
    /// passes over becomes free.
    pub(super) fn extend_to(
        &mut self,
        id: usize,
        from: usize,
        to: usize,
    ) -> Result<(), OutOfMemory> {
        let arena = self.arena(id);
        self.commit_with_tables(id, from, to)?;
        self.commit(arena, from, to, arena.ready().min(arena.end()))?;
        let old = arena.frontier();
        if to > old {
            arena.set_frontier(to);
            self.add_free(self.fresh(id, old, to - old), Age::New);
        }
        Ok(())
    }

    /// The record of slices that never were in a span.
    fn fresh(&self, id: usize, first: usize, slices: usize) -> &'h Record {
        let record = self.arena(id).record(first);
        record.place(id as u8, first);
        record.dirty.set(0);
        record.set_detail(Detail::Masks);
        self.set_length(record, slices);
        record
    }

    /// The free span that starts at slice `at` and has room for `slices`, committed.
    pub(super) fn claim_at(&mut self, id: usize, at: usize, slices: usize) -> Option<&'h Record> {
        let arena = self.arena(id);
        let free = self.free_at(arena, at);
        let free_end = free.map_or(at, Record::end);
        if free_end >= at + slices {
            self.commit(arena, at, at + slices, free_end).ok()?;
        } else if free_end == arena.frontier() && at + slices <= arena.end() {
            self.extend_to(id, at, at + slices).ok()?;
        }
        self.free_at(arena, at)
            .filter(|free| free.slices.get() >= slices && !free.is_huge())
    }

    /// The free span that starts at slice `index`.
    fn free_at(&self, arena: &'h Arena, index: usize) -> Option<&'h Record> {
        let exists = index < arena.frontier();
        exists
            .then(|| arena.record(index))
            .filter(|record| record.state() == State::Free)
    }

    /// The free span that ends just before slice `index`.
    pub(super) fn free_before(&self, arena: &'h Arena, index: usize) -> Option<&'h Record> {
        let last = index
            .checked_sub(1)
            .filter(|&last| last >= arena.layout().head)?;
        self.free_at(arena, last - arena.record(last).back.get())
    }

    /// Sets a span's length, in its first record and its last.
    pub(super) fn set_length(&self, first: &Record, slices: usize) {
        first.slices.set(slices);
        self.arena(first.arena())
            .record(first.index.get() + slices - 1)
            .back
            .set(slices - 1);
    }

    /// Cuts the slices `at..at + slices` out of a free span; what is left before and after them stays free and
    /// as old as it was. Returns the record of what was cut out, complete but for a state.
    pub(super) fn carve(&mut self, free: &'h Record, at: usize, slices: usize) -> &'h Record {
        let before = self.share(free, free.index.get(), at);
        self.carve_after(free, before, at, slices)
    }

    /// [`Locked::carve`] where the slices before `at` are known to have `before` dirty pages.
    pub(super) fn carve_after(
        &mut self,
        free: &'h Record,
        before: usize,
        at: usize,
        slices: usize,
    ) -> &'h Record {
        let arena = self.arena(free.arena());
        let (first, cut, end) = (free.index.get(), at + slices, free.end());
        let (id, detail) = (free.arena() as u8, free.detail());
        debug_assert!(at - first > 1024 || before == self.share(free, first, at));
        self.detach(free);
        let all = free.dirty.get();
        let taken = self.share(free, at, cut);
        if cut < end {
            let tail = arena.record(cut);
            tail.place(id, cut);
            self.split_off(free, tail, end - cut, all - before - taken);
        }
        if before == 0 {
            self.unqueue(free);
        }
        free.set_state(State::Blank);
        if first < at {
            free.dirty.set(before);
            self.set_length(free, at - first);
            self.attach(free);
        }
        let part = arena.record(at);
        part.place(id, at);
        part.dirty.set(taken);
        self.set_length(part, slices);
        self.keep_detail(part, detail);
        part
    }

    /// Makes `tail` a free span, of the age and in the queue of the one it is cut from.
    fn split_off(&mut self, whole: &Record, tail: &'h Record, slices: usize, dirty: usize) {
        tail.dirty.set(dirty);
        tail.set_detail(whole.detail());
        tail.set_freed_at(whole.freed_at());
        self.set_length(tail, slices);
        if dirty > 0
            && let Some(queue) = self.queue(whole.queued())
        {
            queue.push_after(whole, tail);
        }
        self.attach(tail);
    }

    /// Makes slices that belong to nobody a free span, merged with its free neighbours.
    ///
    /// The result is as old as its part with the most dirty pages: small spans that come and go beside a
    /// large one must not keep it young for ever. Returns it.
    pub(super) fn add_free(&mut self, span: &'h Record, age: Age) -> &'h Record {
        let arena = self.arena(span.arena());
        if span.dirty.get() > 0 {
            let swept = &mut self.inner.swept;
            swept.note_dirty(span.arena(), span.index.get(), span.end());
        }
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
        let detail = self.agree(&parts);
        let sum = |of: fn(&Record) -> usize| parts.into_iter().flatten().map(of).sum::<usize>();
        let (slices, dirty) = (sum(|part| part.slices.get()), sum(|part| part.dirty.get()));
        let heir = neighbours
            .into_iter()
            .flatten()
            .filter(|n| n.dirty.get() > span.dirty.get())
            .max_by_key(|n| n.dirty.get());
        let merged = before.unwrap_or(span);
        self.inherit(neighbours, heir, merged);
        if heir.is_none() && dirty > 0 {
            self.line_up(merged, age);
        }
        for part in parts.into_iter().flatten() {
            part.set_state(State::Blank);
        }
        merged.dirty.set(dirty);
        merged.set_detail(detail);
        self.set_length(merged, slices);
        if detail == Detail::Blanket {
            // A blanket may have spread over what was clean.
            let swept = &mut self.inner.swept;
            swept.note_dirty(merged.arena(), merged.index.get(), merged.end());
        }
        self.attach(merged);
        merged
    }

    /// Puts a merged span into the queue in the place of its heir, if it has one, and its parts out of it.
    fn inherit(
        &mut self,
        neighbours: [Option<&'h Record>; 2],
        heir: Option<&'h Record>,
        merged: &'h Record,
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
                if let Some(queue) = self.queue(heir.queued()) {
                    queue.push_after(heir, merged);
                }
                self.unqueue(heir);
            }
            None => {}
        }
    }

    /// Puts a span that becomes free into the queue by its age.
    fn line_up(&mut self, span: &'h Record, age: Age) {
        let now = self.heap.os.now_ms();
        match age {
            Age::New => {
                span.set_freed_at(now);
                self.inner.aging.push(span);
            }
            Age::Old => {
                let due = now.saturating_sub(self.heap.decay_ms.load(Relaxed));
                let oldest = self.inner.aging.oldest().map_or(due, Record::freed_at);
                span.set_freed_at(due.min(oldest));
                self.inner.aging.push_oldest(span);
            }
        }
    }

    /// Puts a free span into the order by fit and into the counts.
    pub(super) fn attach(&mut self, free: &'h Record) {
        let pages = free.slices.get() * self.arena(free.arena()).layout().pages_per_slice;
        free.set_state(State::Free);
        free.note_warmth(pages);
        // SAFETY: not in the tree; records stay in place; a place has one span, so no key comes twice.
        unsafe { self.inner.fit.insert(NonNull::from(free)) };
        self.inner.counts.free_slices += free.slices.get();
        self.inner.counts.free_dirty_pages += free.dirty.get();
    }

    /// Takes a free span out of the order by fit and out of the counts, so that it can change.
    pub(super) fn detach(&mut self, free: &'h Record) {
        debug_assert_eq!(free.state(), State::Free);
        // SAFETY: every free span is in the tree, and none changes while it is.
        unsafe { self.inner.fit.remove(NonNull::from(free)) };
        self.inner.counts.free_slices -= free.slices.get();
        self.inner.counts.free_dirty_pages -= free.dirty.get();
    }

    pub(super) fn queue(&mut self, which: Queued) -> Option<&mut Queue> {
        match which {
            Queued::No => None,
            Queued::Aging => Some(&mut self.inner.aging),
            Queued::Refused => Some(&mut self.inner.refused),
        }
    }

    /// Takes a span out of whatever queue it is in.
    pub(super) fn unqueue(&mut self, entry: &Record) {
        if let Some(queue) = self.queue(entry.queued()) {
            queue.remove(entry);
        }
    }

    fn record(&self, found: Option<NonNull<Record>>) -> Option<&'h Record> {
        // SAFETY: nodes of the tree are records of this heap's arenas, which stay in place as long as it.
        found.map(|record| unsafe { record.as_ref() })
    }
}
