//! The case book: published complaints about memory, reproduced by real programs under every
//! allocator. A case is a directory of `lab/cases`; `docs/cases.md` describes its form.
//!
//! | file | contents |
//! |---|---|
//! | `case` | a case, as its directory says it |
//! | `home` | where a case's files are, and its programs' variables |
//! | `install` | obtains what a case needs |
//! | `allocators` | the allocators, with their settings |
//! | `tree` | the processes of a run, seen from outside: memory, processor time, end |
//! | `identity` | which library's malloc they use |
//! | `party` | one of a run's two programs |
//! | `observe` | one run, from its start to its end |
//! | `figures` | what a run's samples say |
//! | `standing` | Neap among the allocators of a case |
//! | `views` | the tables and the picture |
//! | `campaign` | every case under every allocator |

mod allocators;
pub mod campaign;
pub(crate) mod case;
mod figures;
pub(crate) mod home;
mod identity;
pub(crate) mod install;
mod observe;
pub(crate) mod party;
mod standing;
pub(crate) mod tree;
mod views;
