//! One record for each slice, the queues that order free spans by age, and what a request for
//! slices asks for: where in free slices its span should begin.
//!
//! The record of a span's first slice describes the span. The record of its last slice says how far
//! back the first is. The records in between are blank. All fields are words of their own, so that
//! any address may be looked up without the lock: the answer may be stale, but is never undefined.

use crate::base::sync::plain::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::base::tree::{Node, Side};
use crate::base::units::{HUGE_SLICES, SLICE_BYTES};
use crate::os::Huge;
use core::ptr::{null_mut, without_provenance_mut};

pub use crate::base::policy::Age;
pub use neap_shared::stats::{USES, Use};

/// A 32-bit field, read and written as `usize`.
#[derive(Debug)]
pub(super) struct Field(AtomicU32);

impl Field {
    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed) as usize
    }

    pub(super) fn set(&self, value: usize) {
        debug_assert!(u32::try_from(value).is_ok());
        self.0.store(value as u32, Relaxed);
    }
}

/// A field that is true or false.
#[derive(Debug)]
pub(super) struct Flag(AtomicU8);

impl Flag {
    pub(super) fn get(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(super) fn set(&self, value: bool) {
        self.0.store(u8::from(value), Relaxed);
    }
}

/// What a record says about the slice it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not the first slice of a span.
    Blank,
    /// First slice of a free span.
    Free,
    /// First slice of a piece of a free span that was set aside: the kernel works on it, without
    /// the heap's lock.
    Aside,
    /// First slice of a span in use.
    Used(Use),
}

const BLANK: u8 = 0;
const FREE: u8 = u8::MAX;
const ASIDE: u8 = u8::MAX - 1;

/// The record of one slice. Zeroed memory is a blank record.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct SpanRecord {
    links: [AtomicPtr<SpanRecord>; 2],
    /// In use: its user's pointer, and its moved slices. Free, in a queue: its neighbours there.
    older: AtomicPtr<SpanRecord>,
    newer: AtomicPtr<SpanRecord>,
    /// In use: the bytes its user asked for. Free: when it became free, in ms.
    stamp: AtomicUsize,
    /// This slice's number in its arena.
    pub(super) index: Field,
    /// Slices in the span.
    pub(super) slices: Field,
    /// OS pages of the span that may be dirty: as many as its masks say, or all.
    pub(super) dirty: Field,
    /// In the record of a span's last slice: how many slices back its first one is. In that of the
    /// first of several: see [`SpanRecord::clean_slices`].
    pub(super) back: Field,
    arena: AtomicU8,
    state: AtomicU8,
    /// The kernel refused to purge this free span. It does not merge with its neighbours until the
    /// purge is tried again.
    pub(super) is_refused: Flag,
    /// Free: see [`Warmth`]. Large and in use: see [`SpanRecord::tail_pages`].
    warmth: AtomicU8,
    /// Pages were moved into this span in use; see [`super::renew`].
    pub(super) is_moved: Flag,
    /// Every page of the span counts as dirty, and its masks are out of date: a large span is freed
    /// and taken again without a look at them.
    pub(super) all_dirty: Flag,
    /// The program mapped over this span in use, or another process fills its pages; see
    /// [`super::renew`].
    pub(super) is_overmapped: Flag,
    /// Above [`HUGE`]: the NUMA node that the span is for.
    marks: AtomicU8,
}

/// Of the slice, not of its span: the kernel may back it with a huge page; see [`super::huge`].
const HUGE: u8 = 1;

/// Beside the number of a tail's pages: a sweep has seen the tail.
const SEEN: u8 = 1 << 7;

/// Bytes of a record; the tables are laid out by it.
pub(super) const RECORD_BYTES: usize = size_of::<SpanRecord>();
const _: () = assert!(RECORD_BYTES == 64);

/// How free spans are ordered: by node, then which pages to reuse first, then best fit, then lowest
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FitKey {
    pub(super) rank: FitRank,
    pub(super) slices: usize,
    /// Arena and slice as one number.
    pub(super) place: u64,
}

impl FitKey {
    /// No key comes before this one.
    pub(super) const FIRST: Self = Self {
        rank: FitRank::of(Warmth::Warm, 0),
        slices: 0,
        place: 0,
    };
}

/// The node and the [`Warmth`] of a free span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FitRank(u8);

impl FitRank {
    pub(super) const fn of(warmth: Warmth, node: usize) -> Self {
        Self((node as u8) << 2 | warmth as u8)
    }
}

/// Whether reusing a free span mostly saves faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Warmth {
    /// At least half of the pages may be resident.
    Warm = 0,
    /// Some may be.
    Tepid = 1,
    /// None is, and touching one makes all of a huge page resident. For slabs only.
    Huge = 2,
    /// None is.
    Cold = 3,
}

impl SpanRecord {
    pub(super) fn state(&self) -> State {
        match self.state.load(Relaxed) {
            FREE => State::Free,
            ASIDE => State::Aside,
            code => Use::from_code(code).map_or(State::Blank, State::Used),
        }
    }

    pub(super) fn set_state(&self, state: State) {
        let code = match state {
            State::Blank => BLANK,
            State::Free => FREE,
            State::Aside => ASIDE,
            State::Used(use_) => use_ as u8,
        };
        self.state.store(code, Relaxed);
    }

    /// Bytes asked for, of a span in use.
    pub(super) fn bytes(&self) -> usize {
        self.stamp.load(Relaxed)
    }

    /// Sets the requested bytes.
    pub(super) fn set_bytes(&self, bytes: usize) {
        self.stamp.store(bytes, Relaxed);
    }

    /// The pointer of this span's user; before it is set, null or any of Neap's own data.
    pub(super) fn user_data(&self) -> *mut u8 {
        self.older.load(Acquire).cast()
    }

    /// Sets the pointer of this span's user.
    ///
    /// # Safety
    /// - The span is in use: in a free one the word is a link.
    pub(super) unsafe fn set_user_data(&self, pointer: *mut u8) {
        self.older.store(pointer.cast(), Release);
    }

    /// For a span in use: into how many of its first slices pages were moved.
    pub(super) fn moved_slices(&self) -> usize {
        // Where the kernel refused to map a freed span afresh, the mark stays; its number was
        // overwritten by a link, or by null.
        let moved = self.newer.load(Relaxed).addr().min(self.slices.get());
        moved.max(1) * usize::from(self.is_moved.get())
    }

    /// For a cached span: the link to the one below it in its list.
    pub(super) fn below(&self) -> &AtomicPtr<SpanRecord> {
        &self.older
    }

    /// For a cached span: the round in which it was cached.
    pub(super) fn round(&self) -> usize {
        self.newer.load(Relaxed).addr()
    }

    /// Sets both.
    ///
    /// # Safety
    /// - The span is in use, and no pages were moved into it: in others these words mean more.
    pub(super) unsafe fn set_cached(&self, below: *mut SpanRecord, round: usize) {
        debug_assert!(matches!(self.state(), State::Used(_)) && !self.is_moved.get());
        self.older.store(below, Relaxed);
        self.newer.store(without_provenance_mut(round), Relaxed);
    }

    /// Sets into how many of its first slices pages were moved; returns what was set before.
    ///
    /// # Safety
    /// - The span is in use: in a free one the word is a link.
    pub(super) unsafe fn swap_moved(&self, slices: usize) -> usize {
        let before = self.moved_slices();
        self.newer.store(without_provenance_mut(slices), Relaxed);
        self.is_moved.set(slices > 0);
        before
    }

    /// When the free span became free, in ms.
    pub(super) fn freed_at(&self) -> u64 {
        self.stamp.load(Relaxed) as u64
    }

    pub(super) fn set_freed_at(&self, ms: u64) {
        self.stamp.store(ms as usize, Relaxed);
    }

    pub(super) fn arena(&self) -> usize {
        usize::from(self.arena.load(Relaxed))
    }

    /// Sets which slice this record belongs to, and the node of its span.
    pub(super) fn place(&self, arena: u8, index: usize, node: usize) {
        self.arena.store(arena, Relaxed);
        self.index.set(index);
        let huge = self.marks.load(Relaxed) & HUGE;
        self.marks.store(huge | (node as u8) << 1, Relaxed);
    }

    /// The number of the NUMA node that the span is for.
    pub(super) fn node(&self) -> usize {
        usize::from(self.marks.load(Relaxed) >> 1)
    }

    /// Whether the kernel may back the slice with a huge page.
    pub(super) fn is_huge(&self) -> bool {
        self.marks.load(Relaxed) & HUGE != 0
    }

    /// Sets whether it may.
    pub(super) fn set_huge(&self, advice: Huge) {
        let node = self.marks.load(Relaxed) & !HUGE;
        let huge = u8::from(advice == Huge::Want);
        self.marks.store(node | huge, Relaxed);
    }

    /// The first slice after the span.
    pub(super) fn end(&self) -> usize {
        self.index.get() + self.slices.get()
    }

    /// How many slices the span has that starts with this record; 1 if none does.
    pub(super) fn length(&self) -> usize {
        if self.state() == State::Blank {
            1
        } else {
            self.slices.get().max(1)
        }
    }

    /// So many slices of a free span, from its first on, are known to be clean. A span of millions
    /// of slices is purged by thousands of pieces, each of which would otherwise look at all that
    /// is clean by then.
    pub(super) fn clean_slices(&self) -> usize {
        match (self.dirty.get(), self.slices.get()) {
            (0, all) => all,
            (_, 1) => 0,
            _ => self.back.get(),
        }
    }

    /// Notes how many slices of a free span, from its first on, are clean.
    pub(super) fn know_clean(&self, slices: usize) {
        if self.slices.get() > 1 && self.dirty.get() > 0 {
            self.back.set(slices);
        }
    }

    /// Sets the span's place in the order, by how many of its `pages` are dirty. To be called
    /// before the span goes into the tree.
    pub(super) fn set_warmth(&self, pages: usize) {
        let warmth = match self.dirty.get() {
            0 if self.is_huge() => Warmth::Huge,
            0 => Warmth::Cold,
            dirty if dirty * 2 >= pages => Warmth::Warm,
            _ => Warmth::Tepid,
        };
        self.warmth
            .store(FitRank::of(warmth, self.node()).0, Relaxed);
    }

    /// For a large span in use: dirty pages of its [tail](super::tails) that a sweep may purge.
    pub(super) fn tail_pages(&self) -> usize {
        usize::from(self.warmth.load(Relaxed) & !SEEN)
    }

    /// Sets the pages of the tail, which no sweep has seen, at most 15.
    pub(super) fn set_tail_pages(&self, pages: usize) {
        self.warmth.store(pages as u8, Relaxed);
    }

    /// A sweep sees the tail. Returns whether an earlier one did.
    pub(super) fn see_tail(&self) -> bool {
        let before = self.warmth.load(Relaxed);
        self.warmth.store(before | SEEN, Relaxed);
        before & SEEN != 0
    }

    /// The node and the warmth of a free span.
    pub(super) fn rank(&self) -> FitRank {
        FitRank(self.warmth.load(Relaxed))
    }

    /// As set by [`SpanRecord::set_warmth`].
    pub(super) fn warmth(&self) -> Warmth {
        match self.warmth.load(Relaxed) & 3 {
            0 => Warmth::Warm,
            1 => Warmth::Tepid,
            2 => Warmth::Huge,
            _ => Warmth::Cold,
        }
    }
}

// SAFETY: the links are two words of the record, named nowhere else; a free span's size, place and
// warmth change only while it is out of the tree; a place has one span.
unsafe impl Node for SpanRecord {
    type Key = FitKey;

    fn key(&self) -> FitKey {
        FitKey {
            rank: self.rank(),
            slices: self.slices.get(),
            place: (self.arena() as u64) << 32 | self.index.get() as u64,
        }
    }

    fn link(&self, side: Side) -> &AtomicPtr<Self> {
        &self.links[side as usize]
    }
}

/// Free spans with dirty pages, oldest first. The queue of aging spans is sorted by
/// [`SpanRecord::freed_at`]. Only its oldest span is looked at, so a younger one before it would
/// hold it up.
#[derive(Debug)]
pub(super) struct Queue {
    oldest: *mut SpanRecord,
    newest: *mut SpanRecord,
}

/// # Safety
/// - `at` is null or the record of a span in a queue: records stay in place as long as the heap.
unsafe fn record<'a>(at: *mut SpanRecord) -> Option<&'a SpanRecord> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }
}

fn pointer(record: &SpanRecord) -> *mut SpanRecord {
    core::ptr::from_ref(record).cast_mut()
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            oldest: null_mut(),
            newest: null_mut(),
        }
    }

    /// The span that waits longest.
    pub(super) fn oldest<'a>(&self) -> Option<&'a SpanRecord> {
        // SAFETY: the ends of a queue are null or in it.
        unsafe { record(self.oldest) }
    }

    /// The span that came last.
    pub(super) fn newest<'a>(&self) -> Option<&'a SpanRecord> {
        // SAFETY: the ends of a queue are null or in it.
        unsafe { record(self.newest) }
    }

    /// The span that comes after `entry`, which is in this queue.
    pub(super) fn after<'a>(&self, entry: &SpanRecord) -> Option<&'a SpanRecord> {
        // SAFETY: links of a queue lead to its entries.
        unsafe { record(entry.newer.load(Relaxed)) }
    }

    /// Puts a span in as the newest.
    pub(super) fn push(&mut self, entry: &SpanRecord) {
        self.insert(self.newest, entry);
    }

    /// Puts a span in as the oldest.
    pub(super) fn push_oldest(&mut self, entry: &SpanRecord) {
        self.insert(null_mut(), entry);
    }

    /// Puts a span in just after `anchor`, which is in this queue.
    pub(super) fn push_after(&mut self, anchor: &SpanRecord, entry: &SpanRecord) {
        self.insert(pointer(anchor), entry);
    }

    fn insert(&mut self, older: *mut SpanRecord, entry: &SpanRecord) {
        // SAFETY: null, or an entry of this queue.
        let newer = match unsafe { record(older) } {
            Some(older) => older.newer.swap(pointer(entry), Relaxed),
            None => core::mem::replace(&mut self.oldest, pointer(entry)),
        };
        // SAFETY: links of a queue lead to its entries.
        match unsafe { record(newer) } {
            Some(newer) => newer.older.store(pointer(entry), Relaxed),
            None => self.newest = pointer(entry),
        }
        entry.older.store(older, Relaxed);
        entry.newer.store(newer, Relaxed);
    }

    /// Takes a span out.
    pub(super) fn remove(&mut self, entry: &SpanRecord) {
        let (older, newer) = (entry.older.load(Relaxed), entry.newer.load(Relaxed));
        // SAFETY: links of a queue lead to its entries.
        match unsafe { record(older) } {
            Some(older) => older.newer.store(newer, Relaxed),
            None => self.oldest = newer,
        }
        // SAFETY: as above.
        match unsafe { record(newer) } {
            Some(newer) => newer.older.store(older, Relaxed),
            None => self.newest = older,
        }
    }
}

/// Whether two free neighbours may merge: they are of the same kind and for the same node, not in
/// two units, and the kernel refused to purge neither.
pub(super) fn may_merge(before: &SpanRecord, after: &SpanRecord) -> bool {
    if before.is_refused.get() || after.is_refused.get() {
        return false;
    }
    let (marks, next) = (before.marks.load(Relaxed), after.marks.load(Relaxed));
    let ends_unit = || next & HUGE != 0 && after.index.get().is_multiple_of(HUGE_SLICES);
    marks == next && !ends_unit()
}

/// A request for slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanRequest {
    /// How many slices.
    pub(super) slices: usize,
    /// At a multiple of how many slices: a power of two.
    pub(super) align: usize,
    /// At a multiple of how many, if there is room for that.
    pub(super) grid: usize,
    /// Where they may come from.
    pub(super) source: SpanSource,
    /// What the span is for.
    pub(super) use_: Use,
    /// How many bytes of pages will be moved there from another span, which then loses them.
    pub(super) moved: usize,
    /// The only arena and slice where they may begin; `None`: anywhere.
    pub(super) at: Option<(usize, usize)>,
    /// The node whose free spans, or fresh pages, serve the request.
    pub(super) node: usize,
}

/// If this many spans of a length fit, alignment to the grid may cost one of them.
const MANY: usize = 16;

impl SpanRequest {
    /// Longest span (8 TiB), in slices: its OS pages are counted in 32 bits.
    const MOST_SLICES: usize = u32::MAX as usize / 32;

    /// A request for `slices` slices, wherever they are.
    pub(super) fn anywhere(slices: usize, use_: Use) -> Self {
        Self {
            slices,
            align: 1,
            grid: 1,
            source: SpanSource::Any,
            use_,
            moved: 0,
            at: None,
            node: 0,
        }
    }

    /// Where it should begin in the free slices from `at`, which is aligned, to `end`: on its grid,
    /// unless fewer of its kind would then find room. `None` if it does not fit.
    pub(super) fn start_in(&self, at: usize, end: usize) -> Option<usize> {
        let on_grid = at.next_multiple_of(self.grid);
        if on_grid == at {
            return (at + self.slices <= end).then_some(at);
        }
        let fitting = |from: usize| end.saturating_sub(from) / self.slices;
        match (fitting(at), fitting(on_grid)) {
            (0, _) => None,
            (all, rest) if rest == all || all >= MANY => Some(on_grid),
            _ => Some(at),
        }
    }

    /// Whether it is one slice, any one, for a slab.
    pub(super) fn is_for_slab(&self) -> bool {
        self.use_ == Use::Slab && self.slices == 1 && self.align == 1 && self.at.is_none()
    }

    /// Whether no span can be so long.
    pub(super) fn is_too_long(&self) -> bool {
        self.slices > Self::MOST_SLICES
    }

    /// Whether the caller has an alternative if no room is ready: it requests only resident pages,
    /// or a certain place next to a span that can move.
    pub(super) fn is_optional(&self) -> bool {
        self.source == SpanSource::Resident || self.at.is_some()
    }
}

/// Longest span that should begin at a multiple of its length, in slices. Longer ones have no large
/// tail.
const MOST_GRID: usize = 8;
/// A tail counts if it is at least this part of the span: one sixteenth.
const TAIL_PART: usize = 16;

/// At a multiple of how many slices a span of `slices` slices should begin, if its user requested
/// `bytes`. Where spans of one length begin at multiples of it, the pages beyond the requested
/// bytes stay untouched. Otherwise they are soon the resident pages of earlier spans.
pub(super) fn grid_of(slices: usize, bytes: usize) -> usize {
    let tail = |whole: usize| whole.saturating_sub(bytes) * TAIL_PART >= whole;
    let matters = slices <= MOST_GRID && tail(slices * SLICE_BYTES);
    if matters { slices } else { 1 }
}

/// Where a span may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSource {
    /// Wherever there is room, free spans with dirty pages first.
    Any,
    /// Only free spans with dirty pages, so that resident memory is reused and nothing is faulted
    /// in.
    Resident,
}
