//! The third published experiment: what a block takes beyond the requested bytes, and how much each
//! table of size classes wastes.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | the size classes of Go and of the peers, as data, each with its source |
//! | `waste` | a table's waste over all sizes, and over the sizes that a program requested |
//! | `recorded` | the sizes that real programs requested |
//! | `sizes` | the programs, and how their sizes are read |
//! | `recording` | the sizes of all programs, for the record |
//! | `engines` | the peers' processes, and the Rust program with Neap built in |
//! | `measure` | their figures: usable bytes, distances, boxes |
//! | `campaign` | all of it, part by part |
//! | `picture` | waste by size, one panel per table |

pub mod campaign;
mod engines;
mod measure;
mod picture;
mod recorded;
pub mod recording;
mod sizes;
mod tables;
mod waste;
