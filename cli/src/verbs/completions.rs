//! `neap completions`: shell completions.

use crate::failure::{Outcome, shown};
use crate::grammar;
use crate::output::print;
use clap::ArgMatches;
use clap_complete::{Shell, generate};
use std::ffi::OsString;

/// Prints the completions for the given shell.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let name = matches
        .get_one::<OsString>("SHELL")
        .expect("clap requires the shell");
    let shell: Option<Shell> = name.to_str().and_then(|name| name.parse().ok());
    let shell = shell.ok_or_else(|| {
        failure!(
            "{} is not a known shell: use bash, elvish, fish, powershell or zsh",
            shown(name)
        )
    })?;
    let mut script = Vec::new();
    generate(shell, &mut grammar::neap(), "neap", &mut script);
    print(&String::from_utf8_lossy(&script))
}
