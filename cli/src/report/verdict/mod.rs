//! What is large, why, and what to do about it.
//!
//! Every finding must pass two thresholds: a share of the whole, and a floor of [`finding::FLOOR`]
//! bytes, so that small programs get no complaints. Memory that stays and grows has a lower floor,
//! [`finding::SMALL_FLOOR`], and a higher share. Valkey's `MEMORY DOCTOR` is the model. Figures of
//! the heap come only through [`super::known`].
//!
//! | file | what it judges |
//! |---|---|
//! | `heap` | the lines of the ledger at the peak |
//! | `places` | the sites of the profile |
//! | `growth` | the heap over time |
//! | `memory` | memory errors that guarded samples found |
//! | `opening` | the first paragraph |
//! | `judge` | all of these |

mod finding;
mod growth;
mod heap;
mod judge;
mod memory;
mod opening;
mod places;

pub use judge::{Verdict, judge};

#[cfg(test)]
mod tests;
