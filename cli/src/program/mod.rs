//! Which files a command line executes, and whether the dynamic loader accepts a preload for each
//! of them.

pub mod chain;
pub mod elf;
pub mod obstacle;

pub use chain::{Chain, Link, Role, Scope, follow};
pub use obstacle::Obstacle;
