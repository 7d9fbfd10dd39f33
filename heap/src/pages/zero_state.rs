//! The zero state: which OS pages may hold old data, carried through every change of hands.
//!
//! A slice has a mask with one bit a page. A large block that is freed may be dirty anywhere: to
//! write that into its masks, and to count them at every reuse, would cost time for every slice. So
//! the record of such a span says that all of it is dirty ([`SpanRecord::all_dirty`]). Its masks
//! are out of date until they are needed: when a short part is cut out of it, when it merges with
//! spans of which more is known, before a purge, and before its pages move.
//!
//! Of what may be dirty, [`Predictor`] says what `calloc` may expect.

use super::arena::{Arena, Commit};
use super::span::SpanRecord;
use crate::base::sync::plain::{AtomicI8, AtomicU8, Ordering::Relaxed};
use crate::base::units::SLICE_BYTES;
use core::ops::Range;

/// What is known about the contents of a span just given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Every byte reads as zero.
    AllZero,
    /// Some OS pages may hold old data: the masks say which.
    MaybeDirty,
}

impl Zero {
    pub(super) fn of(dirty_pages: usize) -> Self {
        if dirty_pages == 0 {
            Self::AllZero
        } else {
            Self::MaybeDirty
        }
    }
}

/// What the user of a span may have written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// Nothing since it was given out.
    AsBefore,
    /// At most this many bytes from the span's start (beyond them: as before).
    Prefix(usize),
    /// Of a span of one slice: at most this many bytes from its start, and not the OS pages `clean`
    /// of it, which read as zero now.
    PrefixBut {
        /// Bytes.
        bytes: usize,
        /// The lowest page in the lowest bit.
        clean: u16,
    },
    /// Anything.
    All,
    /// All of it reads as zero now (its pages were moved away or purged).
    Zeroed,
}

/// OS pages of one slice run that are to be purged by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirtyRun {
    /// First slice of the run.
    pub(super) from: usize,
    /// Slice after the run.
    pub(super) to: usize,
    /// Address of the first dirty page.
    pub(super) address: usize,
    /// Bytes to the end of the last dirty page.
    pub(super) bytes: usize,
}

impl DirtyRun {
    /// All pages of the slices `from..to`. The kernel may have made even clean ones resident.
    pub(super) fn whole(arena: &Arena, from: usize, to: usize) -> DirtyRun {
        DirtyRun {
            from,
            to,
            address: arena.layout().address(from),
            bytes: (to - from) * SLICE_BYTES,
        }
    }

    /// Its first slices, of at most `most` bytes.
    pub(super) fn within(self, most: usize) -> DirtyRun {
        let to = self.to.min(self.from + most / SLICE_BYTES);
        let end = self.address / SLICE_BYTES * SLICE_BYTES + (to - self.from) * SLICE_BYTES;
        let bytes = self.bytes.min(end - self.address);
        DirtyRun { to, bytes, ..self }
    }
}

/// How many clean slices at the front of a free span a slab leaves aside to begin on a dirty one:
/// the guard of a freed stack and what the coroutine did not use. With more between them, slabs
/// would cost more in records (the far words of eight slices share a page) and holes than they
/// reuse.
const MOST_SKIPPED: usize = 8;
/// Most clean slices between two dirty ones that one purge passes over.
const MOST_GAP: usize = 16;

impl Arena {
    /// Pages of the slices `from..to` whose masks say maybe dirty.
    pub(super) fn count_dirty(&self, from: usize, to: usize) -> usize {
        self.masks(from, to)
            .flatten()
            .map(|mask| mask.load(Relaxed).count_ones() as usize)
            .sum()
    }

    /// Marks all of the slices `from..to` as clean. Returns how many pages were dirty.
    pub(super) fn clear_dirty(&self, from: usize, to: usize) -> usize {
        let dirty = self.count_dirty(from, to);
        self.fill_masks(from, to, 0);
        dirty
    }

    /// Marks some pages of the slices from `first` on as clean. Returns how many were dirty.
    pub(super) fn clear_pages(&self, first: usize, pages: Range<usize>) -> usize {
        self.change_pages(first, pages, |mask, bits| mask & !bits)
    }

    /// Marks some pages of the slices from `first` on as dirty. Returns how many were clean.
    pub(super) fn mark_pages(&self, first: usize, pages: Range<usize>) -> usize {
        self.change_pages(first, pages, |mask, bits| mask | bits)
    }

    /// Gives slices the mask that `change` makes of theirs and the bits of these pages. Returns how
    /// many bits changed.
    fn change_pages(
        &self,
        first: usize,
        pages: Range<usize>,
        change: impl Fn(u16, u16) -> u16,
    ) -> usize {
        let per_slice = self.layout().pages_per_slice;
        let (mut at, mut changed) = (pages.start, 0);
        while at < pages.end {
            let (mask, from) = (self.mask(first + at / per_slice), at % per_slice);
            let count = (per_slice - from).min(pages.end - at);
            let old = mask.load(Relaxed);
            let new = change(old, u16::MAX >> (16 - count) << from);
            mask.store(new, Relaxed);
            changed += (old ^ new).count_ones() as usize;
            at += count;
        }
        changed
    }

    /// Gives all slices `from..to` the same mask.
    pub(super) fn fill_masks(&self, from: usize, to: usize, mask: u16) {
        for old in self.masks(from, to).flatten() {
            old.store(mask, Relaxed);
        }
    }

    /// The first slice of `from..to` with a dirty page. Free spans may be millions of slices long.
    pub(super) fn first_dirty(&self, from: usize, to: usize) -> Option<usize> {
        let mut masks = self.masks(from, to).flatten();
        Some(from + masks.position(|mask| mask.load(Relaxed) != 0)?)
    }

    /// Where a slab should begin in a free span with dirty pages: on the first slice with one, if
    /// that is near its front.
    pub(super) fn first_touched(&self, free: &SpanRecord) -> usize {
        let first = free.index.get();
        let (from, to) = (free.clean_slices(), free.slices.get().min(MOST_SKIPPED));
        if free.all_dirty.get() || from >= to {
            return first;
        }
        self.first_dirty(first + from, first + to).unwrap_or(first)
    }

    /// The next dirty pages in the slices `from..to`, at most `most` of them (but all of the first
    /// slice), over at most as many slices. Clean pages between dirty ones are in the run where
    /// they are few: purging absent pages costs less than another call.
    pub(super) fn next_dirty(&self, from: usize, to: usize, most: usize) -> Option<DirtyRun> {
        let dirty = |index: usize| self.mask(index).load(Relaxed).count_ones() as usize;
        let first = self.first_dirty(from, to)?;
        let (mut last, mut pages) = (first, dirty(first));
        for index in first + 1..to.min(first.saturating_add(most)) {
            let committed = self.find(index, index + 1, Commit::Yes) == index;
            pages += dirty(index);
            if !committed || index - last > MOST_GAP || pages > most {
                break;
            }
            if dirty(index) > 0 {
                last = index;
            }
        }
        let (layout, page) = (self.layout(), self.layout().page_bytes());
        let lead = self.mask(first).load(Relaxed).trailing_zeros() as usize;
        let used = 16 - self.mask(last).load(Relaxed).leading_zeros() as usize;
        let address = layout.address(first) + lead * page;
        let bytes = layout.address(last) + used * page - address;
        Some(DirtyRun {
            from: first,
            to: last + 1,
            address,
            bytes,
        })
    }
}

impl Arena {
    /// Calls `visit` with the offset and the length of every run of pages among the first `bytes`
    /// bytes of a span that may be dirty. The last run may end within a page.
    pub(super) fn each_dirty_run(
        &self,
        span: &SpanRecord,
        bytes: usize,
        mut visit: impl FnMut(usize, usize),
    ) {
        if self.is_all_dirty(span) {
            return visit(0, bytes);
        }
        let page = self.layout().page_bytes();
        let pages = bytes.div_ceil(page);
        let mut first = self.find_page(span, 0..pages, |mask| mask);
        while first < pages {
            let next = self.find_page(span, first..pages, |mask| !mask);
            visit(first * page, (next * page).min(bytes) - first * page);
            first = self.find_page(span, next..pages, |mask| mask);
        }
    }

    /// The first of these pages of a span that is in the set that `wanted` makes of its slice's
    /// mask; the end of the range if there is none.
    pub(super) fn find_page(
        &self,
        span: &SpanRecord,
        pages: Range<usize>,
        wanted: fn(u16) -> u16,
    ) -> usize {
        let (per_slice, full) = (self.layout().pages_per_slice, self.layout().full_mask());
        let mut at = pages.start;
        while at < pages.end {
            let mask = self.mask(span.index.get() + at / per_slice).load(Relaxed);
            let found = (wanted(mask) & full) >> (at % per_slice);
            if found != 0 {
                return (at + found.trailing_zeros() as usize).min(pages.end);
            }
            at += per_slice - at % per_slice;
        }
        pages.end
    }
}

/// Spans in use shorter than this (1 MiB) have masks.
const LEAST_SLICES: usize = 16;

/// A span that is dirty throughout stays so when it is merged with at most this part of its length.
const SPREAD: usize = 16;

impl Arena {
    /// OS pages of `slices` slices.
    fn pages_of(&self, slices: usize) -> usize {
        slices * self.layout().pages_per_slice
    }

    fn is_all_dirty(&self, span: &SpanRecord) -> bool {
        span.dirty.get() == self.pages_of(span.slices.get())
    }

    /// Pages that may be dirty in a part of a span.
    pub(super) fn share(&self, span: &SpanRecord, from: usize, to: usize) -> usize {
        match span.dirty.get() {
            0 => 0,
            _ if self.is_all_dirty(span) => self.pages_of(to - from),
            _ => self.count_dirty(from, to),
        }
    }

    /// How many pages the last slice of a short span has beyond the requested bytes, if any of them
    /// may be dirty. 0 where the last slice is not in use, or all of it.
    pub(super) fn tail_pages(&self, span: &SpanRecord) -> usize {
        let (slices, per_slice) = (span.slices.get(), self.layout().pages_per_slice);
        let used = span.bytes().wrapping_sub((slices - 1) * SLICE_BYTES);
        if slices >= LEAST_SLICES || !(1..SLICE_BYTES).contains(&used) {
            return 0;
        }
        let used = (used * per_slice).div_ceil(SLICE_BYTES);
        let dirty = match self.is_all_dirty(span) {
            true => self.layout().full_mask(),
            false => self.mask(span.end() - 1).load(Relaxed),
        };
        match u32::from(dirty) >> used {
            0 => 0,
            _ => per_slice - used,
        }
    }

    /// Brings a span's masks up to date.
    pub(super) fn write_masks(&self, span: &SpanRecord) {
        if span.all_dirty.get() {
            self.fill_masks(span.index.get(), span.end(), self.layout().full_mask());
            span.all_dirty.set(false);
        }
    }

    /// Every page of a span counts as dirty from now on.
    fn mark_all_dirty(&self, span: &SpanRecord) {
        span.all_dirty.set(true);
        span.back.set(0);
        span.dirty.set(self.pages_of(span.slices.get()));
    }

    /// Sets where the zero state of a part that was cut out of a span is kept.
    pub(super) fn inherit_zero_state(&self, part: &SpanRecord, span: &SpanRecord) {
        part.all_dirty.set(span.all_dirty.get());
        if part.slices.get() < LEAST_SLICES {
            self.write_masks(part);
        }
    }

    /// Carries what the user wrote into the zero state of a span in use.
    pub(super) fn note_writes(&self, span: &SpanRecord, dirty: Dirty) {
        match dirty {
            Dirty::AsBefore => {}
            Dirty::Prefix(bytes) => self.note_prefix(span, bytes),
            Dirty::PrefixBut { bytes, clean } => {
                self.note_prefix(span, bytes);
                self.note_clean(span, clean);
            }
            Dirty::All => self.note_prefix(span, usize::MAX),
            Dirty::Zeroed => self.note_zero(span),
        }
    }

    fn note_zero(&self, span: &SpanRecord) {
        self.fill_masks(span.index.get(), span.end(), 0);
        span.all_dirty.set(false);
        span.dirty.set(0);
    }

    /// Some pages of a span of one slice read as zero.
    fn note_clean(&self, span: &SpanRecord, clean: u16) {
        let mask = self.mask(span.index.get());
        let old = mask.load(Relaxed);
        mask.store(old & !clean, Relaxed);
        debug_assert_eq!(span.slices.get(), 1);
        span.dirty
            .set(span.dirty.get() - (old & clean).count_ones() as usize);
    }

    fn note_prefix(&self, span: &SpanRecord, bytes: usize) {
        let slices = span.slices.get();
        if slices >= LEAST_SLICES && bytes > (slices - 1) * SLICE_BYTES {
            return self.mark_all_dirty(span);
        }
        if self.is_all_dirty(span) {
            return;
        }
        let pages = bytes.div_ceil(self.layout().page_bytes());
        let added = self.mark_pages(span.index.get(), 0..pages.min(self.pages_of(slices)));
        span.dirty.set(span.dirty.get() + added);
    }

    /// Adds to a span in use what was cut out of a free one behind it.
    pub(super) fn join(&self, span: &SpanRecord, added: &SpanRecord) {
        let slices = span.slices.get() + added.slices.get();
        let all_dirty = span.all_dirty.get();
        if !all_dirty {
            self.write_masks(added);
        }
        span.dirty.set(span.dirty.get() + added.dirty.get());
        self.set_length(span, slices);
        if all_dirty {
            self.mark_all_dirty(span);
        }
    }

    /// Cuts a span in use at slice `cut`. What follows is in no span, and returned.
    pub(super) fn cut_off(&self, span: &SpanRecord, cut: usize) -> &SpanRecord {
        let (end, rest) = (span.end(), self.record(cut));
        let given = self.share(span, cut, end);
        rest.place(span.arena() as u8, cut, span.node());
        rest.dirty.set(given);
        self.set_length(rest, end - cut);
        rest.all_dirty.set(span.all_dirty.get());
        span.dirty.set(span.dirty.get() - given);
        self.set_length(span, cut - span.index.get());
        rest
    }

    /// Lets neighbours, which are in no order and no count now, keep their zero states in the same
    /// way, so that they can be merged.
    pub(super) fn unify(&self, parts: &[Option<&SpanRecord>; 3]) {
        let parts = || parts.iter().flatten();
        let slices_of = |all_dirty| {
            let with = parts().filter(|part| part.all_dirty.get() == all_dirty);
            with.map(|part| part.slices.get()).sum::<usize>()
        };
        let (known, covered) = (slices_of(false), slices_of(true));
        let fits = |part: &&SpanRecord| part.all_dirty.get() || self.is_committed(part);
        if known * SPREAD <= covered && parts().all(fits) {
            parts().for_each(|part| self.mark_all_dirty(part));
        } else {
            parts().for_each(|part| self.write_masks(part));
        }
    }

    fn is_committed(&self, span: &SpanRecord) -> bool {
        self.find(span.index.get(), span.end(), Commit::No) == span.end()
    }
}

/// A streak this long predicts the next finding.
const SURE: i8 = 32;
/// Of this many predictions, one is checked: the kernel is asked.
const LOOK_EVERY: i8 = 8;

/// Steps of size in a doubling.
const STEPS: usize = 4;
const SIZES: usize = STEPS * usize::BITS as usize;

/// Of this many long blocks with populated pages, the probe pages of one are purged.
const PROBE_EVERY: u8 = 4;
/// The probe pages were purged, and no block since had them populated.
const PROBED: u8 = PROBE_EVERY;

/// Of this many long blocks whose first part `calloc` keeps, it purges one as a whole.
const PURGE_EVERY: u8 = 32;

/// What the kernel found about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// No page is populated.
    Untouched,
    /// The program did not touch the probe pages since they were purged: what is populated is so
    /// only because Neap wrote zeros to it.
    Idle,
    /// All pages are populated.
    Full,
    /// Some are.
    Mixed,
}

impl Finding {
    /// What a finding adds to a streak: negative for full blocks.
    ///
    /// A wrong prediction of an untouched block throws away its pages, which cost some 40 times as
    /// much to fault in as to write. So a block that is used every 32nd time or more often is never
    /// predicted to be untouched. Each idle block was written, so half as many cost as much as to
    /// fault a part of it in again. A wrong prediction of a full block costs only a write.
    fn step(self) -> i8 {
        match self {
            Self::Untouched => 1,
            Self::Idle => SURE / 16,
            Self::Full => -SURE / 4,
            Self::Mixed => 0,
        }
    }
}

/// What to do with a block, by what its size is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// Nothing is known: ask the kernel.
    Unknown,
    /// Nothing is populated: purge it all the same, which costs less than a query.
    Unused,
    /// All is populated: write it.
    Full,
}

/// What blocks of all sizes were found to be, by which `calloc` expects a large reused block to be
/// unused, or populated throughout.
///
/// Programs repeat themselves: a buffer that is allocated again and again is mostly used in the
/// same way. So each size remembers how many findings in a row were the same. After enough of them
/// the next block is expected to be the same, and the kernel is asked about every
/// [`LOOK_EVERY`]th one only. A misprediction costs time, never correctness.
#[derive(Debug)]
pub(super) struct Predictor {
    rows: [Row; SIZES],
}

/// What blocks of about one size were found to be. Zeroed, it remembers nothing.
#[derive(Debug)]
pub(super) struct Row {
    /// The [steps](Finding::step) of equal findings in a row.
    streak: AtomicI8,
    /// [`PROBED`], or how many long blocks ago it was decided whether to purge probe pages.
    probes: AtomicU8,
    /// How many long blocks ago one was purged as a whole.
    kept: AtomicU8,
}

impl Predictor {
    pub(super) const fn new() -> Self {
        Self {
            rows: [const {
                Row {
                    streak: AtomicI8::new(0),
                    probes: AtomicU8::new(0),
                    kept: AtomicU8::new(0),
                }
            }; SIZES],
        }
    }

    /// The row of blocks of about this size.
    pub(super) fn row(&self, bytes: usize) -> &Row {
        let shift = bytes.max(STEPS).ilog2();
        let step = bytes >> (shift - STEPS.ilog2()) & (STEPS - 1);
        &self.rows[shift as usize * STEPS + step]
    }
}

impl Row {
    /// What the next block is expected to be. Each prediction uses up a step of the streak, so
    /// that the kernel is asked again before long.
    pub(super) fn expect(&self) -> Expectation {
        let streak = self.streak.load(Relaxed);
        if streak.abs() < SURE {
            return Expectation::Unknown;
        }
        self.streak.store(streak - streak.signum(), Relaxed);
        if streak > 0 {
            Expectation::Unused
        } else {
            Expectation::Full
        }
    }

    /// Remembers a finding. True when it came often enough to predict the next.
    pub(super) fn record(&self, finding: Finding) -> bool {
        let (old, step) = (self.streak.load(Relaxed), finding.step());
        let kept = if old.signum() == step.signum() {
            old
        } else {
            0
        };
        let streak = kept + step;
        let is_sure = streak.abs() >= SURE;
        let most = streak.signum() * (SURE + LOOK_EVERY - 2);
        self.streak
            .store(if is_sure { most } else { streak }, Relaxed);
        is_sure
    }

    /// The block was purged: nothing is known of the next.
    pub(super) fn forget(&self) {
        self.streak.store(0, Relaxed);
        self.probes.store(1, Relaxed);
    }

    /// Whether the probe pages are purged, and no block since had them populated.
    pub(super) fn is_probed(&self) -> bool {
        self.probes.load(Relaxed) == PROBED
    }

    /// The probe pages were purged.
    pub(super) fn note_probe(&self) {
        self.probes.store(PROBED, Relaxed);
    }

    /// Whether to purge a long block as a whole: what is resident there may be a neighbour's doing,
    /// and would be written again and again.
    pub(super) fn is_time_to_purge(&self) -> bool {
        let count = self.kept.load(Relaxed);
        self.kept.store((count + 1) % PURGE_EVERY, Relaxed);
        count == 0
    }

    /// Whether to purge the probe pages of a long block that is in use.
    pub(super) fn is_time_to_probe(&self) -> bool {
        let count = self.probes.load(Relaxed);
        self.probes
            .store((count % PROBE_EVERY + 1) % PROBE_EVERY, Relaxed);
        count == 0
    }
}

/// A run of bytes that are to read as zero, in a span in use that its owner does not use yet: its
/// ends lie at a page's start, or where the block ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    start: usize,
    bytes: usize,
}

impl Run {
    /// # Safety
    /// - The bytes and the rest of their last page lie in a span in use, and nothing uses them as
    ///   long as this run or a part of it is used.
    pub(super) unsafe fn of(start: usize, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(super) fn start(self) -> usize {
        self.start
    }

    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// What of the run lies in a range of addresses.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        let end = self.start + self.bytes;
        let start = range.start.clamp(self.start, end);
        let bytes = range.end.clamp(start, end) - start;
        Self { start, bytes }
    }
}

/// Bytes for which there is one probe page; a run has at least two.
const APART: usize = 1 << 20;
const MOST_SAMPLES: usize = 16;

/// Of this many probe pages, one is looked at to tell whether a block is full.
const SAMPLE_EVERY: usize = 4;

/// The probe pages of one block: a few OS pages, evenly spread, that stand for all of it.
///
/// They tell two things that would cost more to ask of every page: whether a block that was full
/// once is full again, and whether the program still uses the pages that `calloc` clears, time
/// after time. For the second, Neap purges the probe pages. If they are populated the next time,
/// the program touched them since. If not, it does not touch the others either.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbePages {
    start: usize,
    /// Bytes from one to the next, a multiple of a slice.
    apart: usize,
    count: usize,
    page: usize,
}

impl ProbePages {
    /// The probe pages of a run of at least two slices, in OS pages of `page` bytes.
    pub(super) fn of(run: Run, page: usize) -> Self {
        let count = (run.bytes / APART).clamp(2, MOST_SAMPLES);
        Self {
            start: run.start,
            apart: (run.bytes / count) & !(SLICE_BYTES - 1),
            count,
            page,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// In the last slice of its part of the block, for every probe page another page of the slice:
    /// programs like to touch pages at even distances.
    fn page(&self, number: usize) -> Run {
        let pages = (SLICE_BYTES / self.page).max(1);
        let slice = self.start + (number + 1) * self.apart - SLICE_BYTES;
        Run {
            start: slice + (number * 5 + 3) % pages * self.page,
            bytes: self.page,
        }
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl DoubleEndedIterator<Item = Run> + ExactSizeIterator {
        (0..self.count).map(|number| self.page(number))
    }

    /// Some of them, the last first.
    pub(super) fn samples(&self) -> impl Iterator<Item = Run> {
        self.pages().rev().step_by(SAMPLE_EVERY)
    }

    /// How many of the pages lie in a run.
    pub(super) fn among(&self, run: Run) -> usize {
        let holds = |page: &Run| run.start <= page.start && page.start < run.start + run.bytes;
        self.pages().filter(holds).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MIB: usize = 1 << 20;

    const SURE_FINDINGS: [(Finding, Expectation, usize); 2] = [
        (Finding::Untouched, Expectation::Unused, 32),
        (Finding::Full, Expectation::Full, 4),
    ];

    #[test]
    fn a_prediction_takes_findings_in_a_row() {
        for (finding, expectation, sure) in SURE_FINDINGS {
            let predictor = Predictor::new();
            for round in 1..=sure {
                assert_eq!(predictor.row(MIB).expect(), Expectation::Unknown);
                assert_eq!(predictor.row(MIB).record(finding), round == sure);
            }
            assert_eq!(predictor.row(MIB).expect(), expectation);
            assert_eq!(predictor.row(2 * MIB).expect(), Expectation::Unknown);
            let about = predictor.row(MIB + MIB / 8);
            assert_eq!(about.expect(), expectation, "about the same size");
            for other in [Finding::Mixed, Finding::Idle, Finding::Full] {
                predictor.row(MIB).record(other);
            }
            assert_eq!(predictor.row(MIB).expect(), Expectation::Unknown);
        }
    }

    #[test]
    fn a_prediction_is_checked_again_and_again() {
        for (finding, _, sure) in SURE_FINDINGS {
            let predictor = Predictor::new();
            let (mut asked, mut last) = (0, 0);
            for round in 0..10_000 {
                if predictor.row(MIB).expect() == Expectation::Unknown {
                    predictor.row(MIB).record(finding);
                    assert!(round - last <= LOOK_EVERY as usize, "{round} after {last}");
                    (asked, last) = (asked + 1, round);
                }
            }
            assert_eq!(asked, sure + (10_000 - sure) / LOOK_EVERY as usize);
        }
    }

    #[test]
    fn idle_blocks_are_sure_after_sixteen() {
        let predictor = Predictor::new();
        let row = predictor.row(MIB);
        for _ in 0..100 {
            assert!(row.is_time_to_probe());
            row.note_probe();
            for round in 1..=16 {
                assert!(row.is_probed());
                assert_eq!(row.record(Finding::Idle), round == 16);
            }
            row.forget();
            assert_eq!(row.expect(), Expectation::Unknown);
            assert!(!row.is_probed());
            assert!((1..PROBE_EVERY).all(|_| !row.is_time_to_probe()));
        }
    }

    #[test]
    fn probe_pages_in_use_are_purged_again_only_later() {
        let predictor = Predictor::new();
        let row = predictor.row(MIB);
        for _ in 0..100 {
            assert!(row.is_time_to_probe());
            row.note_probe();
            assert!((0..PROBE_EVERY).all(|_| !row.is_time_to_probe()));
        }
    }

    #[test]
    fn every_size_has_its_row() {
        let predictor = Predictor::new();
        for bytes in [0, 1, 4096, 1 << 47, usize::MAX] {
            let sure: Vec<_> = (0..4)
                .map(|_| predictor.row(bytes).record(Finding::Full))
                .collect();
            assert_eq!(sure, [false, false, false, true], "{bytes}");
        }
    }

    #[test]
    fn probe_pages_lie_in_the_block_and_apart() {
        for (bytes, page) in [
            (2 << 20, 4096),
            (5_000_000, 4096),
            (1 << 30, 16384),
            (3 << 20, 65536),
        ] {
            let run = Run {
                start: 0x10000,
                bytes,
            };
            let samples = ProbePages::of(run, page);
            let pages: Vec<_> = samples.pages().collect();
            assert_eq!(pages.len(), samples.count());
            assert!(
                pages
                    .windows(2)
                    .all(|two| two[1].start >= two[0].start + APART / 2)
            );
            assert!(pages.iter().all(|sample| sample.start.is_multiple_of(page)));
            assert_eq!(samples.among(run), samples.count());
            assert_eq!(samples.samples().count(), pages.len().div_ceil(4));
            assert!(samples.samples().all(|sample| samples.among(sample) == 1));
        }
    }
}
