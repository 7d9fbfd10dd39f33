//! `docs/options.md` agrees with the declarations in `neap::control`. After a change there:
//! `UPDATE_DOCS=1 cargo test -p neap-cli options_page`.

use neap::control::{Declaration, Flag, OPTIONS};
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");

const HEAD: &str = "\
# Options

Every option is a variable that the library reads when the program starts, and a flag
of `neap run` and `neap env` that sets this variable. A flag overrules a variable that is
already set. The library reports a wrong value on standard error and ignores it. It also empties
the variable, so that child processes do not report it again. Every process reports and ignores an
unknown variable that begins with `NEAP_`, but leaves it set, because it may be another program's.
A program that gains privileges when it starts (such as a set-user-ID program) ignores all of them.

This page is generated from `core/src/control.rs`.

| flag | variable | values | default | what it does |
|---|---|---|---|---|
";

fn page() -> String {
    OPTIONS.iter().fold(HEAD.to_owned(), |mut page, option| {
        let default = if option.default.is_empty() {
            "none".to_owned()
        } else {
            format!("`{}`", option.default)
        };
        let Declaration { env, kind, doc, .. } = option;
        writeln!(
            page,
            "| `{}` | `{env}` | {kind} | {default} | {doc} |",
            flag(option)
        )
        .unwrap();
        page
    })
}

fn flag(option: &Declaration) -> String {
    match option.flag() {
        Flag::Value => format!("--{} VALUE", option.name),
        Flag::Optional(_) => format!("--{}[=VALUE]", option.name),
        Flag::Off => format!("--no-{}", option.name),
        Flag::Absent => "none".to_owned(),
    }
}

#[test]
fn the_page_is_what_is_declared() {
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, page()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(PAGE).unwrap_or_default(),
        page(),
        "see the head of this file"
    );
}
