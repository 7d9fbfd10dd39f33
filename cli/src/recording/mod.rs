//! The recording: a program's heap over time, as lines of JSON.
//!
//! | file | contents |
//! |---|---|
//! | `format` | the lines |
//! | `heap` | what a process reported about its heap, as part of a line |
//! | `writer` | appends lines, such that all written lines stay readable after any failure |
//! | `reader` | reads them back, even if the end is missing |
//! | `machine` | describes the machine for the first line |
//!
//! A recording is a text file. Its first line is the head, and every other line is independent, so
//! `head`, `grep` and `jq` work on it. There is no index and no trailer: the file is valid wherever
//! the recording ended.

pub mod format;
mod heap;
mod machine;
mod reader;
mod writer;

pub use format::{Head, Record, START};
pub use machine::Machine;
pub use reader::{Recording, read};
pub use writer::Writer;
