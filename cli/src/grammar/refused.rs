//! Words of earlier releases, tips for mistyped ones, and no password in a message.

use super::values::without_credentials;
use crate::failure::Failure;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::env;

/// Earlier words, the verbs that had them, and what to write instead. They are
/// refused for one release, and then unknown.
const EARLIER: &[(&str, &str, &str)] = &[
    ("run env", "--stats-file", "--stats=FILE"),
    ("run", "--record-interval", "--interval 100ms"),
    ("run env", "--dirty-max", "--limit-dirty SIZE"),
    ("run env", "--no-purge-thread", "--purge-thread never"),
    ("run env", "--answer", "--purge-thread always"),
    ("run env", "--no-ask", "--no-kernel-queries"),
    ("run env", "--no-attach", "--no-status-page"),
    ("env", "--shell", "--format shell"),
    (
        "stat top purge report doctor tune profile",
        "--json",
        "--format json",
    ),
    ("stat", "--prometheus", "--format prometheus"),
    ("top", "--count", "--times N"),
    ("serve", "--pid", "the process alone: neap serve PID"),
    ("serve", "--all", "no option: neap serve serves all"),
    ("profile", "--seconds", "--for 10s"),
    ("profile", "--rate", "--sample SIZE"),
    ("profile", "--tree", "--format tree"),
    ("profile", "--leaks", "--format leaks"),
    ("profile", "--collapsed", "--format collapsed -o FILE"),
    ("profile", "--flamegraph", "--format flamegraph -o FILE"),
    ("profile", "--pprof", "--format pprof -o FILE"),
    ("tune", "--classes", "--max-classes N"),
];

/// A wrong command line as a failure of one line, if it has an earlier word; else clap's error,
/// with a tip that suits the verb.
pub fn explained(mut error: clap::Error) -> Result<clap::Error, Failure> {
    hide_credentials(&mut error);
    let verb = env::args_os().nth(1).unwrap_or_default();
    let verb = verb.to_string_lossy().into_owned();
    let Some(word) = unknown(&error) else {
        return Ok(error);
    };
    if let Some(now) = successor(&verb, &word) {
        return Err(failure!("neap {verb} no longer has {word}: use {now}"));
    }
    // Clap's own tip would have the program called like the mistyped option.
    error.remove(ContextKind::Suggested);
    if ["run", "tune"].contains(&verb.as_str()) {
        let tip =
            format!("an option of the program goes after its name: neap {verb} -- PROGRAM {word}");
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    Ok(error)
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

fn successor(verb: &str, word: &str) -> Option<&'static str> {
    let has = |verbs: &str| verbs.split(' ').any(|one| one == verb);
    EARLIER
        .iter()
        .find(|(verbs, earlier, _)| has(verbs) && *earlier == word)
        .map(|(.., now)| *now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::neap;

    /// Neither an earlier word nor its successor misleads.
    #[test]
    fn every_earlier_word_is_unknown_and_its_successor_is_known() {
        for (verbs, earlier, now) in EARLIER {
            for verb in verbs.split(' ') {
                let command = neap();
                let command = command.find_subcommand(verb).unwrap();
                let knows = |word: &str| {
                    let name = word.split([' ', '=']).next().unwrap_or_default();
                    let longs = command.get_arguments().filter_map(clap::Arg::get_long);
                    longs
                        .map(|long| format!("--{long}"))
                        .any(|long| long == name)
                };
                assert!(!knows(earlier), "{verb} {earlier}");
                assert!(knows(now) || !now.starts_with("--"), "{verb} {now}");
            }
        }
    }
}
