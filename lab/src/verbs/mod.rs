//! One file a verb. A verb has its arguments and `run`, which gives the exit code.

pub mod bench;
pub mod download;
pub mod golden;
pub mod peers;
pub mod show;
pub mod worker;
