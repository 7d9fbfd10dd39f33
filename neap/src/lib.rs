//! Neap: a memory system for Linux programs.
//!
//! ```
//! use neap::stack::Stack;
//! use neap::stats::{Text, snapshot};
//!
//! #[global_allocator]
//! static ALLOCATOR: neap::Neap = neap::Neap;
//!
//! fn main() -> Result<(), neap::stack::StackError> {
//!     neap::purge::enable_thread(); // return unused pages, even while the program sleeps
//!     let words: Vec<String> = "one heap for all of it".split(' ').map(String::from).collect();
//!     let stack = Stack::new(64 << 10)?; // for a coroutine: guarded, and recycled when dropped
//!     println!("{} words, {} bytes of stack", words.len(), stack.bytes());
//!     println!("{}", Text(&snapshot())); // where every byte is
//!     Ok(())
//! }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`Neap`] | the global allocator |
//! | [`stack`] | stacks for coroutines, with guard pages |
//! | [`purge`] | when free pages return to the kernel |
//! | [`limits`] | bounds on what the heap holds |
//! | [`stats`] | figures of the heap, and the ledger of every byte |
//! | [`profile`] | the sampling profiler, which `neap profile` reads |
//! | [`glossary`] | the terms of this documentation |
//!
//! The heap is the process's: blocks, stacks and free pages come from the same spans, and every
//! limit and figure counts all of them. The modules also serve a program with another global
//! allocator, for instance one that only needs stacks.
//!
//! A program that runs under `libneap.so` needs no code; the shell command `neap run` is enough.
//! Use this crate to choose the allocator at build time, to run coroutines, or to read the figures
//! from inside.
//!
//! The options of the heap can also be given in the environment (`NEAP_DECAY`, `NEAP_LIMIT`, …).
//! The heap reads the environment at its first use. Settings that the program makes through this
//! crate take precedence, except that `NEAP_PURGE_THREAD` takes precedence over
//! [`purge::enable_thread`].
//!
//! # Soundness
//!
//! Every function that takes a pointer is `unsafe`. A program that forbids unsafe code cannot
//! violate memory safety through this crate, with one exception. Before edition 2024
//! `std::env::set_var` is a safe function, and the heap's first use reads the environment. A
//! program that keeps another global allocator and calls `set_var` beside other threads first calls
//! one function of this crate, for instance [`purge::decay`], while it has one thread. Under
//! [`Neap`] the first allocation comes before `main`.
//!
//! # Features
//!
//! `corosensei` implements the trait `Stack` of the crate corosensei for [`stack::Stack`].

#![no_std]

mod allocator;
#[cfg(feature = "corosensei")]
mod corosensei;
mod kernel;
pub mod limits;
pub mod profile;
pub mod purge;
pub mod stack;
pub mod stats;

pub use allocator::{Neap, usable_size};
pub use kernel::{note_mapped_over, prepare_for_sandbox};
#[doc(inline)]
pub use neap_heap::glossary;
