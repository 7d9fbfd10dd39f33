//! Inspects a running process: its status page, its profile's
//! region, and the kernel's figures for it.
//!
//! | file | contents |
//! |---|---|
//! | `place` | where a process runs: its pod, container and service |
//! | `process` | a process by its directory in /proc, even if its PID is reused |
//! | `target` | the process that a word names; all processes under Neap |
//! | `reach` | another process's memory file, by its descriptor or its memory |
//! | `status_page` | reads a status page |
//! | `asking` | makes requests through the status page: for figures, a purge, samples, guards |
//! | `bell` | wakes the process's thread |
//! | `region` | reads a profile's region |
//! | `monitor` | the socket to which processes send their status pages at their start |
//! | `kernel` | resident and swapped bytes as the kernel counts them |
//!
//! These modules do not trust the data, because a process may hold any bytes under these names.
//! They copy all of it into private memory, so that a file that shrinks causes an error and not a
//! SIGBUS. They map only the word that wakes the process, of a file whose size is sealed. They
//! retry sequence locks a bounded number of times, and never use a number as a length without a
//! bound.

mod asking;
mod bell;
pub mod kernel;
pub mod monitor;
mod place;
mod process;
mod reach;
mod region;
mod silence;
mod status_page;
mod target;
#[cfg(test)]
pub mod testing;

pub use asking::now_ms;
pub use place::Place;
pub use process::Process;
pub use region::Region;
pub use silence::{Outlook, Silence};
pub use status_page::StatusPage;
pub use target::{Target, Under, may_watch, of_whom};
