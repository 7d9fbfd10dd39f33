//! Tests of the tables, and `docs/options.md`, which is generated from them. After a change there:
//! `UPDATE_DOCS=1 cargo test -p neap-cli options_page`.

use super::command::neap;
use super::verbs::VERBS;
use super::words::{Opt, Takes};
use crate::classes;
use crate::profile::Value;
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
- Three variables have new names. The library still reads the earlier one if the new one is not
  set: `NEAP_DIRTY_MAX`, `NEAP_ASK` and `NEAP_ATTACH`.
- The library reports a wrong value on standard error and ignores it. It empties the variable, so
  that the programs that this one starts do not report it again.
- The library reports an unknown variable that begins with `NEAP_` and ignores it. It does not
  change the variable, because another program may use it. So each program of the run reports it.
- In programs that gain privileges when they start (such as set-user-ID programs), the library
  ignores all options.

This page is generated from the tables of the command line (`cli/src/grammar/verbs.rs`) and of the
library (`shared/src/control/options.rs`).

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
    for verb in VERBS.iter().filter(|verb| !verb.options.is_empty()) {
        write!(
            page,
            "\n### `neap {}`\n\n| option | default | what it does |\n|---|---|---|\n",
            verb.name
        )
        .unwrap();
        verb.options.iter().for_each(|option| page += &own(option));
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
        Flag::Value => format!("`--{name} {}`", super::library::value_name(*kind)),
        Flag::On => format!("`--{name}`"),
        Flag::Off => format!("`--no-{name}`"),
        Flag::Through(words) => format!("`{}`", words.replace('|', "\\|")),
        Flag::Absent => "none".to_owned(),
    };
    let was = option
        .was
        .map_or(String::new(), |was| format!(", earlier `{was}`"));
    format!("| {flag} | `{env}`{was} | {kind} | {default} | {doc} |\n")
}

fn own(option: &Opt) -> String {
    let (value, default) = match option.takes {
        Takes::Nothing => (String::new(), None),
        Takes::File => (" FILE".to_owned(), None),
        Takes::OptionalFile => ("[=FILE]".to_owned(), None),
        Takes::Directory => (" DIRECTORY".to_owned(), None),
        Takes::Words(words, default) => (format!(" {}", words.join("\\|")), default),
        Takes::Time(.., default) => (" TIME".to_owned(), default),
        Takes::Rate => (" SIZE".to_owned(), None),
        Takes::Number => (" N".to_owned(), None),
        Takes::Regex => (" REGEX".to_owned(), None),
        Takes::Address(default) => (" ADDRESS:PORT".to_owned(), Some(default)),
    };
    let short = option
        .short
        .map_or(String::new(), |letter| format!("`-{letter}`, "));
    let default = default.map_or(String::new(), |default| format!("`{default}`"));
    format!(
        "| {short}`--{}{value}` | {default} | {} |\n",
        option.name, option.help
    )
}

#[test]
fn the_options_page_is_what_is_declared() {
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, page()).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(found, page(), "see the head of this file");
}

#[test]
fn the_command_line_is_consistent() {
    neap().debug_assert();
}

#[test]
fn the_bounds_of_tune_are_those_of_the_library() {
    let bounds = format!("[{} to {1}; default: {1}]", classes::least(), classes::MOST);
    let tune = VERBS.iter().find(|verb| verb.name == "tune").unwrap();
    assert!(
        tune.options
            .iter()
            .any(|option| option.help.contains(&bounds)),
        "{bounds}"
    );
}

#[test]
fn the_values_of_a_profile_are_known() {
    let profile = VERBS.iter().find(|verb| verb.name == "profile").unwrap();
    let value = profile
        .options
        .iter()
        .find(|option| option.name == "value")
        .unwrap();
    let Takes::Words(words, default) = value.takes else {
        panic!("--value takes a word");
    };
    assert_eq!(words, Value::ALL.map(Value::word));
    assert_eq!(default, Some(Value::default().word()));
}

/// Each word has the same kind of value in all commands.
#[test]
fn a_word_has_one_meaning() {
    let kind = |takes| match takes {
        Takes::Nothing => "a switch",
        Takes::File | Takes::OptionalFile => "a file",
        Takes::Directory => "a directory",
        Takes::Words(..) => "a word",
        Takes::Time(..) => "a time",
        Takes::Rate => "a size",
        Takes::Number => "a number",
        Takes::Regex => "an expression",
        Takes::Address(_) => "an address",
    };
    let all = || VERBS.iter().flat_map(|verb| verb.options);
    for one in all() {
        for other in all().filter(|other| other.name == one.name) {
            assert_eq!(kind(one.takes), kind(other.takes), "--{}", one.name);
            assert_eq!(one.short, other.short, "--{}", one.name);
        }
    }
}
