//! Tries out what this kernel offers, instead of deriving it from its version.

mod promises;
mod settings;
mod trials;
mod write_guard;

pub use promises::promises;
#[cfg(fuzzing)]
pub use settings::Controller;
pub use settings::bracketed;

use crate::table::Finding;

/// All findings, in reading order.
pub fn all() -> Vec<Finding> {
    [
        settings::findings(),
        trials::findings(),
        settings::limits(),
        settings::of_group(),
    ]
    .concat()
}
