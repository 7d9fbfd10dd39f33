//! Real programs under the library.
//!
//! A program's test does its work in a [`World`]: a directory, an environment, a deadline, and one
//! of two allocators. It does the work twice, once with the system's malloc and once with the
//! library, and returns a transcript each time. The two must be equal. Every command runs under the
//! [`witness`], which follows all processes that the command starts. At the end of each one it
//! notes whether the library was mapped and how the process ended. So the suite verifies that a
//! program ran under the library, and it sees crashes that a parent process hides. Meanwhile the
//! [`ledger`] of each process is compared with the kernel's count.

pub mod bench;
pub mod installed;
pub mod ledger;
pub mod net;
mod outcome;
pub mod program;
pub mod server;
pub mod witness;
pub mod world;

pub use outcome::Outcome;
pub use program::{Need, Program};
pub use server::Server;
pub use world::World;
