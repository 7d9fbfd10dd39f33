//! Telling people that something takes a while, and staying silent where they asked for it.

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How much `neap` says about itself on standard error. Errors are told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// What was written where, and what to do next.
    Normal,
    /// Nothing (`--quiet`).
    Quiet,
}

impl Talk {
    /// What the command line says.
    pub fn of(matches: &ArgMatches) -> Self {
        match matches.get_flag("quiet") {
            true => Self::Quiet,
            false => Self::Normal,
        }
    }

    /// One line.
    pub fn say(self, message: &str) {
        if self == Self::Normal {
            crate::failure::say(message);
        }
    }

    /// Does `work`; a terminal shows meanwhile what is being done, if that takes long enough to be wondered about.
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
