//! `docs/options.md` says what `neap_shared::control` declares. After a change there:
//! `UPDATE_DOCS=1 cargo test -p neap-cli options_page`.

use neap_shared::control::{Declaration, Flag, OPTIONS};
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");

const HEAD: &str = "\
# Options

Every option is a variable that the library reads when the program starts. A flag of `neap run` and
`neap env` sets the variable, and overrides a variable that is already set.

- The library names a wrong value on standard error and ignores it. It empties the variable, so that
  the programs which this one starts do not name it again.
- The library names an unknown variable that begins with `NEAP_` and ignores it. It does not change
  the variable, because another program may use it. So each program of the run names it.
- In programs that gain privileges when they start (set-user-ID and the like), the library ignores
  all options.

This page is generated from `shared/src/control/options.rs`.

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
