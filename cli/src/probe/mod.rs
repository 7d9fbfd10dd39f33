//! Tries out what this kernel offers, instead of deriving it from its version.

mod advice;
mod cgroup;
mod limits;
mod map;
mod pagemap;
mod settings;
mod threads;

use crate::table::Finding;
#[cfg(fuzzing)]
pub use cgroup::Controller;
pub use settings::bracketed;

/// All findings, in reading order.
pub fn all() -> Vec<Finding> {
    let groups = [
        settings::findings(),
        advice::findings(),
        pagemap::findings(),
        threads::findings(),
    ];
    groups
        .into_iter()
        .flatten()
        .chain(limits::findings())
        .chain(cgroup::findings())
        .collect()
}
