//! Zeroing stores that bypass the caches.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "none.rs")]
mod machine;

pub use machine::stream;
