//! The command line. Clap's commands, help, man pages, completions and `docs/options.md` all derive
//! from two tables: [`neap`] here, and the library's `OPTIONS`.
//!
//! | file | contents |
//! |---|---|
//! | `words` | options and operands, by what they take |
//! | `verbs` | the table of verbs |
//! | `values` | the values of options |
//! | `library` | the library's options as flags and variables |
//! | `refused` | tips for mistyped words, no password in a message |
//! | `tests` | `docs/options.md`, which is generated from the tables |

mod library;
mod refused;
#[cfg(test)]
mod tests;
mod values;
mod verbs;
mod words;

pub use library::{takes_an_optional_value, variables};
pub use refused::explained;
pub use values::without_credentials;
pub use verbs::{OVERVIEW, neap};
