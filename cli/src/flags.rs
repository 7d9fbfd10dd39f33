//! The options of `neap_shared::control` as command-line flags and as environment variables.

use clap::builder::{
    OsStringValueParser, PossibleValuesParser, StringValueParser, TypedValueParser, ValueParser,
};
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use neap_shared::control::{self, Declaration, Flag, Kind, OPTIONS};
use std::ffi::OsString;

/// One flag for every declared option.
pub fn arguments() -> impl Iterator<Item = Arg> {
    let has_flag = |option: &&Declaration| option.flag() != Flag::Absent;
    OPTIONS.iter().filter(has_flag).map(argument)
}

/// The variables that the given flags set.
pub fn variables(matches: &ArgMatches) -> Vec<(&'static str, OsString)> {
    OPTIONS
        .iter()
        .filter_map(|option| Some((option.env, given(option, matches)?)))
        .collect()
}

fn given(option: &Declaration, matches: &ArgMatches) -> Option<OsString> {
    match option.flag() {
        Flag::Off => matches.get_flag(option.name).then(|| OsString::from("0")),
        Flag::Absent => None,
        Flag::Value | Flag::Optional(_) => matches.get_one::<OsString>(option.name).cloned(),
    }
}

/// Whether a word is an option that takes its value only after an equals sign.
pub fn takes_an_optional_value(word: &str) -> bool {
    let is_optional = |option: &Declaration| matches!(option.flag(), Flag::Optional(_));
    word.strip_prefix("--").is_some_and(|name| {
        name == "profile"
            || OPTIONS
                .iter()
                .any(|option| option.name == name && is_optional(option))
    })
}

fn argument(option: &'static Declaration) -> Arg {
    let arg = Arg::new(option.name).help(help(option));
    match option.flag() {
        Flag::Off => arg
            .long(format!("no-{}", option.name))
            .action(ArgAction::SetTrue),
        Flag::Value | Flag::Absent => valued(arg, option),
        Flag::Optional(bare) => valued(arg, option)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(bare),
    }
}

fn valued(arg: Arg, option: &'static Declaration) -> Arg {
    let arg = arg
        .long(option.name)
        .value_name(unit(option.kind))
        // So that the error states the range, instead of how to pass an argument that begins with a
        // dash.
        .allow_negative_numbers(true)
        .value_parser(parser(option.kind));
    match option.kind {
        Kind::Path => arg.value_hint(ValueHint::FilePath),
        _ => arg,
    }
}

fn help(option: &Declaration) -> String {
    match (option.flag(), option.kind) {
        (Flag::Off, _) => format!("Do not {}", in_a_sentence(option.doc)),
        (_, Kind::Path | Kind::Socket) => option.doc.to_owned(),
        (_, Kind::Choice(_)) => format!("{} [default: {}]", option.doc, option.default),
        (_, kind) if option.default.is_empty() => format!("{} [{kind}]", option.doc),
        (_, kind) => format!("{} [{kind}; default: {}]", option.doc, option.default),
    }
}

/// With a lower-case first letter. The doc of a switch is an imperative: "Keep a page of figures".
fn in_a_sentence(doc: &str) -> String {
    let mut letters = doc.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Choice(_) => "WORD",
        Kind::Bytes { .. } => "BYTES",
        Kind::Millis { .. } => "MS",
        Kind::Path => "FILE",
        Kind::Socket => "NAME",
    }
}

fn parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(OsString::from).into(),
        Kind::Path | Kind::Socket => OsStringValueParser::new().into(),
        Kind::Bytes { .. } | Kind::Millis { .. } => StringValueParser::new()
            .try_map(move |text| {
                control::parse(kind, text.as_bytes()).map(|_| OsString::from(&text))
            })
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_to_turn_off_say_what_is_not_done() {
        let off = OPTIONS.iter().filter(|option| option.flag() == Flag::Off);
        let helps: Vec<String> = off.map(help).collect();
        assert!(helps.len() > 3, "{helps:?}");
        for (help, order) in helps.iter().zip(["run ", "query ", "keep ", "put "]) {
            assert!(help.starts_with(&format!("Do not {order}")), "{help}");
        }
    }
}
