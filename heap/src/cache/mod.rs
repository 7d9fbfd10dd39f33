//! Magazines over bitmaps: the fast path, refill, flush, draining, thread end.

/// The symbol of the thread's slot. It names the package's version, so that two versions in one
/// program do not share a slot.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg_attr(loom, allow(unused_macros))]
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

#[cfg(all(not(loom), target_arch = "aarch64"))]
mod aarch64;
#[cfg(not(loom))]
mod arming;
#[cfg_attr(loom, allow(dead_code))]
pub mod bounds;
#[cfg(not(loom))]
pub mod budget;
#[cfg(not(loom))]
pub mod countdown;
#[cfg(not(loom))]
pub mod drain;
#[cfg(not(loom))]
pub(crate) mod draw;
#[cfg(not(loom))]
mod entry;
#[cfg(not(loom))]
pub mod flush;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
pub mod machine;
pub mod magazine;
#[cfg(not(loom))]
pub mod measures;
#[cfg(not(loom))]
pub mod misuse;
#[cfg(not(loom))]
pub mod opened;
#[cfg(not(loom))]
pub mod origin;
#[cfg(all(not(loom), any(test, sanitized, not(target_arch = "x86_64"))))]
pub mod portable;
#[cfg(not(loom))]
pub mod refill;
#[cfg(not(loom))]
pub mod registry;
#[cfg(not(loom))]
pub(crate) mod tags;
#[cfg(not(loom))]
pub mod thread_cache;
#[cfg(not(loom))]
pub mod waiting;
#[cfg(all(not(loom), target_arch = "x86_64"))]
#[cfg_attr(sanitized, allow(dead_code))]
mod x86_64;
