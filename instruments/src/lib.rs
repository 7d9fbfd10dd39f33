#![cfg_attr(not(test), no_std)]
//! The instruments of Neap's heap. They make no promises; programs use the crate `neap`.
//!
//! | module | what |
//! |---|---|
//! | [`attach`] | the status page (status page), where observers read figures and make requests |
//! | [`survey`] | the figures of the heap at one moment, and the ledger |
//! | [`statistics`] | the page of `NEAP_STATS` at the process's end |
//! | [`profile`] | the sampling heap profiler |
//! | [`unwind`] | which calls led to an allocation |
//! | [`peek`] | memory that may not be mapped, read without a fault |
//! | [`guard`] | guarded samples |
//! | `check`, `lines` | the checking mode's quarantine |
//! | `sizes` | the counting mode's table of requested sizes |
//! | `hook` | the heap's [hook](neap_heap::hook), through which the heap calls all of them |
//!
//! A program that links this crate has all of the instruments: a constructor installs them before
//! the first allocation. The heap calls them on slow paths only, and an instrument that is off
//! costs a compare there.

pub mod attach;
mod check;
pub mod guard;
mod hook;
mod lines;
#[cfg(any(test, target_arch = "x86_64"))]
mod objects;
pub mod peek;
pub mod profile;
mod sizes;
pub mod statistics;
pub mod survey;
pub mod unwind;

pub use hook::install;
