//! `neap top`: a running process, or all of them, at intervals.
//!
//! | file | contents |
//! |---|---|
//! | `feed` | the figures of a process at each tick, and their rates of change |
//! | `list` | the processes under Neap |
//! | `plain` | lines, for a pipe |
//! | `screen` | the watch on a terminal: draws at every tick, obeys keys, notices signals |
//! | `state` | what is shown, and how keys change it |
//! | `draw` | draws the state |
//! | `canvas` | areas, tables and sparklines of styled characters |
//! | `terminal` | the terminal's mode, size and keys |

mod canvas;
mod draw;
mod feed;
mod list;
mod plain;
mod screen;
mod state;
mod terminal;

pub use feed::Feed;
pub use plain::{Form, list as plain_list, one as plain_one};
pub use screen::{Stop, note_signals, run as on_screen};

use std::time::Duration;

/// The interval and the number of ticks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between two ticks.
    pub interval: Duration,
    /// How many ticks; `None`: until an event ends it.
    pub count: Option<u64>,
}
