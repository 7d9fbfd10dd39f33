//! Options and operands, by what they take.

use super::values;
use clap::builder::{IntoResettable, OsStringValueParser, PossibleValuesParser, StyledStr};
use clap::builder::{TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ValueHint, value_parser};
use std::ffi::OsString;

/// The longest time on a command line, in ms: about eleven days.
pub const LONGEST_MS: u64 = 1_000_000_000;

/// An option that takes nothing.
pub fn switch(name: &'static str, help: impl IntoResettable<StyledStr>) -> Arg {
    Arg::new(name)
        .long(name)
        .help(help)
        .action(ArgAction::SetTrue)
}

/// The path of a file.
pub fn file(name: &'static str, help: impl IntoResettable<StyledStr>) -> Arg {
    let argument = operand(name, help).long(name);
    argument.value_hint(ValueHint::FilePath).value_name("FILE")
}

/// The path of a file after an equals sign, or nothing.
pub fn optional_file(name: &'static str, help: &'static str) -> Arg {
    file(name, help)
        .value_parser(OsStringValueParser::new().try_map(no_format))
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("")
}

/// One of these words.
pub fn words(name: &'static str, words: &'static [&'static str], help: &'static str) -> Arg {
    let argument = Arg::new(name).long(name).help(help).value_name("WORD");
    argument.value_parser(PossibleValuesParser::new(words))
}

/// A time in this range of ms.
pub fn time(name: &'static str, range: [u64; 2], help: &'static str) -> Arg {
    valued(name, "TIME", values::time(range[0], range[1]), help)
}

/// Bytes between two samples.
pub fn rate(name: &'static str, help: &'static str) -> Arg {
    valued(name, "SIZE", ValueParser::new(values::rate), help)
}

/// A number of at least 1.
pub fn number(name: &'static str, help: &'static str) -> Arg {
    valued(name, "N", value_parser!(u64).range(1..).into(), help)
}

/// An option with another value. It takes negative numbers, so that the error states the range,
/// instead of how to pass an argument that begins with a dash.
pub fn valued(
    name: &'static str,
    value: &'static str,
    parser: ValueParser,
    help: impl IntoResettable<StyledStr>,
) -> Arg {
    let argument = Arg::new(name).long(name).help(help).value_name(value);
    argument.value_parser(parser).allow_negative_numbers(true)
}

/// A format is more likely meant than a file of that name, which may have a directory: `./json`.
fn no_format(file: OsString) -> Result<OsString, String> {
    match file.to_str() {
        Some(word @ ("text" | "json")) => Err(format!(
            "this option takes a file; for this format, use --stats --format {word}"
        )),
        Some("off") => {
            Err("this option takes a file; to write no statistics, leave it out".to_owned())
        }
        _ => Ok(file),
    }
}

/// A word without dashes.
pub fn operand(name: &'static str, help: impl IntoResettable<StyledStr>) -> Arg {
    Arg::new(name)
        .help(help)
        .value_parser(value_parser!(OsString))
}

/// A command line: all words from here on.
pub fn program(name: &'static str, help: &'static str) -> Arg {
    let hint = ValueHint::CommandWithArguments;
    operand(name, help)
        .num_args(1..)
        .value_hint(hint)
        .trailing_var_arg(true)
}
