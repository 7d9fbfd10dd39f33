//! The campaign of `calloc` and `free`: sizes and touch patterns under every allocator.
//!
//! | file | contents |
//! |---|---|
//! | `cells` | sizes and patterns, as data, and their selection |
//! | `measure` | one timed process and one accounting process of a cell |
//! | `campaign` | all cells in interleaved rounds |
//! | `views` | the tables and the picture |

pub mod campaign;
mod cells;
pub mod measure;
mod views;
