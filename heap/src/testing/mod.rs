//! What the tests of several files share: models of parts of the heap, and the loom models of its
//! protocols. `planted` has errors for sanitizers.

#[cfg(not(loom))]
pub(crate) mod crew;
#[cfg(loom)]
mod freed_models;
#[cfg(not(loom))]
mod limit_model;
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

/// Whether bytes are all zero. By `memcmp` of aligned words: a loop over many megabytes takes a
/// sanitizer minutes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u64; 512] = [0; 512];
    // SAFETY: the array's bytes.
    let zeros = unsafe { core::slice::from_raw_parts(ZEROS.as_ptr().cast::<u8>(), 4096) };
    let mut pages = bytes.chunks(zeros.len());
    pages.all(|page| *page == zeros[..page.len()])
}
