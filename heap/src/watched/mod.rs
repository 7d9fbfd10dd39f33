//! Calls under watch: what the modes add to `malloc`, `free` and `realloc`.
//!
//! A call is watched if it is checked (`NEAP_CHECK`), hardened (`NEAP_HARDEN`), counted
//! (`NEAP_COUNT`), or if some calls are sampled (`NEAP_SAMPLE`) or guarded (`NEAP_GUARD`). Past the
//! fast path, each entry point asks [`HEAP`](crate::cache::heap::HEAP) whether its call is watched;
//! `free` and `realloc`, which do not choose samples, ask only whether it is checked or counted.
//! The whole of such a call is this module's. So the entry points know of no mode, and only
//!
//! - [`calls`] knows in which order the modes act. The other files are one mode each, or a part of
//!   it:
//! - [`harden`], [`seal`], [`stray`]: hardened blocks of slabs.
//! - [`fences`]: large blocks between guards.
//! - [`stated`]: the size and the form that callers state when they free.
//!
//! The instruments, which [`crate::hook`] calls, hold back, sample and guard blocks.

pub mod calls;
pub mod fences;
pub mod harden;
pub mod seal;
pub mod stated;
mod stray;
