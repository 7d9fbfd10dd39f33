//! `neap top`: running processes, at intervals.

use super::target;
use crate::attach::{Board, Target};
use crate::failure::Outcome;
use crate::failure::{Failure, say};
use crate::supervise::Ending;
use crate::top::{Feed, Form, Pace, Stop, note_signals, on_screen, plain_list, plain_one};
use clap::{Arg, ArgMatches, Command, value_parser};
use neap_shared::board::LEAST_INTERVAL_MS;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::Duration;

/// Declares the command line.
pub fn command() -> Command {
    Command::new("top")
        .about("Watch where the memory of a running process is, or list all processes under Neap")
        .after_help(
            "Keys: q quits, p has the process give its free memory back, s sorts, arrows choose and scroll, Enter looks into \
             a process, Esc goes back, ? explains. Into a pipe it writes plain lines. Lists the processes of the user who runs it; for \
             root, those of all users.",
        )
        .arg(target::process().required(false))
        .arg(target::json().help("Print one JSON object per line instead of text"))
        .arg(target::seconds("interval", "1").help("Between two looks"))
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .allow_negative_numbers(true)
                .help("End after this many updates"),
        )
}

/// Watches the processes.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let pace = pace(matches);
    let feed = match matches.get_one::<OsString>("PROCESS") {
        Some(word) => Some(feed(&Target::find(word)?, pace.interval)?),
        None => None,
    };
    let form = match matches.get_flag("json") {
        true => Form::Json,
        false => Form::Text,
    };
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    note_signals();
    let stop = match feed {
        feed if is_terminal && form == Form::Text => on_screen(feed, pace)?,
        Some(feed) => plain_one(feed, pace, form)?,
        None => plain_list(pace, form)?,
    };
    Ok(match stop {
        Stop::Asked => 0,
        Stop::Signal(signal) => Ending::Signal(signal).imitate(),
        Stop::Ended(title) => {
            say(&format!("{title} has ended"));
            0
        }
    })
}

fn feed(target: &Target, interval: Duration) -> Result<Feed, Failure> {
    Feed::new(Board::open(target.pid)?, interval)
}

fn pace(matches: &ArgMatches) -> Pace {
    let interval = matches.get_one("interval").copied();
    Pace {
        interval: interval
            .unwrap_or(Duration::from_secs(1))
            .max(Duration::from_millis(LEAST_INTERVAL_MS)),
        count: matches.get_one("count").copied(),
    }
}
