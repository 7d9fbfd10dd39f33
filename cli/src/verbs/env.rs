//! `neap env`: lines that run every program of a container or a shell under Neap.

use super::{file, format, refuse_contradictions};
use crate::failure::{Failure, Outcome, shown};
use crate::grammar::{self, EnvFormat};
use crate::library::{self, PRELOAD};
use crate::report::quoted;
use clap::ArgMatches;
use neap_shared::control;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Prints the lines.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let variables = variables(matches)?;
    refuse_contradictions(matches, |wanted| {
        let named = variables.iter().find(|(name, _)| name == wanted);
        named.map(|(_, value)| value.clone())
    })?;
    let library = text(library(matches)?.into_os_string())?;
    let lines = match format(matches) {
        EnvFormat::Shell => shell_lines(&library, &variables)?,
        EnvFormat::Dockerfile => dockerfile_line(&library, &variables)?,
    };
    crate::output::print(&lines)
}

/// Those of the options, and then those that are given by name.
fn variables(matches: &ArgMatches) -> Result<Vec<(String, OsString)>, Failure> {
    let options = grammar::variables(matches).into_iter();
    let mut all: Vec<_> = options
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let words = matches.get_many::<OsString>("VARIABLE=VALUE");
    for word in words.into_iter().flatten() {
        let (name, value) = named(word)?;
        all.retain(|(other, _)| *other != name);
        all.push((name, value));
    }
    Ok(all)
}

/// A variable and its value. One of the library's must suit it.
fn named(word: &OsStr) -> Result<(String, OsString), Failure> {
    let refused = |why: &str| failure!("{}: {why}", shown(word));
    let text = word.to_str().unwrap_or_default();
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| is_name(name))
        .ok_or_else(|| refused("not a variable; write NAME=VALUE"))?;
    if name.starts_with(control::PREFIX) {
        let option = control::find(name.as_bytes());
        let option = option.ok_or_else(|| refused("Neap has no such variable"))?;
        control::parse(option.kind, value.as_bytes())
            .map_err(|rejected| refused(&rejected.to_string()))?;
    }
    Ok((name.to_owned(), value.into()))
}

fn is_name(word: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !word.is_empty()
        && word.chars().all(is_letter)
        && !word.starts_with(|c: char| c.is_ascii_digit())
}

fn library(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    let library = match file(matches, "library") {
        Some(named) => named,
        None => found()?,
    };
    match (library.is_absolute(), library::is_plain(&library)) {
        (true, true) => Ok(library),
        (false, _) => Err(failure!("{}: give an absolute path", shown(&library))),
        (_, false) => Err(failure!(
            "{}: a path with a space, a colon or a dollar sign cannot be preloaded; install the \
             library elsewhere and name that place with --library",
            shown(&library)
        )),
    }
}

/// The library of this program. Says what to do if the next build replaces it.
fn found() -> Result<PathBuf, Failure> {
    let library = library::find()?;
    if library::is_of_a_build(&library) {
        say!(
            "note: {} is a development build, which the next build replaces; for a library to \
             install, run ci/dist.sh, or ci/release.sh for packages, and name its place: neap env \
             --library /usr/local/lib/libneap.so",
            quoted(&library)
        );
    }
    Ok(library)
}

fn dockerfile_line(library: &str, variables: &[(String, OsString)]) -> Result<String, Failure> {
    let mut line = format!("ENV {PRELOAD}={}", docker_quoted(library));
    for (name, value) in variables {
        line += &format!(" {name}={}", docker_quoted(&text(value.clone())?));
    }
    Ok(line + "\n")
}

/// Keeps existing preloads, after the library.
fn shell_lines(library: &str, variables: &[(String, OsString)]) -> Result<String, Failure> {
    let library = quoted(library);
    let mut lines = format!("export {PRELOAD}={library}\"${{{PRELOAD}:+:${PRELOAD}}}\"\n");
    for (name, value) in variables {
        lines += &format!("export {name}={}\n", quoted(&text(value.clone())?));
    }
    Ok(lines)
}

fn docker_quoted(word: &str) -> String {
    // Without special meaning in a Dockerfile.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let escaped: String = word
        .chars()
        .flat_map(|c| "\\\"$".contains(c).then_some('\\').into_iter().chain([c]))
        .collect();
    format!("\"{escaped}\"")
}

/// Neither kind of line can hold a line break, and copying may damage a value that is not UTF-8.
fn text(value: OsString) -> Result<String, Failure> {
    let shows = shown(Path::new(&value)).to_string();
    let text = value
        .into_string()
        .ok()
        .filter(|text| !text.chars().any(char::is_control));
    text.ok_or_else(|| failure!("{shows}: has letters that no such line can hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_they_must_be() {
        assert_eq!(docker_quoted("/usr/lib/libneap.so"), "/usr/lib/libneap.so");
        assert_eq!(docker_quoted("a b\"c\\d$e"), r#""a b\"c\\d\$e""#);
        assert_eq!(docker_quoted(""), "\"\"");
        assert_eq!(quoted("64M"), "64M");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn line_breaks_are_refused() {
        assert!(text(OsString::from("a\nb")).is_err());
    }
}
