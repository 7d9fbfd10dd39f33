//! The zero state of whole spans: in their slices' masks, or as one blanket over a large one.
//!
//! A large block that is freed may be dirty anywhere. To say so in its masks would cost time for
//! every slice, at every free, and to count them at every reuse; so its record says it for all, and
//! the masks are out of date until they are needed: a part of the span that is too small for a
//! blanket, a merge with spans of which more is known, a purge, a move.

use super::arena::{Arena, Commit};
use super::heap::Locked;
use super::place::Place;
use super::span::{Detail, Record};
use super::zero_state::Dirty;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;

/// Spans in use shorter than this (1 MiB) have masks.
const LEAST_SLICES: usize = 16;

/// A blanket spreads over what it is merged with if that is at most this part of it.
const SPREAD: usize = 16;

impl<'h, O: Os> Locked<'h, O> {
    /// OS pages of `slices` slices.
    fn pages_of(&self, record: &Record, slices: usize) -> usize {
        slices * self.arena(record.arena()).layout().pages_per_slice
    }

    /// Pages that may be dirty in a part of a span.
    pub(super) fn share(&self, span: &Record, from: usize, to: usize) -> usize {
        match span.dirty.get() {
            0 => 0,
            all if all == self.pages_of(span, span.slices.get()) => self.pages_of(span, to - from),
            _ => self.arena(span.arena()).count_dirty(from, to),
        }
    }

    /// Brings a span's masks up to date.
    pub(super) fn spell_out(&self, span: &Record) {
        if span.detail() == Detail::Blanket {
            let arena = self.arena(span.arena());
            arena.fill_masks(span.index.get(), span.end(), arena.layout().full_mask());
            span.set_detail(Detail::Masks);
        }
    }

    /// Lays a blanket over a span.
    fn cover(&self, span: &Record) {
        span.set_detail(Detail::Blanket);
        span.dirty.set(self.pages_of(span, span.slices.get()));
    }

    /// What was cut out of a span with this detail keeps it, unless it is too short.
    pub(super) fn keep_detail(&self, part: &Record, detail: Detail) {
        part.set_detail(detail);
        if part.slices.get() < LEAST_SLICES {
            self.spell_out(part);
        }
    }

    /// Carries what the user wrote into the zero state of a span in use.
    pub(super) fn note_writes(&mut self, place: Place<'h>, dirty: Dirty) {
        let span = place.record();
        match (span.detail(), dirty) {
            (_, Dirty::Zeroed) => self.note_zero(place.arena, span),
            (_, Dirty::PrefixBut { bytes, clean }) => {
                self.note_prefix(place.arena, span, bytes);
                self.note_clean(place, clean);
            }
            (_, Dirty::AsBefore) | (Detail::Blanket, _) => {}
            (Detail::Masks, Dirty::Prefix(bytes)) => self.note_prefix(place.arena, span, bytes),
            (Detail::Masks, Dirty::All) => self.note_prefix(place.arena, span, usize::MAX),
        }
    }

    fn note_zero(&self, arena: &Arena, span: &Record) {
        arena.fill_masks(span.index.get(), span.end(), 0);
        span.set_detail(Detail::Masks);
        span.dirty.set(0);
    }

    /// Some pages of a span of one slice read as zero.
    fn note_clean(&self, place: Place<'h>, clean: u16) {
        let mask = place.arena.mask(place.index);
        let old = mask.load(Relaxed);
        mask.store(old & !clean, Relaxed);
        let span = place.record();
        debug_assert_eq!(span.slices.get(), 1);
        span.dirty
            .set(span.dirty.get() - (old & clean).count_ones() as usize);
    }

    fn note_prefix(&self, arena: &Arena, span: &Record, bytes: usize) {
        let slices = span.slices.get();
        if slices >= LEAST_SLICES && bytes > (slices - 1) * SLICE_BYTES {
            return self.cover(span);
        }
        let pages = bytes.div_ceil(arena.layout().page_bytes());
        let added = arena.mark_dirty(span.index.get(), span.end(), pages);
        span.dirty.set(span.dirty.get() + added);
    }

    /// Adds to a span in use what was cut out of a free one behind it.
    pub(super) fn join(&self, span: &Record, added: &Record) {
        let slices = span.slices.get() + added.slices.get();
        let blanket = span.detail() == Detail::Blanket;
        if !blanket {
            self.spell_out(added);
        }
        span.dirty.set(span.dirty.get() + added.dirty.get());
        self.set_length(span, slices);
        if blanket {
            self.cover(span);
        }
    }

    /// Cuts a span in use at slice `cut`. What follows is in no span, and returned.
    pub(super) fn cut_off(&self, span: &'h Record, cut: usize) -> &'h Record {
        let (end, rest) = (span.end(), self.arena(span.arena()).record(cut));
        let given = self.share(span, cut, end);
        rest.place(span.arena() as u8, cut);
        rest.dirty.set(given);
        self.set_length(rest, end - cut);
        rest.set_detail(span.detail());
        span.dirty.set(span.dirty.get() - given);
        self.set_length(span, cut - span.index.get());
        rest
    }

    /// Makes the details of neighbours, which are in no order and no count now, the same, so that
    /// they can be merged. Returns it.
    pub(super) fn agree(&self, parts: &[Option<&'h Record>; 3]) -> Detail {
        let parts = || parts.iter().flatten();
        let slices_of = |detail| {
            let with = parts().filter(|part| part.detail() == detail);
            with.map(|part| part.slices.get()).sum::<usize>()
        };
        let (known, covered) = (slices_of(Detail::Masks), slices_of(Detail::Blanket));
        if covered == 0 {
            return Detail::Masks;
        }
        let fits = |part: &Record| part.detail() == Detail::Blanket || self.is_committed(part);
        let spreads = known * SPREAD <= covered && parts().all(|part| fits(part));
        if spreads {
            parts().for_each(|part| self.cover(part));
            return Detail::Blanket;
        }
        parts().for_each(|part| self.spell_out(part));
        Detail::Masks
    }

    fn is_committed(&self, span: &Record) -> bool {
        let arena = self.arena(span.arena());
        arena.find(span.index.get(), span.end(), Commit::No) == span.end()
    }
}
