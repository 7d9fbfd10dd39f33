//! `neap stat`: where the memory of a running process is.

use super::target;
use crate::attach::Board;
use crate::failure::Outcome;
use crate::failure::TIMED_OUT;
use crate::output::print;
use crate::view::{State, View, json, metrics, text};
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Declares the command line.
pub fn command() -> Command {
    Command::new("stat")
        .about("Say where the memory of a running process is")
        .after_help(
            "Exits with 124 if the process did not answer in time: what is shown then is what its page heap and the kernel \
             know without it, and why it did not answer. With 125 if there is nothing to show.",
        )
        .arg(target::process())
        .arg(target::json())
        .arg(
            Arg::new("prometheus")
                .long("prometheus")
                .action(ArgAction::SetTrue)
                .conflicts_with("json")
                .help("Print metrics in Prometheus' text format instead of tables"),
        )
        .arg(target::timeout())
}

/// Prints the tables.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = target::of(matches)?;
    let board = Board::open(target.pid)?;
    let patience = target::patience(matches);
    let view = View::ask(&board, patience)?;
    let page = match (matches.get_flag("json"), matches.get_flag("prometheus")) {
        (true, _) => format!("{}\n", json::object(&view)),
        (_, true) => metrics::page(std::slice::from_ref(&view)),
        _ => text::page(&view, &target::advice(patience, board.silence())),
    };
    print(&page)?;
    Ok(match view.state {
        State::Fresh => 0,
        State::Pending => i32::from(TIMED_OUT),
    })
}
