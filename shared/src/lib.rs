#![cfg_attr(not(test), no_std)]
//! What the library and its tools exchange.
//!
//! The library writes these data, and the command `neap`, the lab and the programs' tests read
//! them. Everything here is plain data and its written forms: nothing allocates, takes a lock or
//! makes a system call.
//!
//! | module | what |
//! |---|---|
//! | [`status_page`] | the memory file through which observers read a process's figures and make requests |
//! | [`sites`] | the memory file that holds a heap profile |
//! | [`pprof`] | what the library's and the command's pprof files have in common |
//! | [`stats`] | the figures of the heap at one moment, as text and as JSON |
//! | [`ledger`] | the line to which each byte of the heap belongs |
//! | [`control`] | the options |
//! | [`pagemap`] | the structures of the kernel's `PAGEMAP_SCAN` |
//! | [`userfaultfd`] | the kernel's numbers for write protection |
//! | [`classes`] | the built-in size classes, and a file of others |
//! | [`areas`] | what each mapping of any process holds |
//! | [`sanitizers`](mod@sanitizers) | the sanitizers that replace `malloc` |
//! | [`units`] | the slice |

pub mod areas;
pub mod classes;
pub mod control;
pub mod ledger;
pub mod pagemap;
pub mod pprof;
pub mod sanitizers;
pub mod sites;
pub mod stats;
pub mod status_page;
pub mod units;
pub mod userfaultfd;
