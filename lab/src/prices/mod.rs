//! The cost of detecting zeroed memory, and of zeroing it, on this machine.
//!
//! | file | contents |
//! |---|---|
//! | `ways` | the ways, what they find populated, and the sizes, as data |
//! | `block` | memory of a known state |
//! | `pagemap` | queries to the kernel |
//! | `stores/` | zeroing stores that bypass the caches, one file per processor |
//! | `measure` | a warm-up, then readings of the clock |
//! | `campaign` | every way over every size, within a time budget, and the tables |

mod block;
pub mod campaign;
mod measure;
mod pagemap;
mod stores;
mod ways;
