//! Size classes: what the current ones waste on a program's requests, and which ones would suit it.
//!
//! | file | contents |
//! |---|---|
//! | `histogram` | the requested sizes, and the file that keeps them |
//! | `plan` | the best table of a given number of classes for a histogram |
//! | `file` | the file of a table |
//! | `waste` | a table's waste by class |
//! | `page` | a plan compared with the built-in classes, as text and as JSON |

mod file;
mod histogram;
mod page;
mod plan;
pub mod waste;

pub use file::{absolute, file};
pub use histogram::Histogram;
pub use page::{Comparison, json, text};
#[cfg(test)]
pub use plan::least;
pub use plan::{MOST, best};
