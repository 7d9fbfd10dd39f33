//! The process's side of the status page, which the code calls the board ([`neap_shared::board`]):
//! it writes the figures that other processes read, and serves their requests.
//!
//! The board costs next to nothing without an observer: the page heap copies its figures there when
//! they change, and slow paths compare three words. The purge thread serves an observer's requests.
//! In a process without one, a thread that allocates does. Requests come from other processes, so
//! the process only compares them with their last values and bounds them. It never reads back what
//! it wrote to the board.
//!
//! A child of fork gets a board of its own. A child of vfork shares its parent's memory and leaves
//! the board alone. So does the child of a raw clone, which shares only the file.
//!
//! - `words`: the board's words. `monitor`: the socket to which boards and profiles are sent.
//! - `state`: the process's private state. `serve`: the answers. `lifecycle`: when there is a
//!   board.

mod lifecycle;
pub(crate) mod monitor;
mod serve;
mod state;
pub(crate) mod words;

pub use lifecycle::set_frontend;
pub(crate) use lifecycle::{
    When, after_fork_in_child, begin, choose, finish, is_wanted_soon, keep_monitor, note_thread,
    renew,
};
pub(crate) use serve::{due_in_ms, is_awaited, on_the_way, serve_due};
pub(crate) use state::LOCK;
