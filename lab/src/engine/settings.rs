//! The settings of an experiment on the command line, as data.

use std::path::PathBuf;
use std::time::Duration;

use crate::names::choose;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

/// The lab's own folder of records.
pub const RECORDS_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/records");

/// A setting.
#[derive(Clone, Copy)]
pub struct Setting {
    name: &'static str,
    value: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
    conflicts: &'static [&'static str],
}

/// What a setting's value is.
#[derive(Clone, Copy)]
enum Kind {
    /// On or off.
    Switch,
    /// A number from the first to the second.
    Number(u64, u64),
    /// Such numbers, separated by commas.
    Numbers(u64, u64),
    /// Any names, separated by commas.
    Names,
    /// A text.
    Text,
    /// A file or a folder.
    Path,
    /// A folder; without its name, the lab's own.
    Folder,
}

const fn setting(name: &'static str, value: &'static str, kind: Kind) -> Setting {
    Setting {
        name,
        value,
        kind,
        default: "",
        about: "",
        conflicts: &[],
    }
}

impl Setting {
    /// An option that is on or off.
    pub const fn switch(name: &'static str, about: &'static str) -> Setting {
        setting(name, "", Kind::Switch).about(about)
    }

    /// A number from `least` to `most`.
    pub const fn number(name: &'static str, value: &'static str, range: (u64, u64)) -> Setting {
        setting(name, value, Kind::Number(range.0, range.1))
    }

    /// Numbers from `least` to `most`.
    pub const fn numbers(name: &'static str, value: &'static str, range: (u64, u64)) -> Setting {
        setting(name, value, Kind::Numbers(range.0, range.1))
    }

    /// Names that the experiment checks.
    pub const fn names(name: &'static str, about: &'static str) -> Setting {
        setting(name, "NAME", Kind::Names).about(about)
    }

    /// A text.
    pub const fn text(name: &'static str, value: &'static str) -> Setting {
        setting(name, value, Kind::Text)
    }

    /// A file or a folder.
    pub const fn path(name: &'static str, value: &'static str) -> Setting {
        setting(name, value, Kind::Path)
    }

    /// What the setting does.
    pub const fn about(self, about: &'static str) -> Setting {
        Setting { about, ..self }
    }

    /// Its value unless set.
    pub const fn default(self, default: &'static str) -> Setting {
        Setting { default, ..self }
    }

    /// The settings that it excludes.
    pub const fn without(self, conflicts: &'static [&'static str]) -> Setting {
        Setting { conflicts, ..self }
    }

    /// The argument.
    pub fn argument(&self) -> Arg {
        let argument = Arg::new(self.name).long(self.name).help(self.about);
        let argument = argument.conflicts_with_all(self.conflicts);
        let argument = match self.default {
            "" => argument,
            default => argument.default_value(default),
        };
        let many = |argument: Arg| argument.action(ArgAction::Append).value_delimiter(',');
        let argument = match self.kind {
            Kind::Switch => return argument.action(ArgAction::SetTrue),
            Kind::Number(least, most) => {
                argument.value_parser(value_parser!(u64).range(least..=most))
            }
            Kind::Numbers(least, most) => {
                many(argument.value_parser(value_parser!(u64).range(least..=most)))
            }
            Kind::Names => many(argument),
            Kind::Text => argument,
            Kind::Path => argument.value_parser(value_parser!(PathBuf)),
            Kind::Folder => argument
                .value_parser(value_parser!(PathBuf))
                .num_args(0..=1)
                .default_missing_value(RECORDS_FOLDER),
        };
        argument.value_name(self.value)
    }
}

/// Neap's library.
pub const NEAP: Setting = Setting::path("neap", "PATH")
    .about("Neap's library (default: target/dist/libneap.so, or the one beside this program)");
/// The allocators.
pub const PEERS: Setting = Setting::names("peers", "Only these allocators");
/// A short run.
pub const QUICK: Setting = Setting::switch(
    "quick",
    "Small and short, to show that it works; measures little",
);
/// The form of the output.
pub const JSON: Setting = Setting::switch("json", "Print JSON");
/// Where the record goes.
pub const RECORDS: Setting = setting("records", "FOLDER", Kind::Folder)
    .about("Keep the record and its pictures, in FOLDER or in lab/records");
/// The order of the peers.
pub const SEED: Setting = Setting::number("seed", "NUMBER", (0, u64::MAX))
    .default("1")
    .about("Seed for everything random, such as the order within a round");

/// The rounds, if the experiment has a number of its own.
pub const ROUNDS: Setting = Setting::number("rounds", "NUMBER", (1, u32::MAX as u64))
    .about("Interleaved rounds; fewer than six cannot separate two allocators");

/// The budget.
pub const SECONDS: Setting = Setting::number("seconds", "NUMBER", (0, u32::MAX as u64))
    .about("Start no run after this many seconds");

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

    /// Numbers.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.all(name)
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
