//! Size classes: what the current ones waste on a program's requests, and which ones would suit it.
//!
//! | file | contents |
//! |---|---|
//! | `histogram` | the requested sizes, and the file that keeps them |
//! | `plan` | the best table of a given number of classes for a histogram, and its file |
//! | `waste` | a table's waste by class, and a plan compared with the built-in classes |

mod histogram;
mod plan;
mod waste;

pub use histogram::Histogram;
#[cfg(test)]
pub use plan::least;
pub use plan::{MOST, absolute, best, file};
pub use waste::{Comparison, json};
