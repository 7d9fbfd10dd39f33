//! One file per verb. A verb has its arguments and `run`, which returns the exit code.

pub mod golden;
pub mod peers;
pub mod show;
pub mod worker;
