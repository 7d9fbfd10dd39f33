//! Who called `free`: a library's slow path cannot ask, so its first instruction notes the return
//! address.
//!
//! `free` ends in a jump to its slow path, so there the top of the stack is the return address into
//! the program. Where a build makes a call of it, the address lies in this library, and
//! [`super::purge`] takes it for what it is: unknown.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unknown;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::free_slow;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use unknown::free_slow;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::free_slow;
