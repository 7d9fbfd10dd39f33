//! The recording: a program's heap over time, as lines of JSON.
//!
//! | file | contents |
//! |---|---|
//! | `format` | the lines |
//! | `writer` | appends lines, such that all written lines stay readable after any failure |
//! | `reader` | reads them back, even if the end is missing |
//!
//! A recording is a text file. Its first line is the head, and every other line is independent, so
//! `head`, `grep` and `jq` work on it. There is no index and no trailer: the file is valid wherever
//! the recording ended.

pub mod format;
mod reader;
mod writer;

pub use format::{Head, Machine, Record, START};
pub use reader::{Recording, read};
pub use writer::Writer;
