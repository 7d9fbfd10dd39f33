#![cfg_attr(not(any(test, loom)), no_std)]
#![allow(
    clippy::new_without_default,
    reason = "parts of the heap are made once, by `const fn`"
)]
//! The heap behind the crate `neap`. It makes no promises; programs use `neap` or libneap.so.
//!
//! # The layers, top to bottom; each uses only what stands below it
//!
//! | layer | what it does | what it does not know |
//! |---|---|---|
//! | [`malloc`] [`free`], [`stacks::stack`] | the entry points, which every frontend shares | modes |
//! | [`watched`] | what the modes add to a call: checking, hardening, counting, samples, guards | |
//! | [`supply`] [`large`] [`mapped_over`] | the parts of a call: blocks of slabs past the magazine, large blocks | modes |
//! | [`init`] [`fork`] | the start of the process, options, the thread's cache at first use; copies of the process | |
//! | [`reclaim`] | rounds of decay, the purge thread, pressure for memory | |
//! | [`hook`] | the only connection to the instruments, a separate crate | what they do |
//! | [`cache`] | magazines: fast path, refill, flush, draining, thread end | |
//! | [`stacks`] | stacks for coroutines: guards, recycling | threads, coroutines |
//! | [`slab`] | size classes, bitmaps, depots | threads |
//! | [`pages`] | the page heap: spans, zero state, purge, limits, huge pages | size classes |
//! | [`os`] | the only layer that speaks to the kernel | the heap |
//! | [`base`] | units, the façade for atomics, the ordered tree, [when memory goes back](base::policy) | everything |
//!
//! The state of [`reclaim`] ([`reclaim::state`], [`reclaim::wakeup`]) is part of the heap's data,
//! so [`cache`] names it. Data that other processes read is in the crate `neap_shared`. The code
//! that observes the heap (the status page, the survey, the profiler, the unwinder, the checking
//! and counting modes) is in the crate `neap_instruments`, which depends on this one.
//! `tests/structure` fails on an upward edge, and on files that import each other in a circle.
//!
//! [`glossary`] explains the terms. The entry points keep `errno`, return null when out of memory,
//! and abort with one line on misuse.
//!
//! # Where each invariant is documented
//!
//! - Which blocks of a slab are free: [`slab`], with the protocol and its models.
//! - Who may write a magazine: [`cache::magazine`]; how another thread empties one:
//!   [`cache::drain`].
//! - Where guards are, and that no free span contains one: [`stacks`].
//! - Which OS pages are zero: [`pages`], kept through free, split, merge, purge and reuse.
//! - Which pages of a slab in use are not resident: [`slab::page_set`]; how they are purged:
//!   [`slab::decommitted`].
//! - When the purge thread may be started: [`reclaim::start`].
//! - Who may write to shared memory: [`os::shared::is_mine`]. How the profiler counts without an
//!   instruction on the fast path: [`cache::countdown`].
//! - The order of locks, and under which of them no system call is made: [`os::lock_order`], which
//!   debug builds check. A cache's lock has no rank; it is taken between the registry's and a
//!   depot's. The C library's list of streams comes before all.
//!
//! # What a short-lived process pays
//!
//! Each page that a process touches costs it a fault, and costs each of its forks a copied page
//! table entry. So the words that every start and every fork writes are kept together, in the
//! section `neap_fork` and at the head of [`cache::heap::Heap`]. Tables that few processes use are
//! mapped at their first use ([`os::areas`]).
//!
//! `docs/first-malloc.md` follows the first allocation step by step, and `docs/purge.md` follows
//! memory on its way back to the kernel.

pub mod base;
// The models have parts of these two modules only.
#[cfg_attr(loom, path = "testing/modelled_cache.rs")]
pub mod cache;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
pub mod free;
#[doc = include_str!("../GLOSSARY.md")]
pub mod glossary {}
#[cfg(not(loom))]
pub mod hook;
#[cfg(not(loom))]
pub mod init;
#[cfg(not(loom))]
pub mod large;
#[cfg(not(loom))]
pub mod malloc;
#[cfg(not(loom))]
pub mod mapped_over;
pub mod os;
#[cfg(not(loom))]
pub mod pages;
#[cfg_attr(loom, path = "testing/modelled_reclaim.rs")]
pub mod reclaim;
pub mod slab;
#[cfg(not(loom))]
pub mod stacks;
#[cfg(not(loom))]
mod supply;
#[cfg(test)]
mod testing;
#[cfg(not(loom))]
pub mod watched;
