//! What the tests of several files share: models of parts of the heap, and the loom models of its
//! protocols. `planted` has errors for sanitizers.

#[cfg(loom)]
mod bias_models;
#[cfg(not(loom))]
pub(crate) mod crew;
#[cfg(loom)]
mod freed_models;
#[cfg(loom)]
mod magazine_models;
#[cfg(not(loom))]
pub(crate) mod own_cache;
#[cfg(not(loom))]
mod planted;
#[cfg(not(loom))]
pub(crate) mod slab_model;
#[cfg(loom)]
mod slab_models;
#[cfg(loom)]
mod wakeup_models;
