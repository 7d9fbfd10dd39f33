//! One file a verb. A verb has its arguments and `run`, which gives the exit code.

pub mod bench;
pub mod calloc;
mod campaign;
pub mod download;
pub mod golden;
pub mod memory;
pub mod peers;
pub mod prices;
pub mod show;
pub mod tide;
pub mod worker;
