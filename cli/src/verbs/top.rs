//! `neap top`: running processes, at intervals.

use super::arguments::{format, time};
use crate::attach::{StatusPage, Target};
use crate::failure::{Failure, Outcome};
use crate::supervise::Ending;
use crate::top::{Feed, Form, Pace, Stop, note_signals, on_screen, plain_list, plain_one};
use clap::ArgMatches;
use neap_shared::status_page::LEAST_INTERVAL_MS;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::Duration;

/// Watches the processes.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let pace = pace(matches);
    let feed = match matches.get_one::<OsString>("PROCESS") {
        Some(word) => Some(feed(&Target::find(word)?, pace.interval)?),
        None => None,
    };
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let word = format(matches);
    if word == "screen" && !is_terminal {
        return Err(failure!(
            "the screen needs a terminal for standard input and output: use --format text"
        ));
    }
    let form = match word {
        "json" => Form::Json,
        _ => Form::Text,
    };
    note_signals();
    let stop = match feed {
        feed if is_terminal && ["", "screen"].contains(&word) => on_screen(feed, pace)?,
        Some(feed) => plain_one(feed, pace, form)?,
        None => plain_list(pace, form)?,
    };
    Ok(match stop {
        Stop::Asked => 0,
        Stop::Signal(signal) => Ending::Signal(signal).imitate(),
        Stop::Ended(title) => {
            say!("{title} has ended");
            0
        }
    })
}

fn feed(target: &Target, interval: Duration) -> Result<Feed, Failure> {
    Feed::new(StatusPage::open(target.pid)?, interval)
}

fn pace(matches: &ArgMatches) -> Pace {
    Pace {
        interval: time(matches, "interval").max(Duration::from_millis(LEAST_INTERVAL_MS)),
        count: matches.get_one("times").copied(),
    }
}
