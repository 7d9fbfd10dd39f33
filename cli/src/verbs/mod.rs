//! The verbs, and the short ones themselves: completions, help, the lab and its comparison.

mod doctor;
mod env;
mod observe;
mod process;
mod profile;
mod report;
mod request;
mod run;
mod tune;

use crate::attach::{Outlook, Silence, Target};
use crate::choice::Choice;
use crate::failure::{Failure, Outcome, shown};
use crate::grammar::{self, OVERVIEW, TextOrJson};
use crate::launch::Program;
use crate::library;
use crate::output::print;
use crate::program::{Link, Role, Scope, follow};
use clap::ArgMatches;
use clap::parser::ValueSource;
use clap_complete::{Shell, generate};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

const STATUS_PAGE: &str = "NEAP_STATUS_PAGE";
const QUERIES: &str = "NEAP_KERNEL_QUERIES";
const PURGE_THREAD: &str = "NEAP_PURGE_THREAD";

/// Flags that turn something off, their variables, and the options that need it.
const OFF: [(&str, &str, &[&str]); 2] = [
    (
        "--no-kernel-queries",
        QUERIES,
        &[
            "guard",
            "sample",
            "profile",
            "leaks",
            "record",
            "purge-thread",
        ],
    ),
    ("--no-status-page", STATUS_PAGE, &["record"]),
];

/// Performs the command line's verb.
pub fn perform(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("run", matches)) => run::perform(matches),
        Some(("report", matches)) => report::perform(matches),
        Some(("env", matches)) => env::perform(matches),
        Some(("doctor", matches)) => doctor::perform(matches),
        Some(("profile", matches)) => profile::perform(matches),
        Some(("compare", matches)) => compare(matches),
        Some(("lab", matches)) => lab(words(matches, "ARGUMENTS"), ""),
        Some(("stat", matches)) => observe::stat(matches),
        Some(("serve", matches)) => observe::serve(matches),
        Some(("top", matches)) => observe::top(matches),
        Some(("tune", matches)) => tune::perform(matches),
        Some(("purge", matches)) => request::purge(matches),
        Some(("guard", matches)) => request::guard(matches),
        Some(("completions", matches)) => completions(matches),
        Some(("help", matches)) => help(matches),
        None => print(OVERVIEW),
        other => unreachable!("clap accepts only declared verbs: {other:?}"),
    }
}

/// Refuses an option that needs what another option or a variable turns off. `value` says what the
/// program's variables are.
fn refuse_contradictions(
    matches: &ArgMatches,
    value: impl Fn(&str) -> Option<OsString>,
) -> Result<(), Failure> {
    let is = |variable, word: &str| value(variable).is_some_and(|value| value == word);
    let has_thread = is(PURGE_THREAD, "always") || is(PURGE_THREAD, "1");
    let needs = |name: &&&str| {
        // `neap env` does not have all of them.
        matches.try_contains_id(name).is_ok()
            && matches.value_source(name) == Some(ValueSource::CommandLine)
            && (**name != "purge-thread" || has_thread)
    };
    for (flag, variable, needing) in OFF {
        match needing.iter().find(needs) {
            Some(name) if is(variable, "0") => {
                return Err(failure!(
                    "--{name} needs what {flag} ({variable}=0) turns off; leave out one of them"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `neap completions`: prints the completions for the given shell.
fn completions(matches: &ArgMatches) -> Outcome {
    let shell = *matches.get_one::<Shell>("SHELL").expect("clap requires it");
    let mut script = Vec::new();
    generate(shell, &mut grammar::neap(), "neap", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// `neap help`: prints the commands or one of them, or writes the manual pages.
fn help(matches: &ArgMatches) -> Outcome {
    if let Some(directory) = matches.get_one::<OsString>("man") {
        return manual(Path::new(directory));
    }
    let mut command = grammar::neap();
    command.build();
    let Some(word) = matches.get_one::<OsString>("COMMAND") else {
        return print(&command.render_help().ansi().to_string());
    };
    let verb = command
        .find_subcommand_mut(word)
        .ok_or_else(|| failure!("there is no command {}: neap help lists them", shown(word)))?;
    print(&verb.render_help().ansi().to_string())
}

/// Writes `neap.1` and a page for each command.
fn manual(directory: &Path) -> Outcome {
    let unwritten = |error| {
        let directory = shown(directory);
        failure!("cannot write the manual pages to {directory}: {error}")
    };
    clap_mangen::generate_to(grammar::neap(), directory).map_err(unwritten)?;
    Ok(0)
}

/// `neap compare`: checks the program, and becomes `neap-lab compare`.
fn compare(matches: &ArgMatches) -> Outcome {
    let (library, words) = (library::find()?, program(matches));
    follow(&words, &library::headers(&library)?).start(Scope::Tree)?;
    let text = |name: &str| matches.get_one::<String>(name).map(OsString::from);
    let seconds = |name| time(matches, name).as_millis().div_ceil(1000).to_string();
    let rounds = matches.get_one("rounds").map(u64::to_string);
    let allocators = matches.get_one("allocators");
    let allocators = allocators.map(|names: &String| format!("neap,glibc,{names}"));
    let options = [
        ("--neap", Some(library.into_os_string())),
        ("--load", text("load")),
        ("--rounds", rounds.map(OsString::from)),
        ("--rest", Some(seconds("rest").into())),
        ("--seconds", Some(seconds("within").into())),
        ("--peers", allocators.map(OsString::from)),
        ("--html", file(matches, "html").map(PathBuf::into_os_string)),
    ];
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some([name.into(), value?]));
    let mut line: Vec<OsString> = vec!["compare".into()];
    line.extend(given.flatten());
    line.extend((format::<TextOrJson>(matches) == TextOrJson::Json).then(|| "--json".into()));
    line.extend(matches.get_flag("quiet").then(|| "--quiet".into()));
    line.push("--".into());
    line.extend(words);
    lab(line, "neap compare needs it: ")
}

/// Becomes `neap-lab`, which is installed beside this program. Returns only on failure.
fn lab(words: Vec<OsString>, why: &str) -> Outcome {
    const NAME: &str = "neap-lab";
    let exe = std::env::current_exe()
        .map_err(|error| failure!("cannot tell where neap itself is: {error}"))?;
    let file = exe.with_file_name(NAME);
    if !file.is_file() {
        return Err(failure!(
            "{} is not there: {why}build it with cargo build --release -p {NAME}",
            shown(&file)
        ));
    }
    let arguments = [OsString::from(NAME)].into_iter().chain(words).collect();
    let program = Program::new(Link::new(file, arguments, Role::Named))?;
    Err(program.failure(&program.execute()))
}

/// Longest time that advice names, in seconds.
const LONGEST: u64 = 1_000_000;

/// The process that the command line names.
fn named(matches: &ArgMatches) -> Result<Target, Failure> {
    let word = matches.get_one::<OsString>("PROCESS");
    Target::find(word.map(OsString::as_os_str).unwrap_or_default())
}

/// The program and its arguments.
fn program(matches: &ArgMatches) -> Vec<OsString> {
    words(matches, "PROGRAM")
}

fn words(matches: &ArgMatches, name: &str) -> Vec<OsString> {
    let words = matches.get_many(name).into_iter().flatten();
    words.cloned().collect()
}

/// The file that `option` names.
fn file(matches: &ArgMatches, option: &str) -> Option<PathBuf> {
    matches.get_one::<OsString>(option).map(PathBuf::from)
}

/// The choice of `--format`, if there is one.
fn chosen<C: Choice>(matches: &ArgMatches) -> Option<C> {
    matches.get_one("format").copied()
}

/// The choice of a `--format` that has a default.
fn format<C: Choice>(matches: &ArgMatches) -> C {
    chosen(matches).expect("the option has a default")
}

/// The time of `option`, or none.
fn time(matches: &ArgMatches, option: &str) -> Duration {
    matches.get_one(option).copied().unwrap_or_default()
}

/// The line after "pending": what makes the process answer.
fn advice(patience: Duration, silence: Silence) -> String {
    let longer = patience.as_secs().saturating_mul(10).clamp(10, LONGEST);
    let is_longer = Duration::from_secs(longer) > patience && silence.outlook == Outlook::Open;
    let wait = is_longer.then(|| format!("--timeout {longer}s waits longer"));
    let remedy = silence.remedy.map(str::to_owned);
    let parts: Vec<String> = remedy.into_iter().chain(wait).collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("  ({})\n", parts.join("; "))
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
