//! What a request for slices asks for, and where in free slices its span should begin.

use crate::base::units::SLICE_BYTES;

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
    /// How much of them the user will touch.
    pub(super) fill: Fill,
    /// How many bytes of pages will be moved there from another span, which then loses them.
    pub(super) moved: usize,
    /// The only arena and slice where they may begin; `None`: anywhere.
    pub(super) at: Option<(usize, usize)>,
}

/// If this many spans of a length fit, alignment to the grid may cost one of them.
const MANY: usize = 16;

impl SpanRequest {
    /// Longest span (8 TiB), in slices: its OS pages are counted in 32 bits.
    const MOST_SLICES: usize = u32::MAX as usize / 32;

    /// A request for `slices` slices, wherever they are.
    pub(super) fn anywhere(slices: usize) -> Self {
        Self {
            slices,
            align: 1,
            grid: 1,
            source: SpanSource::Any,
            fill: Fill::Sparse,
            moved: 0,
            at: None,
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
        self.fill == Fill::Dense && self.slices == 1 && self.align == 1
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
/// `bytes`. Where spans
/// of one length begin at multiples of it, the pages beyond the requested bytes stay untouched.
/// Otherwise they are soon the resident pages of earlier spans.
pub(super) fn grid_of(slices: usize, bytes: usize) -> usize {
    let tail = |whole: usize| whole.saturating_sub(bytes) * TAIL_PART >= whole;
    let matters = slices <= MOST_GRID && tail(slices * SLICE_BYTES);
    if matters { slices } else { 1 }
}

/// How much of a span its user will touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Most of it, sooner or later, so that huge pages suit it: a slab.
    Dense,
    /// Not known.
    Sparse,
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
