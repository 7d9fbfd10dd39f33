//! Size classes: what those in force waste on the sizes that a program asks for, and which it would have liked.
//!
//! | file | what is in it |
//! |---|---|
//! | `histogram` | the sizes that were asked for, and the file that keeps them |
//! | `plan` | the best table of so many classes for a histogram |
//! | `waste` | what a table wastes, class by class |
//! | `page` | a plan beside what is built in, as text and as JSON |

mod histogram;
mod page;
mod plan;
pub mod waste;

pub use histogram::Histogram;
pub use page::{Comparison, json, text};
pub use plan::{MOST, best, built_in, least};

use std::fmt::Write;

/// The file of a table, as the library reads it.
pub fn file(sizes: &[u16], program: &str) -> String {
    let mut text = format!(
        "{}\n# for {}, by neap tune\n",
        neap::classes::FIRST_LINE,
        program.replace(char::is_control, "?")
    );
    for size in sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{size}");
    }
    text
}
