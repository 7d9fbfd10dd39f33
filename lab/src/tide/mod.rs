//! The published experiment on the heap, the stacks and the system: five steps that allocate and
//! drop memory, and the resident size after each.
//!
//! | file | contents |
//! |---|---|
//! | `sizes`, `steps` | the amounts, and the order |
//! | `engines` | the rows: a heap, its stacks, a program |
//! | `go` | the write-up's program, in Go |
//! | `protocol` | the lines between the harness and a worker |
//! | `follow` | one process through its steps, observed from outside |
//! | `campaign` | every run of every engine, and the prices |
//! | `arrows` | which part reused whose memory, judged by the measurements |
//! | `record`, `tables`, `json` | the CSV file, the tables and the JSON |
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
