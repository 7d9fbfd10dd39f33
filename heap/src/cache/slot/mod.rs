//! The thread's one pointer: an initial-exec slot of thread-local storage, read in two
//! instructions.
//!
//! It starts out at [`super::thread::EMPTY`], so that no caller tests for null. The symbol carries
//! the version: two versions in one program must not meet.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{address, get, set};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{address, get, set};
