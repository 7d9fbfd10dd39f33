//! The recording: what the heap of a program was over time, as lines of JSON.
//!
//! | file | what is in it |
//! |---|---|
//! | `format` | the lines |
//! | `writer` | appending them so that whatever happens, what was written is readable |
//! | `reader` | reading them back, also when the end is missing |
//! | `machine` | what the first line says about the machine |
//!
//! A recording is a text file. Its first line is the head, every other line stands for itself, so `head`, `grep` and `jq`
//! work on it. The file ends where the recording ended, for whatever reason: there is no index and no trailer.

pub mod format;
mod machine;
mod reader;
mod writer;

pub use format::{Head, Record};
pub use machine::Machine;
pub use reader::{Recording, read};
pub use writer::Writer;
