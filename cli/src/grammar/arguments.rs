//! Options and operands by what they take, the values that they accept, and the library's options
//! as flags and as environment variables.

use super::formats::TextOrJson;
use crate::choice::Choice;
use clap::builder::{
    IntoResettable, OsStringValueParser, PossibleValuesParser, StringValueParser, StyledStr,
    TypedValueParser, ValueParser,
};
use clap::{Arg, ArgAction, ArgMatches, ValueHint, value_parser};
use neap_shared::control::{self, Declaration, Flag, Group, Kind, OPTIONS, Value};
use neap_shared::status_page::Guards;
use std::ffi::OsString;
use std::time::Duration;

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
pub fn choice<C: Choice>(name: &'static str, help: &'static str) -> Arg {
    let item = |word: String| C::of_word(&word).expect("clap has taken one of the words");
    let argument = Arg::new(name).long(name).help(help).value_name("WORD");
    argument.value_parser(PossibleValuesParser::new(C::WORDS).map(item))
}

/// A time in this range of ms.
pub fn time(name: &'static str, range: [u64; 2], help: &'static str) -> Arg {
    valued(name, "TIME", time_parser(range), help)
}

/// Bytes between two samples.
pub fn rate(name: &'static str, help: &'static str) -> Arg {
    valued(name, "SIZE", ValueParser::new(bytes_between_samples), help)
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

/// The name of a value of `kind` in the help.
pub fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Choice(_) => "WORD",
        Kind::Names(_) => "NAMES",
        Kind::Bytes { .. } => "SIZE",
        Kind::Time { .. } | Kind::Interval { .. } => "TIME",
        Kind::Path => "FILE",
        Kind::Socket => "NAME",
    }
}

/// Accepts a value of `kind` and keeps its text, for the variable.
pub fn parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(OsString::from).into(),
        Kind::Path | Kind::Socket => OsStringValueParser::new().into(),
        Kind::Names(_) | Kind::Bytes { .. } | Kind::Time { .. } | Kind::Interval { .. } => {
            StringValueParser::new()
                .try_map(move |text| value(kind, &text).map(|_| OsString::from(&text)))
                .into()
        }
    }
}

/// Accepts a time from `least` to `most`, in ms.
fn time_parser([min, max]: [u64; 2]) -> ValueParser {
    let kind = Kind::Time { min, max };
    StringValueParser::new()
        .try_map(move |text| value(kind, &text).map(Duration::from_millis))
        .into()
}

/// A value of `--sample`.
fn bytes_between_samples(word: &str) -> Result<u64, String> {
    let option = control::find(b"NEAP_SAMPLE").expect("the option is declared");
    value(option.kind, word)
}

/// A value of `neap guard --interval`.
pub fn guards(word: &str) -> Result<Guards, String> {
    let option = control::find(b"NEAP_GUARD").expect("the option is declared");
    match word {
        "off" => Ok(Guards::Off),
        word => match value(option.kind, word) {
            Ok(0) => Ok(Guards::All),
            Ok(ms) => Ok(Guards::Every(ms)),
            Err(why) => Err(why.replacen("all, or", "off, all, or", 1)),
        },
    }
}

/// A value of `--push`.
pub fn server(url: &str) -> Result<String, String> {
    let server = url.strip_prefix("http://").ok_or_else(|| match url {
        url if url.starts_with("https://") => {
            "neap does not speak TLS: push to an agent on this machine, such as Grafana Alloy, \
             which does"
        }
        _ => "expected http://HOST:PORT",
    })?;
    let uri = url.parse::<ureq::http::Uri>();
    if uri.is_ok_and(|uri| uri.query().is_none()) && !server.contains('#') {
        Ok(url.to_owned())
    } else {
        Err("expected http://HOST:PORT".to_owned())
    }
}

/// A URL for messages: without a name and a password. These may have a slash or an @ by mistake.
pub fn without_credentials(url: &str) -> String {
    let schemes = ["http://", "https://"];
    let scheme = schemes.into_iter().find(|scheme| url.starts_with(scheme));
    match url.rsplit_once('@') {
        Some((_, server)) => scheme.unwrap_or_default().to_owned() + server,
        None => url.to_owned(),
    }
}

/// A number of bytes or of ms, or the bits of names. A time needs its unit, except 0.
fn value(kind: Kind, text: &str) -> Result<u64, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    match control::parse(kind, text.as_bytes()) {
        Ok(Value::Millis(1..)) if is_bare => {
            Err(format!("a time needs its unit: {text}ms or {text}s"))
        }
        Ok(Value::Bytes(number) | Value::Millis(number)) => Ok(number),
        Ok(Value::Names(bits)) => Ok(bits.into()),
        Ok(Value::Choice(_) | Value::Path(_)) => Err(format!("expected {kind}")),
        Err(rejected) => Err(rejected.to_string()),
    }
}

/// The flags of a group's options.
pub fn of_group(group: Group) -> impl Iterator<Item = Arg> {
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
        _ => Some(stats_format(matches).word().into()),
    }
}

/// The form of the statistics. In `neap env`, `--format` is of another type: the form of the line.
fn stats_format(matches: &ArgMatches) -> TextOrJson {
    let format = matches.try_get_one("format").ok().flatten();
    format.copied().unwrap_or(TextOrJson::Text)
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

    #[test]
    fn rates_take_the_suffixes_of_other_sizes() {
        assert_eq!(bytes_between_samples("65536"), Ok(64 << 10));
        assert_eq!(bytes_between_samples("64K"), bytes_between_samples("65536"));
        assert_eq!(bytes_between_samples("1g"), Ok(1 << 30));
        for wrong in ["", "0", "4095", "2G", "1T", "64KB"] {
            let said = bytes_between_samples(wrong).unwrap_err();
            assert!(said.contains("4K to 1G bytes"), "{wrong}: {said}");
        }
    }

    #[test]
    fn guards_are_off_all_or_a_time() {
        assert_eq!(guards("off"), Ok(Guards::Off));
        assert_eq!(guards("all"), Ok(Guards::All));
        assert_eq!(guards("2s"), Ok(Guards::Every(2000)));
        assert!(guards("20").unwrap_err().contains("20ms or 20s"));
        for wrong in ["", "0", "0ms", "2h", "never", "-1ms"] {
            let said = guards(wrong).unwrap_err();
            assert!(said.contains("off, all, or 1ms to 1h"), "{wrong}: {said}");
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

    #[test]
    fn credentials_are_not_for_messages() {
        for (url, expected) in [
            ("http://me:secret@a:4040", "http://a:4040"),
            ("http://me:sec/re@t@a/b", "http://a/b"),
            ("http://[::1]:4040", "http://[::1]:4040"),
            ("https://me:secret@a", "https://a"),
            ("me:secret@a", "a"),
            ("me:se://cret@a", "a"),
        ] {
            assert_eq!(without_credentials(url), expected);
        }
    }

    #[test]
    fn a_server_is_a_url_without_tls_and_query() {
        for url in ["http://a:4040", "http://u:p@[::1]:4040/base/", "http://a"] {
            assert_eq!(server(url), Ok(url.to_owned()));
        }
        for url in [
            "a:4040",
            "http://",
            "http://a/?b=c",
            "http://a#b",
            "http://a b",
            "ftp://a",
        ] {
            assert!(
                server(url).unwrap_err().contains("http://HOST:PORT"),
                "{url}"
            );
        }
        assert!(server("https://a").unwrap_err().contains("TLS"));
    }

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
