//! What the tests of several files share: models of parts of the heap, and the loom models of its
//! protocols. `planted` has errors for sanitizers.

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

/// Whether bytes are all zero. One call of `memcmp`: a loop over many megabytes takes a sanitizer
/// minutes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let [first, rest @ ..] = bytes else {
        return true;
    };
    *first == 0 && bytes[..rest.len()] == *rest
}
