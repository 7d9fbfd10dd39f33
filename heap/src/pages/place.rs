//! What the rooms above hold: a slice of an arena, a span just given out.

use super::Use;
use super::arena::Arena;
use super::span::{Detail, Record, State};
use super::zero_state::Zero;
use crate::base::sync::plain::Ordering::Relaxed;
use core::ptr::NonNull;

/// One slice of an arena, found by an address in it.
///
/// Every method may be called for any slice. What it answers about a span is certain only while the
/// caller holds that span; else it is stale at worst.
#[derive(Clone, Copy, Debug)]
pub struct Place<'h> {
    pub(super) arena: &'h Arena,
    pub(super) index: usize,
}

impl Place<'_> {
    /// The tag its user gave the span that starts here; 0 for every other slice.
    #[inline]
    pub fn tag(&self) -> u8 {
        self.arena.tag(self.index).load(Relaxed)
    }

    /// Tags the span that starts here. Taken away again when the span is freed.
    #[inline]
    pub fn set_tag(&self, tag: u8) {
        self.arena.tag(self.index).store(tag, Relaxed);
    }

    /// Takes the tag away. Of several callers at once, one gets it and the others 0.
    #[inline]
    pub fn take_tag(&self) -> u8 {
        self.arena.tag(self.index).swap(0, Relaxed)
    }

    /// The slice's entry in the side table, [`super::Sides::near`] bytes long. All zero until its
    /// user writes to it; the page heap never does, not even between two spans. Only for slices of
    /// a span, of today or before.
    #[inline]
    pub fn side(&self) -> NonNull<u8> {
        self.arena.side(self.index)
    }

    /// The entry that stands apart, [`super::Sides::far`] bytes long.
    pub fn far_side(&self) -> NonNull<u8> {
        self.arena.far_side(self.index)
    }

    /// What its user noted for the span in use that starts here. Of other spans, and before the
    /// user notes something, null or a pointer to 64 bytes of Neap's own tables. Only for slices of
    /// a span, of today or before.
    #[inline]
    pub fn noted(&self) -> *mut u8 {
        self.record().noted()
    }

    /// Notes a pointer for the span in use that starts here. Unlike the side table it costs no
    /// memory.
    #[inline]
    pub fn note(&self, pointer: *mut u8) {
        self.record().note(pointer);
    }

    /// Address of the slice.
    #[inline]
    pub fn slice_base(&self) -> usize {
        self.arena.layout().address(self.index)
    }

    /// What the span that starts here is used for; `None` if none in use does.
    pub fn use_(&self) -> Option<Use> {
        self.used().map(|(_, use_)| use_)
    }

    /// Slices of the span in use that starts here, else 0.
    pub fn slices(&self) -> usize {
        self.used().map_or(0, |(record, _)| record.slices.get())
    }

    /// Bytes asked for of the span in use that starts here, else 0.
    pub fn bytes(&self) -> usize {
        self.used().map_or(0, |(record, _)| record.bytes())
    }

    /// Which OS pages of the slice that starts this span may hold old data, the lowest page in the
    /// lowest bit. While the span is in use: as it was when the span was given out. All ones
    /// outside of spans.
    pub fn dirty_mask(&self) -> u16 {
        if self.has_record() && self.record().detail() == Detail::Masks {
            self.arena.mask(self.index).load(Relaxed)
        } else {
            u16::MAX
        }
    }

    /// The record of a slice that a span has or had.
    pub(super) fn record(&self) -> &Record {
        self.arena.record(self.index)
    }

    fn has_record(&self) -> bool {
        self.index >= self.arena.layout().head && self.index < self.arena.frontier()
    }

    fn used(&self) -> Option<(&Record, Use)> {
        if !self.has_record() {
            return None;
        }
        let record = self.arena.record(self.index);
        match record.state() {
            State::Used(use_) => Some((record, use_)),
            State::Free | State::Aside | State::Blank => None,
        }
    }
}

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
    /// Its first slice.
    pub place: Place<'h>,
}

/// What a span gained at its end.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'h> {
    /// How many slices.
    pub slices: usize,
    /// What is known about their contents.
    pub zero: Zero,
    /// The first of them.
    pub place: Place<'h>,
}
