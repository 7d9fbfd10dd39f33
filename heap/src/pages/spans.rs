//! Spans allocated, freed, made longer and shorter.

use super::arena::SliceRef;
use super::commit::Found;
use super::figures::STACK_BYTES;
use super::free_spans::Fit;
use super::heap::{Locked, PageHeap};
use super::huge;
use super::renew::Renewal;
use super::span::{Age, SpanRecord, State, Use};
use super::span::{SpanRequest, SpanSource, grid_of};
use super::span_cache::Kept;
use super::zero_state::{Dirty, Zero};
use crate::base::policy::{CACHE_SHARDS, Scope};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::os::Os;
use core::ptr::NonNull;

/// A span just given out.
#[derive(Clone, Copy, Debug)]
pub struct Span<'h> {
    /// Its first byte.
    pub base: NonNull<u8>,
    /// Its length in slices.
    pub slices: usize,
    /// What is known about its contents.
    pub zero: Zero,
    /// Bytes of its pages that are not resident for sure.
    pub cold: usize,
    /// Bytes of it that count as absent, because pages are to be moved there.
    pub absent: usize,
    /// Its first slice.
    pub place: SliceRef<'h>,
}

impl<O: Os> PageHeap<O> {
    /// A span of `slices` slices at a multiple of `align_slices` slices (a power of two), of which
    /// its user requested `bytes`. `None` when the kernel or a limit refuses memory; then
    /// nothing has changed.
    pub fn alloc(
        &self,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
    ) -> Option<Span<'_>> {
        let span = self.alloc_untended(SpanSource::Any, slices, align_slices, use_, bytes, 0)?;
        self.tend_left();
        if use_ == Use::Stack {
            // Its pages are given back one by one, while it is in use.
            self.split_unit(span.place);
        }
        Some(span)
    }

    /// Like [`PageHeap::alloc`], for all but stacks. The caller says where the span may come from,
    /// and leaves what exceeds a bound to [`PageHeap::tend_left`]. It is about to move `moved`
    /// bytes of pages into the span, so the hard limit counts them once. Then it frees the other
    /// span with [`Span::absent`], or has these bytes [readmitted](PageHeap::readmit) if it does
    /// not move them.
    pub fn alloc_untended(
        &self,
        source: SpanSource,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
        moved: usize,
    ) -> Option<Span<'_>> {
        debug_assert!(slices > 0 && align_slices.is_power_of_two());
        let request = SpanRequest {
            align: align_slices,
            grid: match use_ {
                Use::Large if align_slices == 1 => grid_of(slices, bytes),
                _ => 1,
            },
            source,
            moved,
            node: self.os.node(),
            ..SpanRequest::anywhere(slices, use_)
        };
        let room = self.room_for(&request);
        let (mut locked, room) = room.or_else(|| self.room_after_release(request))?;
        let (place, zero) = locked.take(room, &request, bytes);
        let warm = place.record().dirty.get() * locked.page_bytes();
        let absent = moved.saturating_sub(warm);
        self.count_absent(absent as isize);
        self.note_left(locked);
        if use_ == Use::Large && warm < bytes && huge::wastes(slices, bytes) {
            let start = place.slice_base();
            self.keep_ordinary(place.arena, start..start + slices * SLICE_BYTES);
        }
        Some(Span {
            base: place.pointer(),
            slices,
            zero,
            cold: slices * SLICE_BYTES - warm,
            absent,
            place,
        })
    }

    /// Room for a request that was refused, if cached spans make it, or other nodes have it.
    #[cold]
    fn room_after_release(&self, request: SpanRequest) -> Option<Found<'_, O>> {
        let (cached, nodes) = (self.cached_bytes(), self.os.nodes());
        if request.is_optional() || cached == 0 && nodes == 1 {
            return None;
        }
        self.release_all_cached();
        let from = |after| SpanRequest {
            node: (request.node + after) % nodes,
            ..request
        };
        (0..nodes).find_map(|after| self.room_for(&from(after)))
    }

    /// Takes a whole span back. Its tag becomes 0. A span that the program mapped over, and that
    /// the kernel refuses to map afresh, stays in use for good.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, which no thread uses any more.
    /// - `dirty` covers all that was written to it since it was given out.
    pub unsafe fn free(&self, base: NonNull<u8>, dirty: Dirty) {
        // SAFETY: the caller's promise.
        unsafe { self.free_untended(base, dirty, Age::New, 0) };
        self.tend_left();
    }

    /// Like [`PageHeap::free`]. Says for how long the span was not used, and leaves what passes a
    /// bound to [`PageHeap::tend_left`]. From now on `absent` bytes [fewer](Span::absent) count as
    /// absent.
    ///
    /// # Safety
    /// - As [`PageHeap::free`].
    pub unsafe fn free_untended(&self, base: NonNull<u8>, dirty: Dirty, age: Age, absent: usize) {
        let Some(place) = self.span_at(base) else {
            return;
        };
        // SAFETY: the caller's promise: no thread uses the span.
        let dirty = match unsafe { self.renew_from(place, 0) } {
            Renewal::NoNeed => dirty,
            Renewal::Zero => Dirty::Zeroed,
            Renewal::Refused => return,
        };
        let mut locked = self.locked_for(place.record());
        locked.free(place, dirty, age);
        // Under the lock, so that the limit check of another request does not fall in between.
        self.count_absent(-(absent as isize));
        self.note_left(locked);
    }

    /// Makes a span longer, to `new_slices` slices (more than it has), if what follows it is free;
    /// sets the requested bytes. Returns what is known of the new slices. Nothing changes on
    /// `None`.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    pub unsafe fn grow_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
    ) -> Option<Zero> {
        let place = self.span_at(base)?;
        let (record, use_) = (place.record(), place.use_()?);
        let extra = new_slices.checked_sub(record.slices.get())?;
        if extra == 0 || record.is_huge() {
            return None;
        }
        self.keep_tail(record);
        let request = SpanRequest {
            at: Some((record.arena(), record.end())),
            node: record.node(),
            ..SpanRequest::anywhere(extra, use_)
        };
        let Some((mut locked, (free, _))) = self.room_for(&request) else {
            self.locked().count_tail(record);
            return None;
        };
        let grown = locked.grow(place, free, extra, bytes);
        self.finish(locked);
        Some(grown)
    }

    /// Gives the end of a span back so that `new_slices` slices (at least one) remain; sets the
    /// requested bytes.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, the caller's, of at least `new_slices` slices.
    /// - No thread uses what is given back; `dirty` covers all that was written to the whole span.
    pub unsafe fn shrink_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
        dirty: Dirty,
    ) {
        let Some(place) = self.span_at(base) else {
            return;
        };
        // SAFETY: the caller's promise: no thread uses what is given back.
        let kept = match unsafe { self.renew_from(place, new_slices) } {
            Renewal::Refused => place.slices(),
            Renewal::NoNeed | Renewal::Zero => new_slices,
        };
        let mut locked = self.locked_for(place.record());
        locked.shrink(place, kept, bytes, dirty);
        self.finish(locked);
    }

    /// Purges what passes a bound, if an operation left it. For the end of a call, when it holds no
    /// lock that others wait for.
    #[inline]
    pub fn tend_left(&self) {
        if self.untended.load(Relaxed) {
            self.tend();
        }
    }

    /// Purges what passes a bound: for callers that have not come by for a while.
    #[inline(never)]
    pub fn tend(&self) {
        self.untended.store(false, Relaxed);
        let excess = self.locked().excess();
        if let Some(due) = excess {
            self.purge_on_the_way(due);
        }
    }

    /// Gives up the lock, then purges what passes a bound.
    pub(super) fn finish(&self, locked: Locked<'_, O>) {
        self.note_left(locked);
        self.tend_left();
    }

    /// Gives up the lock, and notes whether anything passes a bound.
    fn note_left(&self, mut locked: Locked<'_, O>) {
        if locked.excess().is_some() {
            self.untended.store(true, Relaxed);
        }
    }

    /// Sets the requested bytes of a span whose slices stay.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    /// - `dirty` covers all that was written to it so far, unless the later free will.
    pub unsafe fn set_bytes(&self, base: NonNull<u8>, bytes: usize, dirty: Dirty) {
        if let Some(place) = self.span_at(base) {
            let mut locked = self.locked_for(place.record());
            place.arena.note_writes(place.record(), dirty);
            locked.set_bytes(place.record(), bytes);
            locked.count_tail(place.record());
        }
    }

    /// The caller's span in use that starts at `base`.
    pub(super) fn span_at(&self, base: NonNull<u8>) -> Option<SliceRef<'_>> {
        let address = base.as_ptr().addr();
        let place = self.locate(address).filter(|place| place.use_().is_some());
        debug_assert!(
            place.is_some_and(|place| place.slice_base() == address),
            "a span in use"
        );
        place
    }
}

impl<O: Os> PageHeap<O> {
    /// A cached span that is long enough for `size` bytes, and no longer than it must be. Its pages
    /// may have any contents, and are probably resident. Also its usable bytes: while they are
    /// fewer, the span is to be [restated](PageHeap::restate).
    #[inline]
    pub fn take_cached(&self, shard: usize, size: usize) -> Option<(SliceRef<'_>, usize)> {
        let number = size.wrapping_sub(1) >> SLICE_SHIFT;
        let record = self.tables.cache.pop(shard, number)?;
        Some((self.place_of(record), record.bytes()))
    }

    /// [`PageHeap::take_cached`] where the thread's own shard gave no such span: from any shard.
    #[inline(never)]
    pub fn take_others(&self, shard: usize, size: usize) -> Option<(SliceRef<'_>, usize)> {
        let number = size.wrapping_sub(1) >> SLICE_SHIFT;
        let record = self.tables.cache.pop_other(shard, number)?;
        Some((self.place_of(record), record.bytes()))
    }

    /// Notes that the former user of a span that was just taken may have written all that it had
    /// requested, and sets the requested bytes to `size`, rounded up to pages.
    ///
    /// # Safety
    /// - The span is in use and the caller's.
    #[cold]
    #[inline(never)]
    pub unsafe fn restate(&self, place: &SliceRef<'_>, size: usize) {
        debug_assert!(place.use_().is_some());
        let bytes = size.next_multiple_of(self.os.page_bytes());
        // SAFETY: the caller's promise.
        unsafe { self.set_bytes(place.pointer(), bytes, Dirty::Prefix(place.bytes())) };
    }

    /// The place of a cached span.
    #[inline]
    fn place_of(&self, record: &SpanRecord) -> SliceRef<'_> {
        debug_assert_eq!(record.arena(), 0);
        SliceRef {
            arena: self.tables.primary(),
            index: record.index.get(),
        }
    }

    /// Caches the span of a large block. Leaves it if it is too long, is not of a plain mapping, or
    /// is one too many.
    ///
    /// # Safety
    /// - The span is in use and the caller's, in the first arena, its tag is 0, nothing was written
    ///   beyond its requested bytes, and no thread uses it any more.
    #[inline(always)]
    pub unsafe fn keep_cached(&self, shard: usize, place: &SliceRef<'_>) -> Kept {
        match is_plain(place) {
            true => (self.tables.cache).push(shard, place.record(), self.limits.cache_slices()),
            false => Kept::No,
        }
    }

    /// [`PageHeap::keep_cached`] of a span that it left, after a short wait.
    ///
    /// # Safety
    /// - As [`PageHeap::keep_cached`].
    #[inline(never)]
    pub unsafe fn keep_late(&self, shard: usize, place: &SliceRef<'_>) -> Kept {
        let room = self.limits.cache_slices();
        match is_plain(place) {
            true => (self.tables.cache).push_late(shard, place.record(), room),
            false => Kept::No,
        }
    }

    /// Gives cached spans of one of the [`CACHE_SHARDS`] back to the page heap, as old as `age`
    /// says. False if there was none. What passes a bound is left to [`PageHeap::tend_left`]. Out
    /// of line, because callers may have small stacks.
    #[inline(never)]
    pub fn release_cached(&self, shard: usize, which: Scope, age: Age) -> bool {
        let first = self
            .tables
            .cache
            .cut(shard, which, self.limits.cache_slices());
        let mut rest = first;
        // SAFETY: null, or the record of a span that was cut off; records live as long as the heap.
        while let Some(record) = unsafe { rest.as_ref() } {
            // First, because a free span's record has other links.
            rest = record.below().load(Relaxed);
            let place = self.place_of(record);
            let dirty = Dirty::Prefix(place.bytes());
            // SAFETY: a span in use, just cut off, that no thread uses.
            unsafe { self.free_untended(place.pointer(), dirty, age, 0) };
        }
        !first.is_null()
    }

    /// Gives all cached spans back if a bound that was just set leaves no room for them.
    pub fn heed_bounds(&self) {
        if self.limits.cache_slices() == 0 {
            self.release_all_cached();
            self.tend_left();
        }
    }

    fn release_all_cached(&self) {
        for shard in 0..CACHE_SHARDS {
            self.release_cached(shard, Scope::All, Age::New);
        }
    }

    /// Bytes of cached spans.
    pub fn cached_bytes(&self) -> usize {
        self.tables.cache.totals().slices * SLICE_BYTES
    }
}

/// Whether all of a large block's span in the first arena is plainly mapped.
#[inline(always)]
fn is_plain(place: &SliceRef<'_>) -> bool {
    debug_assert!(place.tag() == 0 && place.use_() == Some(Use::Large));
    let record = place.record();
    debug_assert_eq!(record.arena(), 0);
    !(record.is_overmapped.get() | record.is_moved.get())
}

impl<'h, O: Os> Locked<'h, O> {
    /// Gives out the first slices of committed room for a request.
    pub(super) fn take(
        &mut self,
        (free, at): Fit<'h>,
        request: &SpanRequest,
        bytes: usize,
    ) -> (SliceRef<'h>, Zero) {
        let (arena, slices) = (self.arena(free.arena()), request.slices);
        let record = self.carve(free, at, slices);
        record.set_state(State::Used(request.use_));
        record.set_bytes(0);
        record.set_tail_pages(0);
        self.count(record, 1, slices as isize);
        self.set_bytes(record, bytes);
        if !bytes.is_multiple_of(SLICE_BYTES) {
            self.count_tail(record);
        }
        self.note_wanted(record, request.use_);
        (SliceRef { arena, index: at }, Zero::of(record.dirty.get()))
    }

    pub(super) fn free(&mut self, place: SliceRef<'h>, dirty: Dirty, age: Age) {
        let record = place.record();
        place.arena.note_writes(record, dirty);
        // SAFETY: the span is the caller's until the end of this; 0 says nothing.
        unsafe { place.set_tag(0) };
        self.set_bytes(record, 0);
        self.set_tail(record, 0);
        self.count(record, -1, -(record.slices.get() as isize));
        record.set_state(State::Blank);
        self.add_free(record, age);
    }

    /// Adds the first `extra` slices of the free span behind a span in use to it.
    pub(super) fn grow(
        &mut self,
        place: SliceRef<'h>,
        free: &'h SpanRecord,
        extra: usize,
        bytes: usize,
    ) -> Zero {
        let record = place.record();
        let next = record.end();
        let added = self.carve(free, next, extra);
        let zero = Zero::of(added.dirty.get());
        if let State::Used(use_) = record.state() {
            self.note_wanted(added, use_);
        }
        place.arena.join(record, added);
        self.set_bytes(record, bytes);
        self.count_tail(record);
        self.count(record, 0, extra as isize);
        zero
    }

    pub(super) fn shrink(
        &mut self,
        place: SliceRef<'h>,
        new_slices: usize,
        bytes: usize,
        dirty: Dirty,
    ) {
        let record = place.record();
        let (cut, end) = (place.index + new_slices, record.end());
        debug_assert!(new_slices > 0 && cut <= end);
        place.arena.note_writes(record, dirty);
        if cut < end && new_slices > 0 {
            let rest = place.arena.cut_off(record, cut);
            self.count(record, 0, -((end - cut) as isize));
            self.add_free(rest, Age::New);
        }
        self.set_bytes(record, bytes);
        self.count_tail(record);
    }

    /// Notes that the pages of a part taken for this use that are not resident are wanted.
    fn note_wanted(&mut self, part: &SpanRecord, use_: Use) {
        let warm = part.dirty.get() * self.page_bytes();
        let cold = part.slices.get() * SLICE_BYTES - warm;
        let wanted = match use_ {
            Use::Stack => cold.min(STACK_BYTES),
            Use::Slab | Use::Large | Use::Meta => cold,
        };
        let heap = self.heap;
        let now = || (heap.os.now_ms(), heap.limits.decay_ms());
        self.inner.counts.note_wanted(wanted, now);
    }

    /// Counts more spans and slices in use, or fewer, of the use of this span.
    fn count(&mut self, span: &SpanRecord, spans: isize, slices: isize) {
        if let State::Used(use_) = span.state() {
            let counts = &mut self.inner.counts;
            let figures = &mut counts.by_use[use_ as usize - 1];
            figures.spans = figures.spans.wrapping_add_signed(spans);
            figures.slices = figures.slices.wrapping_add_signed(slices);
            counts.used_slices = counts.used_slices.wrapping_add_signed(slices);
            counts.peak_slices = counts.peak_slices.max(counts.used_slices);
        }
    }

    pub(super) fn set_bytes(&mut self, span: &SpanRecord, bytes: usize) {
        if let State::Used(use_) = span.state() {
            let figures = &mut self.inner.counts.by_use[use_ as usize - 1];
            figures.bytes = figures.bytes + bytes - span.bytes();
        }
        span.set_bytes(bytes);
    }
}
