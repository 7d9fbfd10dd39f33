//! `neap top`: a running process, or all of them, at intervals.
//!
//! | file | contents |
//! |---|---|
//! | `feed` | the figures of a process at each tick, and the processes under Neap |
//! | `pace` | the time between looks, and what stops the watch |
//! | `plain` | lines, for a pipe |
//! | `screen` | the watch on a terminal: draws at every tick, obeys keys, notices signals |
//! | `state` | what is shown, and how keys change it |
//! | `draw` | draws the state |
//! | `canvas` | lines of styled text, tables and sparklines |
//! | `terminal` | the terminal's mode, size and keys |

mod canvas;
mod draw;
mod feed;
mod pace;
mod plain;
mod screen;
mod state;
mod terminal;

pub use feed::Feed;
pub use pace::{Pace, Stop, note_signals};
pub use plain::{list as plain_list, one as plain_one};
pub use screen::run as on_screen;
