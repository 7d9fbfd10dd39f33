//! Size classes: what the current ones waste on a program's requests, and which ones would suit it.
//!
//! | file | contents |
//! |---|---|
//! | `histogram` | the requested sizes, and the file that keeps them |
//! | `plan` | the best table of a given number of classes for a histogram |
//! | `waste` | a table's waste by class |
//! | `page` | a plan compared with the built-in classes, as text and as JSON |

mod histogram;
mod page;
mod plan;
pub mod waste;

pub use histogram::Histogram;
pub use page::{Comparison, json, text};
pub use plan::{MOST, best, built_in, least};

use std::fmt::Write;

/// The file of a table, in the format that the library reads.
pub fn file(sizes: &[u16], program: &str) -> String {
    let mut text = format!(
        "{}\n# for {}, by neap tune\n",
        neap_shared::classes::FIRST_LINE,
        program.replace(char::is_control, "?")
    );
    for size in sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{size}");
    }
    text
}
