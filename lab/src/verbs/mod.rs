//! One file per verb. A verb has its arguments and `run`, which returns the exit code.

pub mod bench;
pub mod calloc;
mod campaign;
pub mod classes;
pub mod download;
mod figured;
pub mod fragmentation;
pub mod golden;
pub mod memory;
pub mod peers;
pub mod prices;
pub mod profile;
pub mod retention;
pub mod show;
pub mod sizes;
pub mod tide;
pub mod worker;
