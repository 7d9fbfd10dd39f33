//! The library's options as flags and as environment variables, and the values of all options.

use clap::builder::{OsStringValueParser, PossibleValuesParser, StringValueParser};
use clap::builder::{TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use neap_shared::control::{self, Declaration, Flag, Group, Kind, OPTIONS, Value};
use std::ffi::OsString;
use std::time::Duration;

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
        Flag::Value => matches.get_one::<OsString>(option.name).cloned(),
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
    ["--stats", "--record", "--profile"].contains(&word)
}

fn argument(option: &'static Declaration) -> Option<Arg> {
    let argument = Arg::new(option.name).help(help(option));
    Some(match option.flag {
        Flag::On => argument.long(option.name).action(ArgAction::SetTrue),
        Flag::Off => argument
            .long(format!("no-{}", option.name))
            .action(ArgAction::SetTrue),
        Flag::Value => valued(argument, option),
        Flag::Through(_) | Flag::Absent => return None,
    })
}

fn valued(argument: Arg, option: &'static Declaration) -> Arg {
    let argument = argument
        .long(option.name)
        .value_name(value_name(option.kind))
        // So that the error states the range, instead of how to pass an argument that begins with a
        // dash.
        .allow_negative_numbers(true)
        .value_parser(parser(option.kind));
    match option.kind {
        Kind::Path => argument.value_hint(ValueHint::FilePath),
        _ => argument,
    }
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
        (_, Kind::Choice(_)) => format!("{doc} [default: {}]", option.default),
        (_, kind) if option.default.is_empty() => format!("{doc} [{kind:#}]"),
        (_, kind) => format!("{doc} [{kind:#}; default: {}]", option.default),
    }
}

/// With a lower-case first letter. The doc of a switch is an imperative: "Keep a page of figures".
fn in_a_sentence(doc: &str) -> String {
    let mut letters = doc.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

pub fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Choice(_) => "WORD",
        Kind::Bytes { .. } => "SIZE",
        Kind::Time { .. } => "TIME",
        Kind::Path => "FILE",
        Kind::Socket => "NAME",
    }
}

/// Accepts a value of `kind` and keeps its text, for the variable.
fn parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(OsString::from).into(),
        Kind::Path | Kind::Socket => OsStringValueParser::new().into(),
        Kind::Bytes { .. } | Kind::Time { .. } => StringValueParser::new()
            .try_map(move |text| value(kind, &text).map(|_| OsString::from(&text)))
            .into(),
    }
}

/// Accepts a time from `least` to `most`, in ms.
pub fn time(least: u64, most: u64) -> ValueParser {
    let kind = Kind::Time {
        min: least,
        max: most,
    };
    StringValueParser::new()
        .try_map(move |text| value(kind, &text).map(Duration::from_millis))
        .into()
}

/// A value of `--sample`.
pub fn rate(word: &str) -> Result<u64, String> {
    let option = control::find(b"NEAP_SAMPLE").expect("the option is declared");
    value(option.kind, word)
}

/// A number of bytes or of ms. A time needs its unit, except 0.
fn value(kind: Kind, text: &str) -> Result<u64, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    match control::parse(kind, text.as_bytes()) {
        Ok(Value::Millis(1..)) if is_bare => {
            Err(format!("a time needs its unit: {text}ms or {text}s"))
        }
        Ok(Value::Bytes(number) | Value::Millis(number)) => Ok(number),
        Ok(_) => Err(format!("expected {kind}")),
        Err(rejected) => Err(rejected.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_to_turn_off_say_what_is_not_done() {
        let off = OPTIONS.iter().filter(|option| option.flag == Flag::Off);
        let helps: Vec<String> = off.map(help).collect();
        assert_eq!(helps.len(), 3, "{helps:?}");
        for (help, order) in helps.iter().zip(["put ", "query ", "keep "]) {
            assert!(help.starts_with(&format!("Do not {order}")), "{help}");
        }
    }

    #[test]
    fn rates_take_the_suffixes_of_other_sizes() {
        assert_eq!(rate("65536"), Ok(64 << 10));
        assert_eq!(rate("64K"), rate("65536"));
        assert_eq!(rate("1g"), Ok(1 << 30));
        for wrong in ["", "0", "4095", "2G", "1T", "64KB"] {
            let said = rate(wrong).unwrap_err();
            assert!(said.contains("4K to 1G bytes"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_time_needs_its_unit() {
        let kind = Kind::Time {
            min: 0,
            max: 60_000,
        };
        assert_eq!(value(kind, "250ms"), Ok(250));
        assert_eq!(value(kind, "0"), Ok(0));
        let said = value(kind, "5").unwrap_err();
        assert_eq!(said, "a time needs its unit: 5ms or 5s");
        for wrong in ["", "-1", "NaN", "inf", "1e300", "0.5s", "2m"] {
            let said = value(kind, wrong).unwrap_err();
            assert!(
                said.contains("0 to 1m (unit ms, s, m or h)"),
                "{wrong}: {said}"
            );
        }
    }
}
