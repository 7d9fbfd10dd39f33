//! The command line. Clap's commands, help, man pages, completions and `docs/options.md` all derive
//! from two tables: [`neap`] here, and the library's `OPTIONS`.
//!
//! | file | contents |
//! |---|---|
//! | `verbs` | the table of verbs |
//! | `arguments` | options and operands, the values that they accept, the library's options |
//! | `formats` | the words of `--format` |
//! | `tests` | `docs/options.md`, which is generated from the tables |
//!
//! Tips for mistyped words are here as well.

mod arguments;
mod formats;
#[cfg(test)]
mod tests;
mod verbs;

pub use arguments::{takes_an_optional_value, variables, without_credentials};
pub use formats::{EnvFormat, ProfileFormat, ReportFormat, StatFormat, TextOrJson, TopFormat};
pub use verbs::{OVERVIEW, neap};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::env;

/// Clap's error about a wrong command line, with a tip that suits the verb.
pub fn explained(mut error: clap::Error) -> clap::Error {
    hide_credentials(&mut error);
    let verb = env::args_os().nth(1).unwrap_or_default();
    let verb = verb.to_string_lossy().into_owned();
    let Some(word) = unknown(&error) else {
        return error;
    };
    // Clap's own tip would have the program called like the mistyped option.
    error.remove(ContextKind::Suggested);
    if ["run", "tune"].contains(&verb.as_str()) {
        let tip =
            format!("an option of the program goes after its name: neap {verb} -- PROGRAM {word}");
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Takes the name and the password out of a refused value of `--push`.
fn hide_credentials(error: &mut clap::Error) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let is_url = option.starts_with("--push ");
    if let (true, Some(ContextValue::String(url))) = (is_url, error.get(ContextKind::InvalidValue))
    {
        let url = ContextValue::String(without_credentials(url));
        error.insert(ContextKind::InvalidValue, url);
    }
}

/// The option that the verb does not know.
fn unknown(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => Some(word.clone()),
        _ => None,
    }
}
