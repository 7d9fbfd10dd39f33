//! The tables as clap's commands.

use super::library;
use super::verbs::VERBS;
use super::words::{Count, Library, Operand, Opt, Takes, Verb};
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use neap_shared::control::Group;
use std::ffi::OsString;
use std::net::SocketAddr;

/// The whole command line.
pub fn neap() -> Command {
    Command::new("neap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run programs under the Neap memory system and see where memory goes")
        .max_term_width(100)
        .disable_help_subcommand(true)
        .subcommands(VERBS.iter().map(command))
}

fn command(verb: &'static Verb) -> Command {
    let groups = verb.library == Library::Options;
    let takes_all = |operand: &Operand| operand.count == Count::Rest;
    let command = Command::new(verb.name)
        .about(verb.about)
        .args(options(verb))
        .args(verb.operands.iter().map(operand))
        .disable_help_flag(groups || verb.operands.iter().any(takes_all));
    let command = match verb.notes {
        [] => command,
        notes => command.after_help(notes.join(
            "

",
        )),
    };
    match verb.usage {
        [] => command,
        lines => {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| format!("neap {} {line}", verb.name))
                .collect();
            command.override_usage(lines.join("\n       "))
        }
    }
}

/// The options of a verb. Where it has the library's as well: those without a group, then by group
/// its own before the library's, and the help last.
fn options(verb: &'static Verb) -> Vec<Arg> {
    let own = |group| {
        verb.options
            .iter()
            .filter(move |option| option.group == group)
    };
    if verb.library == Library::None {
        return verb.options.iter().map(option).collect();
    }
    let mut all: Vec<Arg> = own(None).map(option).collect();
    for group in Group::ALL {
        let arguments = own(Some(group))
            .map(option)
            .chain(library::arguments(group));
        all.extend(arguments.map(|argument| argument.help_heading(group.title())));
    }
    let help = Arg::new("help")
        .long("help")
        .short('h')
        .action(ArgAction::Help);
    all.push(help.help("Print help").help_heading("Other"));
    all
}

fn option(option: &'static Opt) -> Arg {
    let argument = Arg::new(option.name)
        .long(option.name)
        .help(option.help)
        .conflicts_with_all(option.excludes);
    let argument = match option.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    let argument = match option.needs {
        Some(other) => argument.requires(other),
        None => argument,
    };
    taking(argument, option.takes)
}

fn taking(argument: Arg, takes: Takes) -> Arg {
    let path = |argument: Arg, hint| {
        argument
            .value_parser(value_parser!(OsString))
            .value_hint(hint)
    };
    match takes {
        Takes::Nothing => argument.action(ArgAction::SetTrue),
        Takes::File => path(argument, ValueHint::FilePath).value_name("FILE"),
        Takes::Directory => path(argument, ValueHint::DirPath).value_name("DIRECTORY"),
        Takes::OptionalFile => path(argument, ValueHint::FilePath)
            .value_name("FILE")
            .value_parser(OsStringValueParser::new().try_map(no_format))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
        Takes::Words(words, default) => argument
            .value_name("WORD")
            .value_parser(PossibleValuesParser::new(words))
            .default_values(default),
        Takes::Time(least, most, default) => {
            valued(argument, "TIME", library::time(least, most)).default_values(default)
        }
        Takes::Rate => valued(argument, "SIZE", ValueParser::new(library::rate)),
        Takes::Number => valued(argument, "N", value_parser!(u64).range(1..).into()),
        Takes::Regex => argument.value_name("REGEX"),
        Takes::Address(default) => argument
            .value_name("ADDRESS:PORT")
            .value_parser(value_parser!(SocketAddr))
            .default_value(default),
    }
}

/// With negative numbers as values, so that the error states the range, instead of how to pass an
/// argument that begins with a dash.
fn valued(argument: Arg, name: &'static str, parser: ValueParser) -> Arg {
    argument
        .value_name(name)
        .value_parser(parser)
        .allow_negative_numbers(true)
}

/// Earlier releases took a format here. A file of that name has a directory: `./json`.
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

fn operand(operand: &'static Operand) -> Arg {
    let argument = Arg::new(operand.name)
        .help(operand.help)
        .value_parser(value_parser!(OsString));
    let program = |argument: Arg| {
        argument
            .num_args(1..)
            .value_hint(ValueHint::CommandWithArguments)
    };
    match operand.count {
        Count::One => argument.required(true),
        Count::Optional => argument,
        Count::Any => argument.num_args(0..),
        Count::Program => program(argument).trailing_var_arg(true).required(true),
        Count::OptionalProgram => program(argument).trailing_var_arg(true),
        Count::ProgramOrFrom => program(argument)
            .trailing_var_arg(true)
            .required_unless_present("from"),
        Count::ProgramAfterDashes => program(argument).last(true),
        Count::Rest => program(argument)
            .trailing_var_arg(true)
            .allow_hyphen_values(true),
    }
}
