//! Heap profiles: which stacks of calls allocate how much, read from the region of a process or from a file.
//!
//! | file | what is in it |
//! |---|---|
//! | `model` | a profile as plain data |

mod model;

pub use model::{Figures, Frame, Mapping, Profile, Stack, Value};
