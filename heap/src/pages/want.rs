//! What a request says.

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// How many slices.
    pub(super) slices: usize,
    /// At a multiple of how many slices: a power of two.
    pub(super) align: usize,
    /// From where.
    pub(super) from: From,
    /// Whether its user fills it densely, so that huge pages suit it.
    pub(super) density: Density,
}

impl Want {
    /// Longest span (8 TiB), in slices: its OS pages are counted in 32 bits.
    const MOST_SLICES: usize = u32::MAX as usize / 32;

    /// Whether no span can be so long.
    pub(super) fn is_too_long(&self) -> bool {
        self.slices > Self::MOST_SLICES
    }
}

/// What room is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'w> {
    /// Wherever a request fits.
    Fit(&'w Want),
    /// `slices` slices from slice `at` of an arena on, whose number is `id`.
    At { id: usize, at: usize, slices: usize },
}

impl Goal<'_> {
    pub(super) fn slices(&self) -> usize {
        match self {
            Self::Fit(want) => want.slices,
            Self::At { slices, .. } => *slices,
        }
    }

    /// Whether the caller has another way if there is no room at once: it asks for resident pages
    /// only, or for a certain place, beside a span that can move.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::Fit(want) => want.from == From::Dirty,
            Self::At { .. } => true,
        }
    }
}

/// How much of a span its user is going to touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Density {
    /// Most of it, sooner or later: a slab.
    Dense,
    /// Not known.
    Unknown,
}

/// Where a span may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Wherever there is room, free spans with dirty pages first.
    Anywhere,
    /// Free spans with dirty pages only: what is resident is used again, and nothing is faulted in.
    Dirty,
}

/// For how long a span that becomes free was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It was in use until now.
    New,
    /// Longer than the decay time: it may be purged at once.
    Old,
}
