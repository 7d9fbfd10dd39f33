//! `neap env`: lines that run every program of a container or a shell under Neap.

use crate::failure::{Failure, shown};
use crate::library::{self, PRELOAD};
use crate::{Outcome, flags};
use clap::ArgMatches;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Prints the lines.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let variables = flags::variables(matches);
    let lines = match matches.get_flag("shell") {
        true => shell_lines(&text(library(matches)?)?, &variables)?,
        false => dockerfile_line(&text(library(matches)?)?, &variables)?,
    };
    crate::output::print(&lines)
}

fn library(matches: &ArgMatches) -> Result<OsString, Failure> {
    let library = match matches.get_one::<OsString>("library") {
        Some(named) => PathBuf::from(named),
        None => library::find()?,
    };
    match (library.is_absolute(), library::is_plain(&library)) {
        (true, true) => Ok(library.into_os_string()),
        (false, _) => Err(Failure::own(format!(
            "{}: give an absolute path",
            shown(&library)
        ))),
        (_, false) => Err(Failure::own(format!(
            "{}: a path with a space, a colon or a dollar sign cannot be preloaded; install the \
             library elsewhere and name that place with --library",
            shown(&library)
        ))),
    }
}

fn dockerfile_line(library: &str, variables: &[(&str, OsString)]) -> Result<String, Failure> {
    let mut line = format!("ENV {PRELOAD}={}", docker_quoted(library));
    for (name, value) in variables {
        line += &format!(" {name}={}", docker_quoted(&text(value.clone())?));
    }
    Ok(line + "\n")
}

/// Keeps existing preloads, after the library.
fn shell_lines(library: &str, variables: &[(&str, OsString)]) -> Result<String, Failure> {
    let library = shell_quoted(library);
    let mut lines = format!("export {PRELOAD}={library}\"${{{PRELOAD}:+:${PRELOAD}}}\"\n");
    for (name, value) in variables {
        lines += &format!("export {name}={}\n", shell_quoted(&text(value.clone())?));
    }
    Ok(lines)
}

/// Whether a word consists of characters without special meaning to a shell and in a Dockerfile.
fn is_simple(word: &str) -> bool {
    !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c))
}

fn docker_quoted(word: &str) -> String {
    if is_simple(word) {
        return word.to_owned();
    }
    let escaped: String = word
        .chars()
        .flat_map(|c| "\\\"$".contains(c).then_some('\\').into_iter().chain([c]))
        .collect();
    format!("\"{escaped}\"")
}

fn shell_quoted(word: &str) -> String {
    match is_simple(word) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Neither kind of line can hold a line break, and copying may damage a value that is not UTF-8.
fn text(value: OsString) -> Result<String, Failure> {
    let shows = shown(Path::new(&value)).to_string();
    let text = value
        .into_string()
        .ok()
        .filter(|text| !text.chars().any(char::is_control));
    text.ok_or_else(|| Failure::own(format!("{shows}: has letters that no such line can hold")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_they_must_be() {
        assert_eq!(docker_quoted("/usr/lib/libneap.so"), "/usr/lib/libneap.so");
        assert_eq!(docker_quoted("a b\"c\\d$e"), r#""a b\"c\\d\$e""#);
        assert_eq!(docker_quoted(""), "\"\"");
        assert_eq!(shell_quoted("64M"), "64M");
        assert_eq!(shell_quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn line_breaks_are_refused() {
        assert!(text(OsString::from("a\nb")).is_err());
    }
}
