//! What differs between machines: the fast path, whose algorithm `portable.rs` shows; the
//! thread's slot, which holds its cache; and the caller of `free`.
//!
//! Sanitizers do not see what assembly accesses, so `--cfg sanitized` chooses the portable fast
//! path on x86-64 (`ci/sanitizers.sh`).

#[cfg(target_arch = "aarch64")]
pub use super::aarch64::{
    pop_sized, prefetch, push_deleted, push_freed, set_slot, slot, slot_address,
};
#[cfg(any(sanitized, not(target_arch = "x86_64")))]
pub use super::portable::{exchange_own, pop, pop_sampling};
#[cfg(any(
    all(sanitized, target_arch = "x86_64"),
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
pub use super::portable::{pop_sized, push_deleted, push_freed};
#[cfg(all(not(sanitized), target_arch = "x86_64"))]
pub use super::x86_64::{exchange_own, pop, pop_sampling, pop_sized, push_deleted, push_freed};
#[cfg(target_arch = "x86_64")]
pub use super::x86_64::{prefetch, set_slot, slot, slot_address};

#[cfg(target_arch = "aarch64")]
pub(crate) use super::aarch64::with_caller;
#[cfg(target_arch = "x86_64")]
pub(crate) use super::x86_64::with_caller;
