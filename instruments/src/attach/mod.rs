//! The process's side of the status page ([`neap_shared::status_page`]): it writes the figures that
//! other processes read, and serves their requests.
//!
//! The status page costs next to nothing without an observer: the page heap copies its figures
//! there when they change, and slow paths compare four words. The purge thread serves an
//! observer's requests. In a process without one, a thread that allocates does. Requests come from
//! other processes, so the process only compares them with their last values and bounds them. It
//! never reads back what it wrote to the status page.
//!
//! A child of fork gets a status page of its own. A child of vfork shares its parent's memory and
//! leaves the status page alone. So does the child of a raw clone, which shares only the file.
//!
//! - `words`: the status page's words. `monitor`: the socket to which status pages and profiles are
//!   sent.
//! - `state`: the process's private state. `serve`: the answers. `lifecycle`: when there is a
//!   status page.

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
