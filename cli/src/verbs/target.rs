//! Arguments shared by the verbs that inspect a running process.

use crate::attach::{Silence, Target};
use crate::failure::Failure;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use std::ffi::OsString;
use std::time::Duration;

/// Longest time on a command line, in seconds.
const LONGEST: f64 = 1e6;

/// The process argument.
pub fn process() -> Arg {
    Arg::new("PROCESS")
        .value_name("PID|NAME")
        .required(true)
        .value_parser(value_parser!(OsString))
        .help("The process: its number, or its name if only one process under Neap has it")
}

/// The flag for one JSON object instead of text.
pub fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print one JSON object instead of text")
}

/// The argument for how long to wait for an answer.
pub fn timeout() -> Arg {
    seconds("timeout", "2").help("How long to wait for the process's answer")
}

/// An argument for a time in seconds.
pub fn seconds(name: &'static str, default: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SECONDS")
        .default_value(default)
        // So that the error states the range, instead of how to pass an argument that begins with a
        // dash.
        .allow_negative_numbers(true)
        .value_parser(parse)
}

/// The process that the command line names.
pub fn of(matches: &ArgMatches) -> Result<Target, Failure> {
    let word = matches.get_one::<OsString>("PROCESS");
    Target::find(word.map(OsString::as_os_str).unwrap_or_default())
}

/// How long to wait for an answer.
pub fn patience(matches: &ArgMatches) -> Duration {
    matches
        .get_one("timeout")
        .copied()
        .unwrap_or(Duration::from_secs(2))
}

/// The line after "pending": what makes the process answer.
pub fn advice(patience: Duration, silence: Silence) -> String {
    let longer = (10.0 * patience.as_secs_f64()).clamp(10.0, LONGEST);
    let wait =
        (longer > patience.as_secs_f64()).then(|| format!("--timeout={longer:.0} waits longer"));
    let remedy = silence.remedy.map(str::to_owned);
    let parts: Vec<String> = wait.into_iter().chain(remedy).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  ({})\n", parts.join("; ")),
    }
}

fn parse(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("give seconds, 0 to {LONGEST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_is_longer_within_reason() {
        let advice = |seconds, remedy| {
            let silence = Silence { why: "", remedy };
            advice(Duration::from_secs(seconds), silence)
        };
        assert_eq!(advice(0, None), "  (--timeout=10 waits longer)\n");
        assert_eq!(
            advice(2, Some("try")),
            "  (--timeout=20 waits longer; try)\n"
        );
        assert_eq!(advice(1_000_000, Some("try")), "  (try)\n");
        assert_eq!(advice(1_000_000, None), "");
    }

    #[test]
    fn times_are_seconds_within_reason() {
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "NaN", "inf", "1e300", "1s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
