//! Which free pages go back to the kernel, and in what pieces.
//!
//! Free spans with dirty pages wait in a queue. Those past the decay time are purged, oldest first:
//! by the purge thread, by a caller at the end of an operation (one piece at most), or by a request
//! for all. `base/policy.rs` decides when. A piece is cut out of its span, set aside, and
//! purged without the heap's lock, so that no other thread waits for the kernel. Meanwhile it
//! counts as free and dirty. Where every commit is charged, whole huge pages are uncommitted
//! instead. What the kernel refuses to purge stays dirty, apart from its neighbours and out of the
//! queue, for [`RETRY_MS`]. A unit of huge pages ([`super::huge`]) is split before any page of it
//! is purged, unless all of it is free.

use super::arena::{Arena, Commit, SliceRef, pointer};
use super::commit::committed_units;
use super::figures::Footprint;
use super::heap::{Locked, PageHeap};
use super::huge::{Policy, mark};
use super::span::{Age, FitKey, FitRank, SpanRecord, State, Warmth};
use super::zero_state::{Dirty, DirtyRun};
use crate::base::policy::{self, FAR_BYTES, FreeSince, LEAST_BYTES, RETRY_MS};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::lock::FutexGuard;
use crate::os::{Huge, Os, Populated, Purged, shared};
use core::ops::Range;
use core::ptr::NonNull;

/// Most bytes of one piece: 2,048 pages of 4 KiB, for which the kernel needs 0.1 to 0.4 ms. Where
/// few pages of each slice are dirty, as after coroutines, it spans as many slices.
const MOST_BYTES: usize = 8 << 20;

/// A free span with more dirty bytes than this may never have been touched in most of its pages:
/// the kernel is asked.
const LONG_BYTES: usize = 64 << 20;

/// Most bytes of a piece in which the kernel finds few pages. Asking about a piece that is
/// populated throughout takes 0.5 ms at this size.
const MOST_SPARSE: usize = 512 << 20;

/// Most calls for the parts of a piece that the kernel refused. Up to three locked pages take no
/// more.
const MOST_TRIES: usize = 64;

/// Most bytes that lose huge pages for one edge of a range.
const MOST_EDGE: usize = 16 << 20;

/// Which spans a piece of work is about; always the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Those that became free at this time or before, in ms.
    Until(u64),
    /// As many as leave at most this number of dirty pages.
    Above(usize),
    /// All that the program did not lock into memory.
    All,
    /// All, locked or not.
    Locked,
}

impl Due {
    /// Whether no caller asked for it.
    fn is_own(self) -> bool {
        matches!(self, Due::Until(_) | Due::Above(_))
    }
}

/// What was found to do under the lock.
enum Piece<'h> {
    /// To be purged: a part of a span, set aside, and its dirty pages.
    Pages(&'h SpanRecord, DirtyRun, Belief),
    /// To be uncommitted: whole huge pages of a span, set aside. Else the dirty pages are purged.
    Commit(&'h SpanRecord, DirtyRun),
    /// A unit of huge pages, to be split before anything in it is purged.
    Unit(SliceRef<'h>),
}

/// Whether masks are likely to be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// They are taken as they are.
    Masks,
    /// The kernel is asked.
    Kernel,
}

impl<O: Os> PageHeap<O> {
    /// Gives back the free pages that are due by their age, or that are to give way. Returns how
    /// many bytes.
    pub fn purge_aged(&self) -> usize {
        match self.may_stay.swap(usize::MAX, Relaxed) {
            usize::MAX => {
                let due = self.locked().aged();
                due.map_or(0, |due| self.purge_by_pieces(due))
            }
            bytes => self.purge_above(bytes),
        }
    }

    /// Gives back free pages, oldest first, until at most `bytes` of them may be resident, or as
    /// many as exceed that now: others may free more meanwhile. Returns how many bytes.
    pub fn purge_above(&self, bytes: usize) -> usize {
        let most = bytes / self.os.page_bytes();
        self.purge_by_pieces(Due::Above(most))
    }

    /// A large block was just taken, of which `cold` bytes are not resident. Returns whether free
    /// pages must give way to it, by a [purge](PageHeap::purge_aged) now.
    pub fn make_way(&self, cold: usize) -> bool {
        let locked = self.locked();
        let Footprint { used, dirty } = locked.footprint();
        let most_held = &mut locked.inner.most_held;
        *most_held = (*most_held).max((used + dirty).saturating_sub(cold));
        let stays = policy::room_beside_block(used, dirty, *most_held);
        let stays = stays.map(|stays| stays.max(self.limits.kept()));
        if let Some(stays) = stays.filter(|&stays| stays < dirty) {
            self.may_stay.store(stays, Relaxed);
        }
        self.makes_way()
    }

    /// Whether free pages are to give way to a large block.
    pub fn makes_way(&self) -> bool {
        self.may_stay.load(Relaxed) != usize::MAX
    }

    /// When free spans are to be purged next by their age, in ms; `None` when none will be: the
    /// program locked its memory, or all of them may stay.
    pub fn next_purge(&self) -> Option<u64> {
        if self.makes_way() {
            return Some(0);
        }
        let mut locked = self.locked();
        let again = locked.next_try();
        let Some(since) = locked.free_since() else {
            return again;
        };
        let due = since.due_at(self.limits.decay_ms());
        Some(again.map_or(due, |again| again.min(due)))
    }

    /// Gives back all free pages but those that the program locked. Returns how many bytes.
    pub fn purge_all(&self) -> usize {
        self.locked().rejoin_refused(u64::MAX);
        let uncommitted = if self.os.strict_commit() {
            self.decommit_free(0)
        } else {
            0
        };
        uncommitted + self.purge_by_pieces(Due::All)
    }

    /// Gives back all free pages, locked or not: for a program that asks for it. Returns how many
    /// bytes.
    pub fn purge_locked(&self) -> usize {
        self.locked().rejoin_refused(u64::MAX);
        self.purge_by_pieces(Due::Locked)
    }

    /// Gives pages of a span in use back; false if the kernel refuses, or if they are not the
    /// heap's any more, for the program mapped something over them.
    ///
    /// # Safety
    /// - Whole OS pages of one span in use, which no thread uses.
    pub unsafe fn purge_in_use(&self, start: NonNull<u8>, bytes: usize) -> bool {
        let place = self.locate(start.as_ptr() as usize);
        let Some(place) = place.filter(|place| !place.record().is_overmapped.get()) else {
            return false;
        };
        if self.os.is_locked() {
            return false;
        }
        self.split_unit(place);
        // SAFETY: the caller's promise; spans in use are committed.
        let purged = unsafe { self.os.purge(start, bytes) };
        self.locked().count_purge(bytes, purged);
        let start = start.addr().get();
        self.keep_ordinary(place.arena, start..start + bytes);
        purged == Purged::Zero
    }

    /// Ends: every piece shortens the queue or purges pages.
    fn purge_by_pieces(&self, due: Due) -> usize {
        let (mut bytes, mut reach) = (0, MOST_SPARSE);
        let enough = self.locked().most_bytes(due);
        while bytes < enough {
            let _alone = self.purging.lock();
            match self.purge_piece(due, &mut reach) {
                Some(more) => bytes += more,
                None => break,
            }
        }
        bytes
    }

    /// What a caller purges after it has released the lock: one piece of what is due by its age, or
    /// all that exceeds a bound. While another thread purges, the caller does nothing. If the bound
    /// is far exceeded it waits and then purges, because that thread may have lost its processor.
    pub(super) fn purge_on_the_way(&self, due: Due) {
        let mut reach = MOST_SPARSE;
        while let Some(_alone) = self.turn(due) {
            let purged = self.purge_piece(due, &mut reach);
            if purged.is_none() || matches!(due, Due::Until(_)) {
                return;
            }
        }
    }

    /// The right to purge. `None` while another thread has it, unless free pages, including those
    /// on their way, exceed a bound by more than [`FAR_BYTES`].
    fn turn(&self, due: Due) -> Option<FutexGuard<'_>> {
        self.purging.try_lock().or_else(|| {
            let Due::Above(most) = due else { return None };
            // In a signal handler the holder may be the calling thread itself. In a child of a fork
            // that none of our handlers saw, the holder stayed in the parent.
            let comes_back = !self.purging.is_mine() && shared::is_mine();
            let far = most.saturating_add(FAR_BYTES / self.os.page_bytes());
            let is_far = || self.locked().inner.counts.free_dirty_pages > far;
            (comes_back && is_far()).then(|| self.purging.lock())
        })
    }

    /// Purges one piece of at most `reach` bytes; `None` when nothing is due. The caller holds
    /// `purging`, so that a fork finds no piece on its way.
    ///
    /// The masks of a large block that was freed call all of it dirty, however little of it was
    /// touched. So the kernel is asked about long spans. While it finds few pages, `reach` is long:
    /// a free TiB is then a matter of some thousand calls. A long piece that is populated after all
    /// is purged for its first [`MOST_BYTES`] only.
    fn purge_piece(&self, due: Due, reach: &mut usize) -> Option<usize> {
        let grain = self.grain();
        let piece = self.locked().cut_piece(due, *reach, grain)?;
        Some(match piece {
            Piece::Pages(part, run, belief) => self.purge_part(part, run, (due, belief), reach),
            Piece::Commit(part, run) => match self.uncommit_part(part) {
                Ok(bytes) => bytes,
                Err(_) => self.purge_part(part, run, (due, Belief::Masks), reach),
            },
            Piece::Unit(place) => {
                self.split_unit(place);
                0
            }
        })
    }

    /// Purges the dirty pages of a part that was set aside, then puts it back. Returns how many
    /// bytes of them are no longer dirty.
    fn purge_part(
        &self,
        part: &SpanRecord,
        run: DirtyRun,
        (due, belief): (Due, Belief),
        reach: &mut usize,
    ) -> usize {
        let asked = belief == Belief::Kernel || matches!(due, Due::Above(_));
        let populated = match asked {
            true => self.populated_bytes(part, &run),
            false => part.dirty.get() * self.os.page_bytes(),
        };
        *reach = match populated {
            few if asked && few <= MOST_BYTES / 2 => (*reach * 4).min(MOST_SPARSE),
            _ => MOST_BYTES,
        };
        let run = match populated {
            many if many > MOST_BYTES => run.within(MOST_BYTES),
            _ => run,
        };
        let bytes = match populated {
            0 => self.locked().note_clean(part, run.from, run.to),
            _ => self.purge_run(part, &run, due),
        };
        let mut locked = self.locked();
        locked.note_purged(populated.min(bytes), due);
        let clean = locked.return_part(part, run.to);
        drop(locked);
        if let Some((arena, range)) = clean {
            self.keep_ordinary(arena, range);
        }
        bytes
    }

    /// Bytes of a run that are populated, as the kernel says, else as the masks of `part` say.
    fn populated_bytes(&self, part: &SpanRecord, run: &DirtyRun) -> usize {
        let mut populated = 0;
        let count = |found: Populated| populated += found.bytes;
        // SAFETY: a run's slices are committed.
        match unsafe { self.os.populated(pointer(run.address), run.bytes, count) } {
            Ok(()) => populated,
            Err(_) => part.dirty.get() * self.os.page_bytes(),
        }
    }

    /// Purges a run of a part that was set aside, or as much of it as the kernel allows, which the
    /// masks record. Returns how many bytes are no longer dirty.
    fn purge_run(&self, part: &SpanRecord, run: &DirtyRun, due: Due) -> usize {
        let purged = self.purge_range(run.address, run.bytes, due);
        let mut locked = self.locked();
        locked.count_purge(run.bytes, purged);
        match purged {
            Purged::Zero => locked.note_clean(part, run.from, run.to),
            Purged::MaybeDirty => {
                drop(locked);
                self.purge_around(part, run, due)
            }
        }
    }

    /// The kernel refuses a whole range because of one page that the program locked. So this purges
    /// halves of the run, then quarters of what is left, and so on.
    fn purge_around(&self, part: &SpanRecord, run: &DirtyRun, due: Due) -> usize {
        let arena = &self.arenas()[part.arena()];
        let (layout, first) = (arena.layout(), part.index.get());
        let page = |slice: usize| (slice - first) * layout.pages_per_slice;
        let (from, end) = (page(run.from), page(run.to));
        let (mut size, mut tries, mut cleaned) = ((end - from).next_power_of_two(), MOST_TRIES, 0);
        while size > 1 && tries > 0 {
            size /= 2;
            let mut at = arena.find_page(part, from..end, |mask| mask);
            while at < end && tries > 0 {
                let to = end.min(at - (at - from) % size + size);
                let address = layout.address(first) + at * layout.page_bytes();
                let bytes = (to - at) * layout.page_bytes();
                let purged = self.purge_range(address, bytes, due);
                let mut locked = self.locked();
                if purged == Purged::Zero {
                    locked.count_returned(bytes);
                    cleaned += locked.note_clean_pages(part, at..to);
                }
                drop(locked);
                tries -= 1;
                at = arena.find_page(part, to..end, |mask| mask);
            }
        }
        cleaned
    }

    fn purge_range(&self, address: usize, bytes: usize, due: Due) -> Purged {
        let start = pointer(address);
        // SAFETY: cut out of a free span, so no thread uses it; its slices are committed.
        unsafe {
            match due {
                Due::Locked => self.os.purge_locked(start, bytes),
                Due::Until(_) | Due::Above(_) | Due::All => self.os.purge(start, bytes),
            }
        }
    }
}

/// A run with the clean slices of its span in the same huge pages, if these are committed.
fn widened(arena: &Arena, run: DirtyRun, span: &SpanRecord) -> DirtyRun {
    let from = (run.from / HUGE_SLICES * HUGE_SLICES).max(span.index.get());
    let to = run.to.next_multiple_of(HUGE_SLICES).min(span.end());
    let to = arena.first_dirty(run.to, to).unwrap_or(to);
    match arena.find(from, to, Commit::No) {
        end if end == to => DirtyRun::whole(arena, from, to),
        _ => run,
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// What passes a bound, in bytes or in age: the caller purges it once it has given up the lock.
    pub(super) fn excess(&mut self) -> Option<Due> {
        let dirty = self.inner.counts.free_dirty_pages * self.page_bytes();
        self.heap.limits.note_dirty(dirty);
        let most = self.most_dirty_pages();
        if self.inner.counts.free_dirty_pages > most {
            return Some(Due::Above(most));
        }
        self.inner.aging.oldest().or(self.inner.refused.oldest())?;
        let decay_ms = self.heap.limits.decay_for_callers()?;
        let is_due = self.free_since()?.due_at(decay_ms) <= self.heap.os.now_ms();
        is_due.then(|| self.aged())?
    }

    /// What goes by its age now.
    fn aged(&mut self) -> Option<Due> {
        let (now, decay_ms) = (self.heap.os.now_ms(), self.heap.limits.decay_ms());
        Some(Due::Until(self.free_since()?.until(now, decay_ms)?))
    }

    /// Since when the spans are free that go by their age; `None` if all of them may stay.
    fn free_since(&mut self) -> Option<FreeSince> {
        let oldest = self.next_due(Due::Until(u64::MAX))?.freed_at();
        let newest = self.inner.aging.newest()?.freed_at().max(oldest);
        Some(FreeSince { oldest, newest })
    }

    /// Notes that `bytes` resident bytes were purged.
    fn note_purged(&mut self, bytes: usize, due: Due) {
        if due.is_own() {
            let (now, decay_ms) = (self.heap.os.now_ms(), self.heap.limits.decay_ms());
            self.inner.counts.note_purged(bytes, now, decay_ms);
        }
    }

    /// Whether any page may be given back.
    pub(super) fn may_purge(&mut self) -> bool {
        self.next_due(Due::All).is_some()
    }

    /// When the next purge of pages that the kernel refused is tried, in ms.
    fn next_try(&self) -> Option<u64> {
        let stays = self.heap.os.is_locked();
        let refused = self.inner.refused.oldest().filter(|_| !stays)?;
        let goes = self.inner.counts.free_dirty_pages > self.kept_pages();
        goes.then(|| refused.freed_at().saturating_add(RETRY_MS))
    }

    fn next_due(&mut self, due: Due) -> Option<&'h SpanRecord> {
        if self.heap.os.is_locked() && due != Due::Locked {
            return None;
        }
        if self.inner.refused.oldest().is_some()
            && let Some(time) = self.heap.os.now_ms().checked_sub(RETRY_MS)
        {
            self.rejoin_refused(time);
        }
        let dirty = self.inner.counts.free_dirty_pages;
        self.inner.aging.oldest().filter(|oldest| match due {
            Due::Until(time) => oldest.freed_at() <= time && dirty > self.kept_pages(),
            Due::Above(most) => dirty > most,
            Due::All | Due::Locked => true,
        })
    }

    /// How many bytes a purge gives back at most.
    fn most_bytes(&self, due: Due) -> usize {
        match due {
            Due::Above(most) => {
                let dirty = self.inner.counts.free_dirty_pages;
                dirty.saturating_sub(most) * self.page_bytes()
            }
            Due::Until(_) | Due::All | Due::Locked => usize::MAX,
        }
    }

    /// Dirty pages of free spans that stay at any age.
    pub(super) fn kept_pages(&self) -> usize {
        self.heap.limits.kept() / self.page_bytes()
    }

    /// Most pages of the next piece, of at most `bytes`.
    fn most_pages(&self, due: Due, bytes: usize) -> usize {
        let most = bytes / self.page_bytes();
        let least = LEAST_BYTES / self.page_bytes();
        let dirty = self.inner.counts.free_dirty_pages;
        match due {
            Due::Until(_) => most.min(dirty.saturating_sub(self.kept_pages())),
            Due::Above(bound) => most.min(dirty.saturating_sub(bound).max(least)),
            Due::All | Due::Locked => most,
        }
    }

    /// Cuts the next piece out of the oldest span that is due: at most `reach` dirty bytes where
    /// the kernel is asked about them, else at most [`MOST_BYTES`].
    fn cut_piece(&mut self, due: Due, reach: usize, grain: usize) -> Option<Piece<'h>> {
        let span = self.next_due(due)?;
        let arena = self.arena(span.arena());
        let index = span.index.get();
        arena.write_masks(span);
        if span.is_huge() && span.slices.get() == HUGE_SLICES {
            let part = self.set_aside(span, index, HUGE_SLICES);
            let unit = DirtyRun::whole(arena, index, index + HUGE_SLICES);
            return Some(Piece::Pages(part, unit, Belief::Masks));
        }
        if span.is_huge() {
            return Some(Piece::Unit(SliceRef { arena, index }));
        }
        let (belief, bytes) = match span.dirty.get() * self.page_bytes() > LONG_BYTES {
            true => (Belief::Kernel, reach),
            false => (Belief::Masks, MOST_BYTES),
        };
        let from = index + span.clean_slices();
        let run = arena.next_dirty(from, span.end(), self.most_pages(due, bytes))?;
        let unit = (run.from / HUGE_SLICES * HUGE_SLICES).max(index);
        let charged = self.heap.os.strict_commit();
        let run = match charged
            .then(|| committed_units(arena, unit..span.end()))
            .flatten()
        {
            Some((from, to)) if from <= run.from => {
                let run = run.within((to - run.from) * SLICE_BYTES);
                return Some(Piece::Commit(self.set_aside(span, from, to - from), run));
            }
            Some((from, _)) => run.within((from - run.from) * SLICE_BYTES),
            None => run,
        };
        let run = match grain {
            1 => run,
            _ => widened(arena, run, span),
        };
        let part = self.set_aside(span, run.from, run.to - run.from);
        Some(Piece::Pages(part, run, belief))
    }

    pub(super) fn count_purge(&mut self, bytes: usize, purged: Purged) {
        if purged == Purged::Zero {
            self.count_returned(bytes);
        }
    }

    /// Marks the slices `from..to` of a part that was set aside as clean. Returns how many bytes of
    /// them were dirty.
    fn note_clean(&mut self, part: &SpanRecord, from: usize, to: usize) -> usize {
        let cleaned = self.arena(part.arena()).clear_dirty(from, to);
        self.uncount_dirty(part, cleaned)
    }

    /// The same of some of its pages.
    fn note_clean_pages(&mut self, part: &SpanRecord, pages: Range<usize>) -> usize {
        let cleaned = self
            .arena(part.arena())
            .clear_pages(part.index.get(), pages);
        self.uncount_dirty(part, cleaned)
    }

    fn uncount_dirty(&mut self, part: &SpanRecord, pages: usize) -> usize {
        part.dirty.set(part.dirty.get() - pages);
        self.inner.counts.free_dirty_pages -= pages;
        pages * self.page_bytes()
    }
}

impl<O: Os> PageHeap<O> {
    /// If the slice is in a unit, makes the unit an ordinary part of the arena. Every free page of
    /// it counts as dirty from then on, because a fault in one page made the whole huge page
    /// resident. The lock is not held while the kernel splits the huge page; meanwhile spans of the
    /// unit may be taken and freed.
    pub(super) fn split_unit(&self, place: SliceRef<'_>) {
        if !place.record().is_huge() {
            return;
        }
        let (arena, from) = (place.arena, place.index / HUGE_SLICES * HUGE_SLICES);
        let start = arena.layout().address(from);
        let unit = start..start + HUGE_BYTES;
        let mut locked = self.locked();
        let told = (locked.split_units()).include(unit.clone(), arena.layout().range(), usize::MAX);
        drop(locked);
        // Again even if the kernel was told before, because Neap may since have asked for huge
        // pages.
        self.advise(told.unwrap_or(unit.clone()), Huge::Avoid);
        self.advise(unit, Huge::Split);
        self.locked().make_ordinary(arena, from, Dirty::All);
    }

    /// How many slices the kernel may make resident at once, unasked.
    pub(super) fn grain(&self) -> usize {
        match self.huge_policy() != Policy::Always && self.os.has_huge_everywhere() {
            true => HUGE_SLICES,
            false => 1,
        }
    }

    /// Where the kernel uses huge pages everywhere, asks for none at the edges of a range that was
    /// purged, or that holds a block which would [waste](super::huge::wastes) them. Otherwise the
    /// kernel would make all pages there resident, unasked, together with those beyond the edge.
    /// Does nothing where more than [`MOST_EDGE`] would lose huge pages.
    pub(super) fn keep_ordinary(&self, arena: &Arena, range: Range<usize>) {
        if self.grain() == 1 {
            return;
        }
        for edge in [range.start, range.end] {
            let start = edge / HUGE_BYTES * HUGE_BYTES;
            let all = arena.layout().range();
            if start == edge || !all.contains(&start) {
                continue;
            }
            let unit = start..start + HUGE_BYTES;
            let told = self.locked().split_units().include(unit, all, MOST_EDGE);
            let Some(told) = told else { continue };
            // Addresses that the arena claims but has not mapped may be the program's.
            for mapped in arena.mapped() {
                let range = told.start.max(mapped.start)..told.end.min(mapped.end);
                if !range.is_empty() {
                    self.advise(range, Huge::Avoid);
                }
            }
        }
    }
}

impl<'h, O: Os> Locked<'h, O> {
    /// Makes units that are all free and clean ordinary again. Returns how many bytes they have.
    pub(super) fn split_untouched_units(&mut self) -> usize {
        let mut bytes = 0;
        for node in 0..self.heap.os.nodes() {
            let whole = FitKey {
                rank: FitRank::of(Warmth::Huge, node),
                slices: HUGE_SLICES,
                place: 0,
            };
            while let Some(unit) = self
                .free_from(whole)
                .filter(|unit| unit.rank() == whole.rank)
            {
                self.make_ordinary(self.arena(unit.arena()), unit.index.get(), Dirty::AsBefore);
                bytes += HUGE_BYTES;
            }
        }
        bytes
    }

    /// Makes the unit at slice `from` an ordinary part of the arena, if it is one. Free spans in it
    /// that are dirty count as old from now on.
    #[inline(never)]
    fn make_ordinary(&mut self, arena: &'h Arena, from: usize, dirty: Dirty) {
        if !arena.record(from).is_huge() {
            return;
        }
        mark(arena, from, Huge::Avoid);
        let mut index = from;
        while index < from + HUGE_SLICES {
            let span = arena.record(index);
            index = span.end();
            if span.state() == State::Free {
                self.detach(span);
                self.unqueue(span);
                span.set_state(State::Blank);
                arena.note_writes(span, dirty);
                span.know_clean(0);
                self.add_free(span, Age::Old);
            }
        }
    }
}
