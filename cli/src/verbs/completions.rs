//! `neap completions`: shell completions.

use crate::failure::Failure;
use crate::failure::Outcome;
use crate::grammar;
use crate::output::print;
use clap::ArgMatches;
use clap_complete::{Shell, generate};

/// Prints the completions for the given shell.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let name = matches
        .get_one::<String>("SHELL")
        .expect("clap requires the shell");
    let shell: Shell = name.parse().map_err(Failure::own)?;
    let mut script = Vec::new();
    generate(shell, &mut grammar::neap(), "neap", &mut script);
    print(&String::from_utf8_lossy(&script))
}
