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
//! | `observed` | a record, read as steps |
//! | `views` | the tables |
//! | `curves`, `diagram` | the pictures |

mod arrows;
pub mod campaign;
mod curves;
mod diagram;
mod engines;
mod follow;
mod go;
mod observed;
pub mod protocol;
pub mod sizes;
mod steps;
mod views;
