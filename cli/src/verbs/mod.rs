//! The verbs, one file each.

mod arguments;
mod completions;
mod doctor;
mod env;
mod guard;
mod help;
mod lab;
mod profile;
mod purge;
mod report;
mod run;
mod serve;
mod stat;

mod top;
mod tune;

use crate::failure::Outcome;
use crate::grammar::OVERVIEW;
use crate::output::print;
use clap::ArgMatches;

/// Performs the command line's verb.
pub fn perform(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("run", matches)) => run::perform(matches),
        Some(("report", matches)) => report::perform(matches),
        Some(("env", matches)) => env::perform(matches),
        Some(("doctor", matches)) => doctor::perform(matches),
        Some(("profile", matches)) => profile::perform(matches),
        Some(("lab", matches)) => lab::perform(matches),
        Some(("stat", matches)) => stat::perform(matches),
        Some(("serve", matches)) => serve::perform(matches),
        Some(("top", matches)) => top::perform(matches),
        Some(("tune", matches)) => tune::perform(matches),
        Some(("purge", matches)) => purge::perform(matches),
        Some(("guard", matches)) => guard::perform(matches),
        Some(("completions", matches)) => completions::perform(matches),
        Some(("help", matches)) => help::perform(matches),
        None => print(OVERVIEW),
        other => unreachable!("clap accepts only declared verbs: {other:?}"),
    }
}
