//! The only layer that speaks to the kernel.
//!
//! Every function here keeps the caller's `errno`.

pub mod abort;
pub mod cgroup;
#[cfg(test)]
#[path = "../testing/child.rs"]
pub mod child;
pub mod errno;
#[cfg(test)]
#[path = "../testing/fake_system.rs"]
pub mod fake;
#[cfg(not(loom))]
pub mod fault;
pub mod file;
pub mod fork;
pub mod futex;
mod gate;
#[cfg(all(test, loom))]
#[path = "../testing/gate_models.rs"]
mod gate_models;
pub mod late;
pub mod linux;
pub mod lock;
#[cfg(loom)]
#[path = "../testing/loom_lock.rs"]
mod lock_loom;
mod machine;
mod mapping;
pub mod own_stack;
mod pagemap;
pub mod pagemap_file;
pub mod process;
pub mod sandbox;
pub mod section;
#[cfg(not(loom))]
pub mod shared;
mod system;
pub mod thread;
mod waits;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "portable.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;

// The names until the other folders follow.
pub use abort as fatal;
pub use system::{
    Backing, GuardRefused, Huge, Os, OutOfMemory, Populated, Purged, RemapError, Unknown,
};
