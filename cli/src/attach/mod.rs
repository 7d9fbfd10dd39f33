//! Inspects a running process: its status page, its profile's region, and the kernel's figures for
//! it.
//!
//! | file | contents |
//! |---|---|
//! | `process` | a process by its directory in /proc, and where it runs |
//! | `target` | the process that a word names; all processes under Neap |
//! | `memory_file` | another process's memory file, by its descriptor or its memory; a profile's region |
//! | `status_page` | reads a status page |
//! | `asking` | makes requests through the status page: for figures, a purge, samples, guards |
//! | `monitor` | the socket to which processes send their status pages at their start |
//! | `glibc` | free memory in the heaps of glibc's `malloc` |
//! | `kernel` | resident and swapped bytes as the kernel counts them |
//!
//! These modules do not trust the data, because a process may hold any bytes under these names.
//! They copy all of it into private memory, so that a file that shrinks causes an error and not a
//! SIGBUS. They map only the word that wakes the process, of a file whose size is sealed. They
//! retry sequence locks a bounded number of times, and never use a number as a length without a
//! bound.

mod asking;
mod glibc;
pub mod kernel;
mod memory_file;
pub mod monitor;
mod process;
mod status_page;
mod target;
#[cfg(test)]
pub mod testing;

pub use asking::{Outlook, Silence, now_ms};
pub use glibc::Memory;
pub use memory_file::Region;
pub use process::{Process, Whereabouts};
pub use status_page::StatusPage;
pub use target::{Target, Under, may_watch, of_whom, processes};
