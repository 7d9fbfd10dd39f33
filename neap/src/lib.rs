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
//! | [`Hardened`] | the same with measures against memory errors |
//! | [`stack`] | stacks for coroutines, with guards |
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
//! violate memory safety through this crate, with two exceptions:
//!
//! - Before edition 2024 `std::env::set_var` is a safe function, and the heap's first use reads the
//!   environment. A program that keeps another global allocator, and calls `set_var` beside other
//!   threads, must first call a function of this crate, for instance [`purge::decay`], while it has
//!   only one thread. Under [`Neap`] the first allocation comes before `main`.
//! - The guard of a [`stack`] has at least 36 KiB, and 68 KiB for a stack of 64 KiB or more. Rust's
//!   functions cannot step over it, and neither can the fixed frames of glibc's and musl's
//!   functions, of which the largest without stack probes has 33 KiB. Some take up to 64 KiB by
//!   `alloca`. A function without stack probes that takes more than the guard at once can step over
//!   it.
//!
//! # Features
//!
//! There is one, which is off by default: `corosensei` implements the trait `Stack` of the crate
//! corosensei for [`stack::Stack`].
//!
//! # Platforms
//!
//! Linux on x86-64 and AArch64, with glibc or musl, in dynamic and in static programs. On AArch64
//! the crate has been tested only under an emulator. It needs Rust 1.88 or newer. It uses no `std`,
//! but needs `alloc` and the C library.
//!
//! # Libraries
//!
//! A `cdylib` that this crate is linked into (a plugin, a Python extension) stays loaded after
//! `dlclose`, because each thread that allocated in it calls its code when the thread ends.
//!
//! # One program, two heaps
//!
//! A program with this crate has one heap for its Rust code. C code in the same process calls the
//! `malloc` of the C library. If the program is started by `neap run`, or with `libneap.so`
//! preloaded, that library serves the C code from a second heap. Neither heap knows the other's
//! blocks: a block must be freed by the language that allocated it, as Rust requires in any case.
//! `neap stat`, `neap profile` and the other tools show the heap of the Rust code. Options in the
//! environment count for both.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod allocator;
#[cfg(feature = "corosensei")]
mod corosensei;
pub mod guard;
mod kernel;
pub mod limits;
mod loaded;
pub mod profile;
pub mod purge;
pub mod stack;
pub mod stats;

pub use allocator::{Hardened, Neap, usable_size};
pub use kernel::{note_mapped_over, prepare_for_sandbox};
#[doc(inline)]
pub use neap_heap::glossary;

// The examples of the page on crates.io.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
