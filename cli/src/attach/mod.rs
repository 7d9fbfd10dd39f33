//! Looking into a running process: its board, its profile's region, and what the kernel knows of it.
//!
//! | file | what is in it |
//! |---|---|
//! | `process` | a process by its directory in /proc, which stays that of this process when its number is used again |
//! | `target` | which process is meant by a word of the command line; all processes under Neap |
//! | `reach` | bytes of another process's memory file: through its descriptor, or through its memory |
//! | `board` | reading a board |
//! | `asking` | asking through a board: for figures, a purge, samples |
//! | `bell` | waking the process's thread |
//! | `region` | reading a profile's region |
//! | `monitor` | the socket to which processes send their boards at their start |
//! | `kernel` | resident and swapped bytes as the kernel counts them |
//!
//! Nothing that is read here is trusted: a process may hold any bytes under these names. All is read into memory of our own, so that a
//! file that shrinks is an error and no SIGBUS; only the word that wakes the process is mapped, of a file that cannot shrink. Sequence
//! locks are tried a bounded number of times; numbers are never used as lengths without a bound.

mod asking;
mod bell;
mod board;
#[cfg(test)]
pub mod forged;
pub mod kernel;
pub mod monitor;
mod process;
mod reach;
mod region;
mod target;

pub use asking::{Answer, Purge, Sampling, Silence, now_ms};
pub use board::Board;
pub use process::Process;
pub use region::Region;
pub use target::{Target, Under, may_watch, of_whom};
