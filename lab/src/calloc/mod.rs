//! The campaign of `calloc` and `free`: sizes and touch patterns under every allocator.
//!
//! | file | contents |
//! |---|---|
//! | `cells` | sizes, patterns and allocators, as data, and their selection |
//! | `measure` | one timed process and one accounting process of a cell |
//! | `campaign` | interleaved rounds within a time budget |
//! | `record`, `summary` | the CSV file, and medians over its rounds |
//! | `tables`, `picture` | for people |

pub mod campaign;
pub mod cells;
pub mod measure;
pub mod picture;
pub mod record;
pub mod summary;
pub mod tables;
