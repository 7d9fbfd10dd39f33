//! Real programs under the library.
//!
//! A program's test does its work in a [`World`]: a directory, an environment, a
//! deadline, and one of two allocators. It does the work twice, once with the system's
//! malloc and once with the library, and returns a transcript each time; the two
//! must be equal. Every command runs under the [`witness`], which follows all
//! processes the command starts and notes at the end of each one whether the library
//! was mapped and how it ended. So "it ran under the library" is an observation,
//! not a hope, and a crash that a parent process hides is seen. While they run, the [`ledger`] of each is
//! compared with the kernel's count.

pub mod bench;
pub mod ledger;
pub mod net;
pub mod program;
pub mod server;
pub mod witness;
pub mod world;

pub use program::{Need, Program};
pub use server::Server;
pub use world::World;

/// What a step of a test gives: its value, or what went wrong in words.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
