//! What it costs on this machine to know whether memory is zero, and to make it so.
//!
//! | file | what it holds |
//! |---|---|
//! | `ways` | the ways, what they find populated, and the sizes, as data |
//! | `block` | memory of a known state |
//! | `pagemap` | the questions to the kernel |
//! | `stores/` | zeros that pass the caches by, a file a processor |
//! | `measure` | a warm-up, and readings of the clock |
//! | `campaign` | every way over every size, within a time budget |
//! | `record`, `tables` | the CSV file, and for people |

mod block;
pub mod campaign;
mod measure;
mod pagemap;
pub mod record;
mod stores;
pub mod tables;
pub mod ways;
