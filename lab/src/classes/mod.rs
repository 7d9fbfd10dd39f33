//! The third published experiment: what a block takes beside what was asked for, and which size classes lose how much.
//!
//! | file | what it holds |
//! |---|---|
//! | `tables` | the size classes of Go and of the peers, as data, each with its source |
//! | `waste` | what a table loses over all sizes, and over those that a program asked for |
//! | `recorded` | the sizes that real programs asked for |
//! | `sizes` | the programs, and how their sizes are recorded |
//! | `engines` | the peers' processes, and the Rust program that has Neap inside |
//! | `measure` | what these tell: usable bytes, distances, boxes |
//! | `go` | the write-up's benchmark, run by the Go that is here |
//! | `campaign` | all of it, part by part |
//! | `picture` | waste over size, a panel a table |

pub mod campaign;
mod engines;
mod go;
mod measure;
pub mod picture;
pub mod recorded;
pub mod sizes;
pub mod tables;
mod waste;

pub use engines::Engine;
