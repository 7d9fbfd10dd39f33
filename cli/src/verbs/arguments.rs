//! Arguments shared by verbs.

use crate::attach::{Outlook, Silence, Target};
use crate::failure::Failure;
use clap::ArgMatches;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that advice names, in seconds.
const LONGEST: u64 = 1_000_000;

/// The process that the command line names.
pub fn of(matches: &ArgMatches) -> Result<Target, Failure> {
    let word = matches.get_one::<OsString>("PROCESS");
    Target::find(word.map(OsString::as_os_str).unwrap_or_default())
}

/// The program and its arguments.
pub fn program(matches: &ArgMatches) -> Vec<OsString> {
    let words = matches.get_many("PROGRAM").into_iter().flatten();
    words.cloned().collect()
}

/// The file that `option` names.
pub fn file(matches: &ArgMatches, option: &str) -> Option<PathBuf> {
    matches.get_one::<OsString>(option).map(PathBuf::from)
}

/// The word of `--format`; empty if there is none.
pub fn format(matches: &ArgMatches) -> &str {
    matches
        .get_one::<String>("format")
        .map_or("", String::as_str)
}

/// The time of `option`, or none.
pub fn time(matches: &ArgMatches, option: &str) -> Duration {
    matches.get_one(option).copied().unwrap_or_default()
}

/// The line after "pending": what makes the process answer.
pub fn advice(patience: Duration, silence: Silence) -> String {
    let longer = patience.as_secs().saturating_mul(10).clamp(10, LONGEST);
    let is_longer = Duration::from_secs(longer) > patience && silence.outlook == Outlook::Open;
    let wait = is_longer.then(|| format!("--timeout {longer}s waits longer"));
    let remedy = silence.remedy.map(str::to_owned);
    let parts: Vec<String> = remedy.into_iter().chain(wait).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  ({})\n", parts.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_is_longer_within_reason() {
        let advice = |seconds, remedy| {
            let outlook = Outlook::Open;
            let silence = Silence {
                why: "",
                remedy,
                outlook,
            };
            advice(Duration::from_secs(seconds), silence)
        };
        let hopeless = Silence {
            outlook: Outlook::Hopeless,
            ..Silence::default()
        };
        assert_eq!(super::advice(Duration::from_secs(2), hopeless), "");
        assert_eq!(advice(0, None), "  (--timeout 10s waits longer)\n");
        assert_eq!(
            advice(2, Some("try")),
            "  (try; --timeout 20s waits longer)\n"
        );
        assert_eq!(advice(1_000_000, Some("try")), "  (try)\n");
        assert_eq!(advice(1_000_000, None), "");
    }
}
