//! Magazines over bitmaps: the fast path, refill, flush, draining, thread end.

/// The symbol of the thread's slot. It names the package's version, so that two versions in one
/// program do not share a slot.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! slot_name {
    () => {
        concat!(
            "neap_slot_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH")
        )
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod arming;
pub mod bounds;
pub mod budget;
pub mod countdown;
pub mod drain;
pub(crate) mod draw;
mod entry;
mod exchange;
pub mod flush;
pub mod heap;
pub mod magazine;
pub mod measures;
pub mod misuse;
pub mod opened;
pub mod origin;
#[cfg(any(test, sanitized, not(target_arch = "x86_64")))]
pub mod portable;
pub mod refill;
pub mod registry;
pub(crate) mod tags;
pub mod thread_cache;
#[cfg(target_arch = "x86_64")]
#[cfg_attr(sanitized, allow(dead_code))]
mod x86_64;

/// What differs between machines: the fast path, whose algorithm `portable.rs` shows; the
/// thread's slot, which holds its cache; and the caller of `free`.
///
/// Sanitizers do not see what assembly accesses, so `--cfg sanitized` chooses the portable fast
/// path on x86-64 (`ci/sanitizers.sh`).
pub mod machine {
    #[cfg(target_arch = "aarch64")]
    pub use crate::cache::aarch64::{
        pop_sized, prefetch, push_deleted, push_freed, set_slot, slot, slot_address,
    };
    #[cfg(any(sanitized, not(target_arch = "x86_64")))]
    pub use crate::cache::portable::{exchange_own, may_be_recent, pop, pop_sampling, serves};
    #[cfg(all(sanitized, target_arch = "x86_64"))]
    pub use crate::cache::portable::{pop_sized, push_deleted, push_freed};
    #[cfg(all(not(sanitized), target_arch = "x86_64"))]
    pub use crate::cache::x86_64::{
        exchange_own, may_be_recent, pop, pop_sampling, pop_sized, push_deleted, push_freed, serves,
    };
    #[cfg(target_arch = "x86_64")]
    pub use crate::cache::x86_64::{prefetch, set_slot, slot, slot_address};

    #[cfg(target_arch = "aarch64")]
    pub(crate) use crate::cache::aarch64::with_caller;
    #[cfg(target_arch = "x86_64")]
    pub(crate) use crate::cache::x86_64::with_caller;
}
