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

/// How much of a span its user is going to touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Density {
    /// Most of it, sooner or later: a slab.
    Dense,
    /// Nobody knows.
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

/// How long nobody has used a span that becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It was in use until now.
    New,
    /// Longer than the decay time: it may be purged at once.
    Old,
}
