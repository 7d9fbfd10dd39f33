//! Memory errors: which of 116 wrong steps does an allocator stop before they do harm?
//!
//! The situations are those that mimalloc-bench's 116 security programs cover, class by class. The
//! programs are this project's own (`lab/security`): no package registry has the originals.
//!
//! | file | contents |
//! |---|---|
//! | `situations` | the 116 situations as data |
//! | `programs` | compiles the two programs and runs one situation |
//! | `outcome` | what became of a wrong step |
//! | `contenders` | the allocators, and Neap in each of its modes |
//! | `campaign` | the experiment |
//! | `tables` | the table of a record, class by class |

pub mod campaign;
mod contenders;
mod outcome;
mod programs;
mod situations;
mod tables;
