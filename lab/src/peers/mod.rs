//! The allocators to compare.
//!
//! | file | contents |
//! |---|---|
//! | `list` | the peers as data: where each is found, or what it is built from |
//! | `locate` | their libraries on this machine |
//! | `nameable` | copies of those whose path the loader would split |
//! | `obtain` | builds those that are not installed |

mod list;
mod locate;
mod nameable;
mod obtain;

pub use list::{ALL, Peer, find, select, select_with_hardened};
pub use locate::{Places, Ready, locate};
pub use obtain::obtain;
