//! The commands: a table, and a function for each.
//!
//! They are what redis-benchmark, `kv-burst` and a session of redis-cli need.

mod info;
mod refusal;
mod session;
mod table;
mod values;

pub use refusal::{Outcome, Refusal, settle};
pub use session::{Course, Session};
pub use table::{Command, Handler, TABLE, choose};
