//! The settings of an experiment on the command line, and their values.

use std::path::PathBuf;
use std::time::Duration;

use crate::names::choose;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

/// The lab's own folder of records.
pub const RECORDS_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/records");

/// An option with a value.
fn option(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value)
}

/// An option that is on or off.
pub fn switch(name: &'static str, about: &'static str) -> Arg {
    let argument = Arg::new(name).long(name).help(about);
    argument.action(ArgAction::SetTrue)
}

/// A number from the first to the second of `range`.
pub fn number(name: &'static str, value: &'static str, (least, most): (u64, u64)) -> Arg {
    option(name, value).value_parser(value_parser!(u64).range(least..=most))
}

/// Names, separated by commas, that the experiment checks.
pub fn names(name: &'static str, about: &'static str) -> Arg {
    many(option(name, "NAME").help(about))
}

fn many(argument: Arg) -> Arg {
    argument.action(ArgAction::Append).value_delimiter(',')
}

/// A text.
pub fn text(name: &'static str, value: &'static str) -> Arg {
    option(name, value)
}

/// A file or a folder.
pub fn path(name: &'static str, value: &'static str) -> Arg {
    option(name, value).value_parser(value_parser!(PathBuf))
}

/// Neap's library.
pub fn neap() -> Arg {
    let about = "Neap's library (default: target/dist/libneap.so, or the one beside this program)";
    path("neap", "PATH").help(about)
}

/// The allocators.
pub fn peers() -> Arg {
    names("peers", "Only these allocators")
}

/// A short run.
pub fn quick() -> Arg {
    let about = "Small and short, to show that it works; measures little";
    switch("quick", about)
}

/// The form of the output.
pub fn json() -> Arg {
    switch("json", "Print JSON")
}

/// Where the record goes; without the folder's name, into the lab's own.
pub fn records() -> Arg {
    let about = "Keep the record and its pictures, in FOLDER or in lab/records";
    let folder = path("records", "FOLDER").help(about).num_args(0..=1);
    folder.default_missing_value(RECORDS_FOLDER)
}

/// The order of the peers.
pub fn seed() -> Arg {
    let about = "Seed for everything random, such as the order within a round";
    let seed = number("seed", "NUMBER", (0, u64::MAX));
    seed.default_value("1").help(about)
}

/// The rounds, if the experiment has a number of its own.
pub fn rounds() -> Arg {
    let about = "Interleaved rounds; fewer than six cannot separate two allocators";
    number("rounds", "NUMBER", (1, u32::MAX.into())).help(about)
}

/// The budget.
pub fn seconds() -> Arg {
    let about = "Start no run after this many seconds";
    number("seconds", "NUMBER", (0, u32::MAX.into())).help(about)
}

/// The values of the settings.
pub struct Settings<'a> {
    matches: &'a ArgMatches,
}

impl<'a> Settings<'a> {
    /// The values that clap has read.
    pub fn of(matches: &'a ArgMatches) -> Settings<'a> {
        Settings { matches }
    }

    /// A value; `None` if it is not set, or no setting of this experiment.
    fn get<T: Clone + Send + Sync + 'static>(&self, name: &str) -> Option<T> {
        self.matches.try_get_one::<T>(name).ok().flatten().cloned()
    }

    fn all<T: Clone + Send + Sync + 'static>(&self, name: &str) -> Vec<T> {
        let values = self.matches.try_get_many::<T>(name).ok().flatten();
        values.into_iter().flatten().cloned().collect()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).unwrap_or(false)
    }

    /// Whether the run is to be short.
    pub fn is_quick(&self) -> bool {
        self.is_on("quick")
    }

    /// A number, if it is set.
    pub fn maybe(&self, name: &str) -> Option<u64> {
        self.get(name)
    }

    /// A number that has a default.
    pub fn number(&self, name: &str) -> u64 {
        self.maybe(name).unwrap_or(0)
    }

    /// A number that has a default; at most `most` in a short run.
    pub fn within(&self, name: &str, most: u64) -> u64 {
        let most = if self.is_quick() { most } else { u64::MAX };
        self.number(name).min(most)
    }

    /// Names.
    pub fn names(&self, name: &str) -> Vec<String> {
        self.all(name)
    }

    /// Those of `all` whose names are set, or all of them. `what` is the word for one of them.
    ///
    /// # Errors
    /// If a name is none of theirs.
    pub fn chosen<T>(
        &self,
        (name, what): (&str, &str),
        all: Vec<T>,
        name_of: impl Fn(&T) -> &str,
    ) -> anyhow::Result<Vec<T>> {
        choose(what, &self.names(name), all, name_of)
    }

    /// A text.
    pub fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default()
    }

    /// A file or a folder.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
    }

    /// The rounds that are set; else one for a short run, and `full` for a full one.
    pub fn rounds(&self, full: u32) -> u32 {
        let usual = if self.is_quick() { 1 } else { full };
        self.maybe("rounds").map_or(usual, |rounds| rounds as u32)
    }

    /// After this, no run starts.
    pub fn budget(&self) -> Duration {
        self.maybe("seconds")
            .map_or(Duration::MAX, Duration::from_secs)
    }
}
