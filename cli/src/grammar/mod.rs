//! The command line. Clap's commands, help, man pages, completions and `docs/options.md` all derive
//! from two tables: [`VERBS`] here, and the library's `OPTIONS`.
//!
//! | file | contents |
//! |---|---|
//! | `words` | what a verb, an operand and an option are |
//! | `verbs` | the table of verbs |
//! | `command` | the tables as clap's commands |
//! | `library` | the library's options as flags and variables |
//! | `refused` | words of earlier releases, and tips for mistyped ones |
//! | `tests` | `docs/options.md`, which is generated from the tables |

mod command;
mod library;
mod refused;
#[cfg(test)]
mod tests;
mod verbs;
mod words;

pub use command::neap;
pub use library::{takes_an_optional_value, variables};
pub use refused::explained;
pub use verbs::OVERVIEW;
