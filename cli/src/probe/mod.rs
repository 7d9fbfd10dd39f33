//! Tries out what this kernel offers, instead of deriving it from its version.

mod advice;
mod cgroup;
mod limits;
mod map;
mod pagemap;
mod promises;
mod settings;
mod threads;
mod write_guard;

use crate::table::Finding;
#[cfg(fuzzing)]
pub use cgroup::Controller;
pub use promises::promises;
pub use settings::bracketed;
use std::io;

/// All findings, in reading order.
pub fn all() -> Vec<Finding> {
    [
        settings::findings(),
        advice::findings(),
        pagemap::findings(),
        threads::findings(),
        limits::findings(),
        cgroup::findings(),
    ]
    .concat()
}

/// Whether a call that the kernel accepted did what it is for.
fn effect(works: bool) -> io::Result<()> {
    match works {
        true => Ok(()),
        false => Err(io::Error::other("accepted without effect")),
    }
}
