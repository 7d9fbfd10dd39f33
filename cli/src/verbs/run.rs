//! `neap run`: runs a program and its descendants under Neap.
//!
//! If nothing is to be printed after the program, this process becomes the program. PID, signals
//! and exit status are then right without a process in between.

use super::{STATUS_PAGE, file, program, refuse_contradictions, time};
use crate::failure::{Failure, Outcome, shown};
use crate::guard::Reports;
use crate::launch::{named_after, prepare, set_variables};
use crate::output::Talk;
use crate::recording::Writer;
use crate::session::{Outputs, ProfileFile, Session};
use crate::statistics::Inbox;
use crate::supervise::{self, Ended, Ending, Unwatched};
use crate::{classes, files, grammar};
use clap::ArgMatches;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

const STATS_FILE: &str = "NEAP_STATS_FILE";
const LIMIT: &str = "NEAP_LIMIT";

/// Runs the program. Returns only on failure, or if something is to be written after it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let words = program(matches);
    if env::var_os(STATUS_PAGE).is_none() {
        // The user may look at the program, however small it is.
        set_variables([(STATUS_PAGE, OsString::from("1"))]);
    }
    set_variables(grammar::variables(matches));
    if let Some(file) = file(matches, "classes") {
        set_variables([("NEAP_CLASSES", classes::absolute(&file)?)]);
    }
    refuse_contradictions(matches, |variable| env::var_os(variable))?;
    let program = prepare(&words).map_err(|failure| misplaced(failure, &words))?;
    let inbox = inbox(matches)?;
    let reports = Reports::wanted(matches)?;
    let wishes = Wishes::of(matches, program.name())?;
    if wishes.sampling() {
        Session::sample_by_default();
    }
    let mut session = match wishes.watching() {
        true => Some(Session::new(
            &words,
            wishes.writer,
            wishes.interval,
            wishes.talk,
        )?),
        false if inbox.is_none() && reports.is_none() => {
            return Err(program.failure(&program.execute()));
        }
        false => None,
    };
    let ran = match &mut session {
        Some(session) => supervise::run(&program, session),
        None => supervise::run(&program, &mut Unwatched),
    };
    let ended = ran.map_err(|error| program.failure(&error))?;
    let ending = ended.ending;
    if let Some(inbox) = inbox {
        report(&inbox, ended, program.name());
    }
    if let Some(reports) = reports {
        reports.print();
    }
    if let Some(session) = session {
        session.finish(ending, wishes.outputs, program.name());
    }
    Ok(ending.imitate())
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

/// The requested outputs besides the program's own.
struct Wishes {
    writer: Option<Writer>,
    interval: Duration,
    outputs: Outputs,
    talk: Talk,
}

impl Wishes {
    fn of(matches: &ArgMatches, program: &OsStr) -> Result<Self, Failure> {
        let recording = file(matches, "record").map(|file| {
            if file.as_os_str().is_empty() {
                PathBuf::from(named_after("", program, ".neap"))
            } else {
                file
            }
        });
        let profile = match matches.get_one::<OsString>("profile") {
            None => None,
            Some(file) if file.is_empty() => Some(ProfileFile::usual(program)?),
            Some(file) => Some(ProfileFile::named(Path::new(file))?),
        };
        Ok(Self {
            writer: recording.as_deref().map(Writer::create).transpose()?,
            interval: time(matches, "interval"),
            outputs: Outputs {
                recording,
                profile,
                leaks: matches.get_flag("leaks"),
            },
            talk: Talk::of(matches),
        })
    }

    fn sampling(&self) -> bool {
        self.outputs.profile.is_some() || self.outputs.leaks
    }

    fn watching(&self) -> bool {
        self.sampling() || self.writer.is_some()
    }
}

/// Names the statistics' file to the program, if statistics are requested: the user's, or that of
/// an inbox from which this process prints them when the program has ended.
fn inbox(matches: &ArgMatches) -> Result<Option<Inbox>, Failure> {
    let Some(named) = file(matches, "stats") else {
        return Ok(None);
    };
    let inherited = env::var_os(STATS_FILE).unwrap_or_default();
    let mut named = [named.into_os_string(), inherited].into_iter();
    let (file, inbox) = match named.find(|file| !file.is_empty()) {
        Some(file) => (files::appendable(Path::new(&file))?, None),
        None => {
            let inbox = Inbox::new()?;
            (inbox.path().to_owned(), Some(inbox))
        }
    };
    set_variables([(STATS_FILE, file.into_os_string())]);
    Ok(inbox)
}

fn report(inbox: &Inbox, ended: Ended, program: &OsStr) {
    let program = shown(program);
    match (inbox.print(ended.pid), ended.ending) {
        (Ok(1..), _) => {}
        (Ok(0), Ending::Signal(signal)) => {
            let limit = env::var_os(LIMIT).filter(|limit| !limit.is_empty());
            let advice = limit.map_or("", |_| "; if its limit refused it memory, raise --limit");
            say!("no statistics arrived: {program} was killed by signal {signal}{advice}");
        }
        (Ok(0), Ending::Exit(_)) => say!(
            "no statistics arrived: {program} executed something that does not run \
             under Neap, or could not reach the statistics file (neap doctor -- {program} may tell)"
        ),
        (Err(error), _) => say!("the statistics cannot be printed: {error}"),
    }
}
