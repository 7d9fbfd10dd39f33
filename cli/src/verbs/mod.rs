//! The verbs, one file each.

mod completions;
mod doctor;
mod env;
mod lab;
mod report;
mod run;

use crate::Outcome;
use clap::ArgMatches;

/// Does what the command line says.
pub fn perform(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("run", matches)) => run::perform(matches),
        Some(("report", matches)) => report::perform(matches),
        Some(("env", matches)) => env::perform(matches),
        Some(("doctor", matches)) => doctor::perform(matches),
        Some(("lab", matches)) => lab::perform(matches),
        Some(("completions", matches)) => completions::perform(matches),
        other => unreachable!("clap accepts only declared verbs: {other:?}"),
    }
}
