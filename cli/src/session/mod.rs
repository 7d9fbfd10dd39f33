//! A watched run: the processes of the tree, from start to end.
//!
//! | file | contents |
//! |---|---|
//! | `run` | the processes, sampled at every tick into the recording |
//! | `watched` | one process, and the time of the run |
//! | `outcome` | the files and messages after the program's end |
//!
//! Every process under Neap sends descriptors of its status page and of its profile. So the session
//! can read what the process last wrote even after the process has ended.

mod outcome;
mod run;
mod watched;

pub use outcome::{Outputs, ProfileFile};
pub use run::Session;
