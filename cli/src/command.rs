//! The verbs and flags of the command line.

use crate::{flags, verbs};
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgGroup, Command, value_parser};
use clap_complete::Shell;
use std::ffi::OsString;

/// The whole command line.
pub fn neap() -> Command {
    Command::new("neap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run programs under the Neap memory system and see where memory goes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run())
        .subcommand(env())
        .subcommand(doctor())
        .subcommand(report())
        .subcommand(verbs::stat::command())
        .subcommand(verbs::top::command())
        .subcommand(verbs::purge::command())
        .subcommand(verbs::serve::command())
        .subcommand(profile())
        .subcommand(verbs::tune::command())
        .subcommand(lab())
        .subcommand(completions())
}

fn run() -> Command {
    Command::new("run")
        .about("Run a program, and the programs it starts, under Neap")
        .after_help(
            "The exit status is the program's own. neap itself exits with 125 if it fails, 126 if \
             the program cannot run under Neap, 127 if there is no such program.",
        )
        .override_usage("neap run [OPTIONS] [--] PROGRAM [ARGUMENTS]...")
        .args(flags::arguments())
        .args(watching())
        .arg(quiet())
        .arg(program().required(true))
}

/// The options of `neap run` that watch the program.
fn watching() -> [Arg; 4] {
    [
        Arg::new("record")
            .long("record")
            .value_name("FILE")
            .value_parser(value_parser!(OsString))
            .value_hint(clap::ValueHint::FilePath)
            .help("Record the heap over time to this file, for neap report"),
        Arg::new("record-interval")
            .long("record-interval")
            .value_name("MS")
            .value_parser(value_parser!(u64).range(20..=3_600_000))
            .default_value("100")
            .requires("record")
            .help("Milliseconds between two samples of the recording"),
        Arg::new("profile")
            .long("profile")
            .value_name("FILE")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("")
            .value_parser(value_parser!(OsString))
            .value_hint(clap::ValueHint::FilePath)
            .help("Sample allocations and write the heap profile [default FILE: neap.PROGRAM.PID.pb.gz]"),
        Arg::new("leaks")
            .long("leaks")
            .action(ArgAction::SetTrue)
            .help("Sample allocations and print what is still live at the end, by place, to standard error"),
    ]
}

fn quiet() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .help("Say nothing but errors")
}

fn report() -> Command {
    Command::new("report")
        .about("Make one page of HTML from a recording, a profile or a run: what is large, why, what to do")
        .override_usage("neap report [OPTIONS] FILE\n       neap report [OPTIONS] -- PROGRAM [ARGUMENTS]...")
        .after_help("After --, the exit status is the program's own.")
        .arg(
            Arg::new("FILE")
                .value_parser(value_parser!(OsString))
                .value_hint(clap::ValueHint::FilePath)
                .required_unless_present("PROGRAM")
                .conflicts_with("PROGRAM")
                .help("A recording (neap run --record) or a profile (neap run --profile)"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE.html")
                .value_parser(value_parser!(OsString))
                .value_hint(clap::ValueHint::FilePath)
                .help("File for the page [default: FILE.html, or neap.PROGRAM.PID.html, in the current directory]"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .conflicts_with("output")
                .help("Print the verdict as one JSON object instead"),
        )
        .arg(quiet())
        .arg(
            Arg::new("PROGRAM")
                .last(true)
                .num_args(1..)
                .value_parser(value_parser!(OsString))
                .value_hint(clap::ValueHint::CommandWithArguments)
                .help("A program to run, record and profile, and its arguments"),
        )
}

fn env() -> Command {
    Command::new("env")
        .about("Print the line that puts a Dockerfile's or a shell's programs under Neap")
        .arg(
            Arg::new("shell")
                .long("shell")
                .action(ArgAction::SetTrue)
                .help("Print export lines for a shell instead of ENV for a Dockerfile"),
        )
        .arg(
            Arg::new("library")
                .long("library")
                .value_name("PATH")
                .value_parser(value_parser!(OsString))
                .help("Path of the library, if it will be elsewhere"),
        )
        .args(flags::arguments())
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Check what this kernel offers, and whether a program can run under Neap")
        .after_help("Exits with 1 if a program is given that cannot run under Neap.")
        .override_usage("neap doctor [OPTIONS] [-- PROGRAM]")
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object instead of tables"),
        )
        .arg(program())
}

fn profile() -> Command {
    let file = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(OsString))
            .value_hint(clap::ValueHint::FilePath)
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("profile")
        .about("Show which calls allocate the memory of a program")
        .after_help(
            "The process must run under Neap. If it does not sample already, it does so for --seconds and \
             stops then. With --seconds only what it allocates meanwhile is shown; live is growth if it had sampled \
             before. Without, or with 0, all that it sampled so far. Ctrl-C ends the wait early.",
        )
        .arg(
            Arg::new("TARGET")
                .required(true)
                .value_name("PID|NAME|FILE")
                .value_parser(value_parser!(OsString))
                .help("A process, or a saved pprof file of any program"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .value_parser(seconds)
                .allow_negative_numbers(true)
                .help("How long to sample [10 if it is off; 0 if it is on]"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("BYTES")
                .value_parser(rate)
                .allow_negative_numbers(true)
                .help("Bytes between two samples, on average [512K]"),
        )
        .arg(
            Arg::new("value")
                .long("value")
                .value_name("VALUE")
                .value_parser(crate::profile::Value::ALL.map(crate::profile::Value::word))
                .default_value(crate::profile::Value::default().word())
                .help("What to count"),
        )
        .arg(flag("tree").help("Print a call tree and the largest functions (the default)"))
        .arg(flag("leaks").help("Print what is still live, by the place that allocated it"))
        .arg(
            Arg::new("list")
                .long("list")
                .value_name("REGEX")
                .help("Print the functions that match, line by line"),
        )
        .arg(
            file("collapsed")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .help("Print or write one line per stack, for flame graph programs"),
        )
        .arg(file("flamegraph").help("Write a flame graph as SVG"))
        .arg(file("pprof").help("Write a file in pprof's format"))
        .arg(flag("json").help("Print one JSON object"))
        .arg(
            flag("quiet")
                .short('q')
                .help("Show no progress on standard error"),
        )
        .group(ArgGroup::new("form").args(["tree", "leaks", "list", "collapsed", "flamegraph", "pprof", "json"]))
}

/// A value of `--sample` at the start of a program.
fn rate(word: &str) -> Result<u64, String> {
    let option = neap_shared::control::find(b"NEAP_SAMPLE").expect("the option is declared");
    match neap_shared::control::parse(option.kind, word.as_bytes()) {
        Ok(neap_shared::control::Value::Bytes(rate)) => Ok(rate),
        Ok(_) => Err("no number of bytes".to_owned()),
        Err(rejected) => Err(rejected.to_string()),
    }
}

/// A time in seconds that a clock can represent.
fn seconds(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0 to 1000000".to_owned()),
    }
}

fn lab() -> Command {
    Command::new("lab")
        .about("Run Neap's experiments and benchmarks (neap-lab)")
        .disable_help_flag(true)
        .arg(
            words("ARGUMENTS")
                .allow_hyphen_values(true)
                .help("Handed on to neap-lab"),
        )
}

fn completions() -> Command {
    let shells = [
        Shell::Bash,
        Shell::Elvish,
        Shell::Fish,
        Shell::PowerShell,
        Shell::Zsh,
    ];
    let names = shells.map(|shell| PossibleValue::new(shell.to_string()));
    Command::new("completions")
        .about("Print completions for a shell")
        .arg(Arg::new("SHELL").required(true).value_parser(names))
}

fn program() -> Arg {
    words("PROGRAM").help("The program, found by PATH, and its arguments")
}

/// This word and all that follow, uninterpreted.
fn words(name: &'static str) -> Arg {
    Arg::new(name)
        .num_args(1..)
        .trailing_var_arg(true)
        .value_parser(value_parser!(OsString))
        .value_hint(clap::ValueHint::CommandWithArguments)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_command_line_is_consistent() {
        neap().debug_assert();
    }
}
