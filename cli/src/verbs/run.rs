//! `neap run`: runs a program and its descendants under Neap.
//!
//! If nothing is to be printed after the program, this process becomes the program. PID, signals
//! and exit status are then right without a process in between.

use super::tune::file_of_classes;
use crate::failure::{Failure, NOT_FOUND, say, shown};
use crate::launch::{Program, set_variables};
use crate::program::elf::Elf;
use crate::program::{Scope, follow};
use crate::progress::Talk;
use crate::recording::Writer;
use crate::session::{Leaks, Outputs, ProfileFile, Session};
use crate::statistics::{Arrival, Inbox, writable};
use crate::supervise::{self, Ending, Unwatched};
use crate::{Outcome, flags, library};
use clap::ArgMatches;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io};

const STATS: &str = "NEAP_STATS";
const ATTACH: &str = "NEAP_ATTACH";
const CHILDREN: &str = "NEAP_CHILDREN";
const STATS_FILE: &str = "NEAP_STATS_FILE";

/// Runs the program. Returns only on failure, or if something is to be written after it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let words: Vec<OsString> = matches
        .get_many("PROGRAM")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if env::var_os(ATTACH).is_none() {
        // The user may look at the program, however small it is.
        set_variables([(ATTACH, OsString::from("1"))]);
    }
    set_variables(flags::variables(matches));
    if let Some(file) = matches.get_one::<OsString>("classes") {
        set_variables([("NEAP_CLASSES", file_of_classes(Path::new(file))?)]);
    }
    let program = prepare(&words).map_err(|failure| misplaced(failure, &words))?;
    let destination = destination(matches)?;
    let wishes = Wishes::of(matches, destination, program.name())?;
    match wishes.watching() {
        true => watched(&program, &words, wishes),
        false => unwatched(&program, wishes.statistics),
    }
}

/// A program that is not found may be the value of the option before it: `--sample 4K -- program`.
fn misplaced(failure: Failure, words: &[OsString]) -> Failure {
    let arguments: Vec<OsString> = env::args_os().collect();
    let Some(start) = arguments.len().checked_sub(words.len() + 1) else {
        return failure;
    };
    let (option, value) = (arguments[start].to_string_lossy(), shown(&words[0]));
    if !failure.is_not_found() || !flags::takes_an_optional_value(&option) {
        return failure;
    }
    let message = format!("{failure}; if it is the value of {option}, write {option}={value}");
    Failure::with_code(NOT_FOUND, message)
}

/// The program that `words` lead to, with the library preloaded.
pub fn prepare(words: &[OsString]) -> Result<Program, Failure> {
    let library = library::find()?;
    let preload = library::preload(&library)?;
    let start = follow(words, &headers(&library)?).start(scope())?;
    let program = Program::new(start)?;
    set_variables([(library::PRELOAD, preload)]);
    Ok(program)
}

fn unwatched(program: &Program, statistics: Destination) -> Outcome {
    match statistics {
        Destination::Unasked => Err(program.failure(&program.execute())),
        Destination::File(file) => {
            set_variables([(STATS_FILE, file.into_os_string())]);
            Err(program.failure(&program.execute()))
        }
        Destination::Us => run_and_print(program),
    }
}

/// The requested outputs besides the program's own.
struct Wishes {
    statistics: Destination,
    writer: Option<Writer>,
    interval: Duration,
    outputs: Outputs,
    talk: Talk,
}

impl Wishes {
    fn of(matches: &ArgMatches, statistics: Destination, program: &OsStr) -> Result<Self, Failure> {
        let recording = matches.get_one::<OsString>("record").map(PathBuf::from);
        let leaks = match matches.get_flag("leaks") {
            true => Leaks::Printed,
            false => Leaks::Unasked,
        };
        let profile = match matches.get_one::<OsString>("profile") {
            None => None,
            Some(file) if file.is_empty() => Some(ProfileFile::usual(program)?),
            Some(file) => Some(ProfileFile::named(Path::new(file))?),
        };
        let interval = matches.get_one::<u64>("record-interval").copied();
        Ok(Self {
            statistics,
            writer: recording.as_deref().map(Writer::create).transpose()?,
            interval: Duration::from_millis(interval.unwrap_or(100)),
            outputs: Outputs {
                recording,
                profile,
                leaks,
            },
            talk: Talk::of(matches),
        })
    }

    fn sampling(&self) -> bool {
        self.outputs.profile.is_some() || self.outputs.leaks == Leaks::Printed
    }

    fn watching(&self) -> bool {
        self.sampling() || self.writer.is_some()
    }
}

fn watched(program: &Program, words: &[OsString], wishes: Wishes) -> Outcome {
    if wishes.sampling() {
        Session::sample_by_default();
    }
    let inbox = match wishes.statistics {
        Destination::Unasked => None,
        Destination::File(file) => {
            set_variables([(STATS_FILE, file.into_os_string())]);
            None
        }
        Destination::Us => Some(Inbox::new()?),
    };
    if let Some(inbox) = &inbox {
        set_variables([(STATS_FILE, inbox.path().as_os_str().to_owned())]);
    }
    let mut session = Session::new(words, wishes.writer, wishes.interval, wishes.talk)?;
    let ending = supervise::run(program, &mut session).map_err(|error| program.failure(&error))?;
    if let Some(inbox) = inbox {
        report(&inbox, ending, program.name());
    }
    session.finish(ending, wishes.outputs, program.name());
    Ok(ending.imitate())
}

/// The destination of the statistics.
enum Destination {
    /// Not ours to decide: none are requested, or the library's own variables name one.
    Unasked,
    /// The processes append them to this file.
    File(PathBuf),
    /// This process prints them when the program has ended.
    Us,
}

/// A file for statistics without a stated form means text.
fn destination(matches: &ArgMatches) -> Result<Destination, Failure> {
    let asked = matches.get_one::<OsString>("stats");
    let named = matches.get_one::<OsString>("stats-file");
    if asked.is_none() && named.is_some() && is_off(env::var_os(STATS).as_deref()) {
        set_variables([(STATS, OsString::from("text"))]);
    }
    let file = named
        .cloned()
        .or_else(|| env::var_os(STATS_FILE))
        .filter(|file| !file.is_empty());
    Ok(match (asked.map(OsString::as_os_str), file) {
        (None, _) if named.is_none() => Destination::Unasked,
        (Some(word), _) if is_off(Some(word)) => Destination::Unasked,
        (_, Some(file)) => Destination::File(writable(Path::new(&file))?),
        (_, None) => Destination::Us,
    })
}

fn is_off(word: Option<&OsStr>) -> bool {
    word.is_none_or(|word| word == "off")
}

fn run_and_print(program: &Program) -> Outcome {
    let inbox = Inbox::new()?;
    set_variables([(STATS_FILE, inbox.path().as_os_str().to_owned())]);
    let ending =
        supervise::run(program, &mut Unwatched).map_err(|error| program.failure(&error))?;
    report(&inbox, ending, program.name());
    drop(inbox);
    Ok(ending.imitate())
}

fn report(inbox: &Inbox, ending: Ending, program: &OsStr) {
    let program = shown(program);
    match (inbox.print(), ending) {
        (Ok(Arrival::Something), _) => {}
        (Ok(Arrival::Nothing), Ending::Signal(signal)) => {
            say(&format!(
                "no statistics arrived: {program} was killed by signal {signal}"
            ));
        }
        (Ok(Arrival::Nothing), Ending::Exit(_)) => say(&format!(
            "no statistics arrived: {program} executed something that does not run \
             under Neap, or could not reach the statistics file (neap doctor -- {program} may tell)"
        )),
        (Err(error), _) => say(&format!("the statistics cannot be printed: {error}")),
    }
}

/// The scope from the flag or from the inherited variable.
fn scope() -> Scope {
    match env::var_os(CHILDREN) {
        Some(word) if word == "0" => Scope::Alone,
        _ => Scope::Tree,
    }
}

/// The library's headers, which programs are compared with.
pub fn headers(library: &Path) -> Result<Elf, Failure> {
    let damaged = |what: &dyn std::fmt::Display| {
        Failure::own(format!(
            "{} is damaged: {what}; install it again",
            shown(library)
        ))
    };
    let headers = Elf::read(library).map_err(|error: io::Error| damaged(&error))?;
    headers.ok_or_else(|| damaged(&"no ELF headers"))
}
