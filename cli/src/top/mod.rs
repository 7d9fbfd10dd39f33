//! `neap top`: a running process, or all of them, again and again.
//!
//! | file | what is in it |
//! |---|---|
//! | `feed` | the figures of a process at each tick, and what changed a second |
//! | `list` | the processes under Neap |
//! | `plain` | lines, for a pipe |
//! | `screen` | the terminal: taking it, giving it back however we end, keys |
//! | `state` | what is shown and how keys change it |
//! | `draw` | what is on the screen |

mod draw;
mod feed;
mod list;
mod plain;
mod screen;
mod state;

pub use feed::Feed;
pub use plain::{Form, list as plain_list, one as plain_one};
pub use screen::{Stop, note_signals, run as on_screen};

use std::time::Duration;

/// How often to look, and how many times.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two looks.
    pub interval: Duration,
    /// So many looks; none: until something ends it.
    pub count: Option<u64>,
}
