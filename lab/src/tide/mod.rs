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
//! | `campaign` | every run of every engine |
//! | `observed` | a record, read as steps |
//! | `views` | the tables |
//! | `curves` | the picture |

pub mod campaign;
mod curves;
mod engines;
mod follow;
mod go;
mod observed;
mod steps;
mod views;
