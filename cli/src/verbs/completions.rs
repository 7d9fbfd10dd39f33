//! `neap completions`: what a shell may offer after `neap`.

use crate::failure::Failure;
use crate::{Outcome, command};
use clap::ArgMatches;
use clap_complete::{Shell, generate};
use std::io::{self, Write};

/// Prints the completions for the shell that is named.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let name = matches
        .get_one::<String>("SHELL")
        .expect("clap requires the shell");
    let shell: Shell = name.parse().map_err(Failure::own)?;
    let mut script = Vec::new();
    generate(shell, &mut command::neap(), "neap", &mut script);
    io::stdout()
        .write_all(&script)
        .map_err(|error| Failure::own(format!("cannot write the completions: {error}")))?;
    Ok(0)
}
