//! The library's options as flags and as environment variables.

use super::values::{parser, value_name};
use super::words::{file, switch, valued};
use clap::{Arg, ArgMatches};
use neap_shared::control::{Declaration, Flag, Group, Kind, OPTIONS};
use std::ffi::OsString;

/// The flags of a group's options.
pub fn arguments(group: Group) -> impl Iterator<Item = Arg> {
    let of_group = OPTIONS.iter().filter(move |option| option.group == group);
    of_group.filter_map(argument)
}

/// The variables that the given flags set.
pub fn variables(matches: &ArgMatches) -> Vec<(&'static str, OsString)> {
    OPTIONS
        .iter()
        .filter_map(|option| Some((option.env, given(option, matches)?)))
        .collect()
}

fn given(option: &Declaration, matches: &ArgMatches) -> Option<OsString> {
    let is_given = || matches.get_flag(option.name);
    match option.flag {
        Flag::Value | Flag::Optional(_) => matches.get_one::<OsString>(option.name).cloned(),
        Flag::On => is_given().then(|| OsString::from("1")),
        Flag::Off => is_given().then(|| OsString::from("0")),
        Flag::Through(_) => through(option, matches),
        Flag::Absent => None,
    }
}

/// `--stats`, `--stats=FILE` and `--format`.
fn through(option: &Declaration, matches: &ArgMatches) -> Option<OsString> {
    let file = matches.get_one::<OsString>("stats")?;
    match option.kind {
        Kind::Path => Some(file.clone()).filter(|file| !file.is_empty()),
        _ => Some(stats_format(matches).into()),
    }
}

/// The form of the statistics. In `neap env`, `--format` is the form of the line.
fn stats_format(matches: &ArgMatches) -> &str {
    let word = matches.get_one::<String>("format").map(String::as_str);
    word.filter(|word| *word == "json").unwrap_or("text")
}

/// Whether a word is an option that takes its value only after an equals sign.
pub fn takes_an_optional_value(word: &str) -> bool {
    ["--stats", "--record", "--profile", "--guard", "--harden"].contains(&word)
}

fn argument(option: &'static Declaration) -> Option<Arg> {
    let (name, help) = (option.name, help(option));
    Some(match (option.flag, option.kind) {
        (Flag::On, _) => switch(name, help),
        (Flag::Off, _) => switch(name, help).long(format!("no-{name}")),
        (Flag::Value, Kind::Path) => file(name, help),
        (Flag::Value, kind) => valued(name, value_name(kind), parser(kind), help),
        (Flag::Optional(usual), kind) => valued(name, value_name(kind), parser(kind), help)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(usual),
        (Flag::Through(_) | Flag::Absent, _) => return None,
    })
}

fn help(option: &Declaration) -> String {
    // A flag of a switch has one meaning, and the doc's further sentences explain the variable's.
    let doc = match (option.flag, option.doc.split_once(". ")) {
        (Flag::Off, Some((first, _))) => first,
        _ => option.doc.trim_end_matches('.'),
    };
    match (option.flag, option.kind) {
        (Flag::Off, _) => format!("Do not {}", in_a_sentence(doc)),
        (Flag::On, _) | (_, Kind::Path | Kind::Socket) => doc.to_owned(),
        (_, Kind::Names(_)) => format!("{doc} [{}]", option.kind),
        (_, Kind::Choice(_)) => format!("{doc} [default: {}]", option.default),
        (_, kind) if option.default.is_empty() => format!("{doc} [{kind:#}]"),
        (_, kind) => format!("{doc} [{kind:#}; default: {}]", option.default),
    }
}

/// With a lower-case first letter. The doc of a switch is an imperative: "Keep a status page".
pub fn in_a_sentence(doc: &str) -> String {
    let mut letters = doc.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the library takes.
    fn examples(kind: Kind) -> Vec<String> {
        match kind {
            Kind::Choice(words) => words.iter().copied().map(str::to_owned).collect(),
            Kind::Names(words) => vec!["0".to_owned(), "1".to_owned(), words.join(",")],
            Kind::Bytes { min, max } => vec![min.to_string(), max.to_string()],
            Kind::Time { min, max } => vec![format!("{min}ms"), format!("{max}ms")],
            Kind::Interval { min, .. } => vec!["all".to_owned(), format!("{min}ms")],
            Kind::Path | Kind::Socket => vec!["name".to_owned()],
        }
    }

    #[test]
    fn flags_take_what_the_library_takes() {
        for option in OPTIONS {
            let Some(flag) = argument(option) else {
                continue;
            };
            let name = flag.get_long().unwrap().to_owned();
            let command = clap::Command::new("neap").arg(flag);
            let given = |word: &str| {
                let matches = command.clone().try_get_matches_from(["neap", word]);
                let matches = matches.unwrap_or_else(|error| panic!("{word}: {error}"));
                given(option, &matches).unwrap()
            };
            if let Flag::Optional(usual) = option.flag {
                assert_eq!(given(&format!("--{name}")), usual);
            }
            if let Flag::Optional(_) | Flag::Value = option.flag {
                for value in examples(option.kind) {
                    assert_eq!(given(&format!("--{name}={value}")), value.as_str());
                }
            }
        }
    }

    #[test]
    fn switches_to_turn_off_say_what_is_not_done() {
        let off = OPTIONS.iter().filter(|option| option.flag == Flag::Off);
        let helps: Vec<String> = off.map(help).collect();
        assert_eq!(helps.len(), 3, "{helps:?}");
        for (help, order) in helps.iter().zip(["put ", "query ", "keep "]) {
            assert!(help.starts_with(&format!("Do not {order}")), "{help}");
        }
    }
}
