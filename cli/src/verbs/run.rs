//! `neap run`: runs a program and its descendants under Neap.
//!
//! If nothing is to be printed after the program, this process becomes the program. PID, signals
//! and exit status are then right without a process in between.

use super::arguments::{file, program, time};
use crate::classes;
use crate::failure::{Failure, Outcome, say, shown};
use crate::grammar;
use crate::launch::{Program, prepare, set_variables};
use crate::progress::Talk;
use crate::recording::Writer;
use crate::session::{Leaks, Outputs, ProfileFile, Session};
use crate::statistics::{Arrival, Inbox, writable};
use crate::supervise::{self, Ending, Unwatched};
use clap::ArgMatches;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable of the status page, and its earlier name.
const STATUS_PAGE: [&str; 2] = ["NEAP_STATUS_PAGE", "NEAP_ATTACH"];
const STATS_FILE: &str = "NEAP_STATS_FILE";

/// Runs the program. Returns only on failure, or if something is to be written after it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let words = program(matches);
    if STATUS_PAGE.iter().all(|name| env::var_os(name).is_none()) {
        // The user may look at the program, however small it is.
        set_variables([(STATUS_PAGE[0], OsString::from("1"))]);
    }
    set_variables(grammar::variables(matches));
    if let Some(file) = file(matches, "classes") {
        set_variables([("NEAP_CLASSES", classes::absolute(&file)?)]);
    }
    let program = prepare(&words).map_err(|failure| misplaced(failure, &words))?;
    let destination = destination(matches)?;
    let wishes = Wishes::of(matches, destination, program.name())?;
    match wishes.watching() {
        true => watched(&program, &words, wishes),
        false => unwatched(&program, wishes.statistics),
    }
}

/// A program that cannot run may be the value of the option before it: `--record file -- program`.
fn misplaced(failure: Failure, words: &[OsString]) -> Failure {
    let arguments: Vec<OsString> = env::args_os().collect();
    let Some(start) = arguments.len().checked_sub(words.len() + 1) else {
        return failure;
    };
    let (option, value) = (arguments[start].to_string_lossy(), shown(&words[0]));
    if !failure.is_of_the_program() || !grammar::takes_an_optional_value(&option) {
        return failure;
    }
    failure.and(&format!(
        "if it is the value of {option}, write {option}={value}"
    ))
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
        let recording = file(matches, "record").map(|file| match file.as_os_str().is_empty() {
            true => PathBuf::from(named_after(program, ".neap")),
            false => file,
        });
        let leaks = match matches.get_flag("leaks") {
            true => Leaks::Printed,
            false => Leaks::Unasked,
        };
        let profile = match matches.get_one::<OsString>("profile") {
            None => None,
            Some(file) if file.is_empty() => Some(ProfileFile::usual(program)?),
            Some(file) => Some(ProfileFile::named(Path::new(file))?),
        };
        Ok(Self {
            statistics,
            writer: recording.as_deref().map(Writer::create).transpose()?,
            interval: time(matches, "interval"),
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

fn destination(matches: &ArgMatches) -> Result<Destination, Failure> {
    let Some(named) = file(matches, "stats") else {
        return Ok(Destination::Unasked);
    };
    let named = Some(named).filter(|file| !file.as_os_str().is_empty());
    let inherited = || env::var_os(STATS_FILE).filter(|file| !file.is_empty());
    Ok(match named.or_else(|| inherited().map(PathBuf::from)) {
        Some(file) => Destination::File(writable(&file)?),
        None => Destination::Us,
    })
}

/// The file of a program: its name with an ending.
fn named_after(program: &OsStr, ending: &str) -> OsString {
    let mut name = Path::new(program).file_name().unwrap_or(program).to_owned();
    name.push(ending);
    name
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
