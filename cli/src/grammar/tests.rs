//! Tests of the tables, and `docs/options.md`, which is generated from them. After a change there:
//! `UPDATE_DOCS=1 cargo test -p neap-cli options_page`.

use super::arguments::{in_a_sentence, of_group, value_name};
use super::verbs::neap;
use crate::choice::Choice;
use crate::classes;
use crate::profile::Value;
use clap::{Arg, Command};
use neap_shared::control::{Declaration, Flag, Group, OPTIONS};
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");

const HEAD: &str = "\
# Options

Every option of the library is a variable that the library reads when the program starts. A flag of
`neap run` and `neap env` sets the variable, and overrides a variable that is already set.

- Times have a unit: `500ms`, `2s`, `5m`, `1h`. A variable also takes a bare number, which is
  milliseconds. The command refuses a bare number other than 0.
- Sizes are bytes, or have the suffix `K`, `M`, `G` or `T`, or `KiB` to `TiB`: powers of 1,024.
- A variable whose values are `auto`, `never` and `always` also takes `0` for `never` and `1` for
  `always`.
- The library reports a wrong value on standard error, ignores it, and empties the variable, so that
  child programs do not report it again.
- The library reports an unknown variable that begins with `NEAP_`, and ignores it. Each program of
  the run reports it, because another program may use the variable.
- In programs that gain privileges when they start (such as set-user-ID programs), the library
  ignores all options.

This page is generated from `cli/src/grammar/verbs.rs` and `shared/src/control/options.rs`.

## Options of the library
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        write!(page, "\n### {}\n\n", group.title()).unwrap();
        page += "| flag | variable | values | default | what it does |\n|---|---|---|---|---|\n";
        OPTIONS
            .iter()
            .filter(|option| option.group == group)
            .for_each(|option| page += &declared(option));
    }
    page += "\n## Options of each command\n\nA PROCESS is a PID, or a name if only one process \
             under \
             Neap has it.\n";
    for verb in neap().get_subcommands() {
        if options(verb).is_empty() {
            continue;
        }
        write!(
            page,
            "\n### `neap {}`\n\n| option | default | what it does |\n|---|---|---|\n",
            verb.get_name()
        )
        .unwrap();
        options(verb).iter().for_each(|option| page += &own(option));
    }
    page
}

fn declared(option: &Declaration) -> String {
    let Declaration {
        name,
        env,
        kind,
        doc,
        ..
    } = option;
    let default = match option.default {
        "" => "none".to_owned(),
        default => format!("`{default}`"),
    };
    let flag = match option.flag {
        Flag::Value => format!("`--{name} {}`", value_name(*kind)),
        Flag::Optional(_) => format!("`--{name}[={}]`", value_name(*kind)),
        Flag::On => format!("`--{name}`"),
        Flag::Off => format!("`--no-{name}`"),
        Flag::Through(words) => format!("`{}`", words.replace('|', "\\|")),
        Flag::Absent => "none".to_owned(),
    };
    let doc = match option.flag {
        Flag::Off => format!("If 0, do not {}", in_a_sentence(doc)),
        _ => (*doc).to_owned(),
    };
    // The head of the page has the units.
    let values = kind.to_string();
    let values = values.split(" (").next().unwrap_or_default();
    format!("| {flag} | `{env}` | {values} | {default} | {doc} |\n")
}

/// The options of a verb without the library's.
fn options(verb: &Command) -> Vec<&Arg> {
    let groups = ["run", "env"].contains(&verb.get_name());
    let theirs: Vec<Arg> = if groups {
        Group::ALL.into_iter().flat_map(of_group).collect()
    } else {
        Vec::new()
    };
    verb.get_arguments()
        .filter(|one| one.get_long().is_some_and(|word| word != "help"))
        .filter(|one| theirs.iter().all(|other| other.get_id() != one.get_id()))
        .collect()
}

fn words(option: &Arg) -> Vec<String> {
    let words = option.get_possible_values();
    words
        .iter()
        .map(|word| word.get_name().to_owned())
        .collect()
}

fn default(option: &Arg) -> Option<String> {
    let default = option.get_default_values().first()?;
    Some(default.to_string_lossy().into_owned())
}

/// The name of the value.
fn kind(option: &Arg) -> Option<String> {
    Some(option.get_value_names()?.first()?.to_string())
}

fn own(option: &Arg) -> String {
    let value = match kind(option) {
        None => String::new(),
        Some(name) if option.is_require_equals_set() => format!("[={name}]"),
        Some(name) if name == "WORD" => format!(" {}", words(option).join("\\|")),
        Some(name) => format!(" {name}"),
    };
    let short = option
        .get_short()
        .map_or(String::new(), |letter| format!("`-{letter}`, "));
    let default = default(option).map_or(String::new(), |default| format!("`{default}`"));
    format!(
        "| {short}`--{}{value}` | {default} | {} |\n",
        option.get_id(),
        option.get_help().unwrap_or_default()
    )
}

fn verb(name: &str) -> Command {
    neap().find_subcommand(name).unwrap().clone()
}

#[test]
fn the_options_page_is_what_is_declared() {
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, page()).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(found, page(), "see the head of this file");
    let off = OPTIONS.iter().filter(|option| option.flag == Flag::Off);
    for row in off.map(declared) {
        assert!(row.contains("| If 0, do not "), "{row}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    neap().debug_assert();
}

#[test]
fn the_bounds_of_tune_are_those_of_the_library() {
    let bounds = format!("[{} to {1}; default: {1}]", classes::least(), classes::MOST);
    let tune = verb("tune");
    let mut helps = tune.get_arguments().filter_map(Arg::get_help);
    assert!(
        helps.any(|help| help.to_string().contains(&bounds)),
        "{bounds}"
    );
}

#[test]
fn the_values_of_a_profile_are_known() {
    let profile = verb("profile");
    let mut options = profile.get_arguments();
    let value = options.find(|option| option.get_id() == "value").unwrap();
    assert_eq!(words(value), Value::WORDS);
    assert_eq!(default(value).unwrap(), Value::default().word());
}

/// Each word has the same kind of value in all commands.
#[test]
fn a_word_has_one_meaning() {
    let neap = neap();
    let all = || neap.get_subcommands().flat_map(options);
    for one in all() {
        for other in all().filter(|other| other.get_id() == one.get_id()) {
            assert_eq!(kind(one), kind(other), "--{}", one.get_id());
            assert_eq!(one.get_short(), other.get_short(), "--{}", one.get_id());
        }
    }
}
