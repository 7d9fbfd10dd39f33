//! Shows progress, or stays silent on request.

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How much `neap` tells about its own work on standard error. It always reports errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// What it wrote where, and what to do next.
    Normal,
    /// Only errors (`--quiet`).
    Quiet,
}

impl Talk {
    /// From the command line.
    pub fn of(matches: &ArgMatches) -> Self {
        match matches.get_flag("quiet") {
            true => Self::Quiet,
            false => Self::Normal,
        }
    }

    /// Prints one line.
    pub fn say(self, message: &str) {
        if self == Self::Normal {
            crate::failure::say(message);
        }
    }

    /// Does `work`. A terminal meanwhile shows what is being done, if that takes noticeably long.
    pub fn during<T>(self, what: &'static str, work: impl FnOnce() -> T) -> T {
        if self == Self::Quiet || !std::io::stderr().is_terminal() {
            return work();
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        if let Ok(style) = ProgressStyle::with_template("neap: {msg} {elapsed} {spinner}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        let done = work();
        bar.finish_and_clear();
        done
    }
}
