//! The published experiment on the heap, the stacks and the system: five steps of memory that
//! comes and goes, and what is resident after each.
//!
//! | file | what it holds |
//! |---|---|
//! | `sizes`, `steps` | how much, and in what order |
//! | `engines` | the rows: a heap, whose stacks, a program |
//! | `go` | the program of the write-up, in Go |
//! | `protocol` | the lines between the harness and a worker |
//! | `follow` | one process through its steps, watched from outside |
//! | `campaign` | every run of every engine, and the prices |
//! | `arrows` | who took over whose memory, judged by what was measured |
//! | `record`, `tables`, `json` | the CSV file, the tables for people and for programs |
//! | `curves`, `diagram` | the pictures |

pub mod arrows;
pub mod campaign;
pub mod curves;
pub mod diagram;
pub mod engines;
pub mod follow;
mod go;
pub mod json;
pub mod protocol;
pub mod record;
pub mod sizes;
pub mod steps;
pub mod tables;
