//! `neap help`: the commands, one command, or the manual pages.

use crate::failure::{Outcome, shown};
use crate::grammar;
use crate::output::print;
use clap::ArgMatches;
use std::ffi::OsString;
use std::path::Path;

/// Prints the help, or writes the pages.
pub fn perform(matches: &ArgMatches) -> Outcome {
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
