//! What this kernel offers, tried out rather than concluded from its version.

mod advice;
mod cgroup;
mod limits;
mod map;
mod pagemap;
mod settings;
mod threads;

use crate::table::Finding;

/// Everything, in the order in which people will want to read it.
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
