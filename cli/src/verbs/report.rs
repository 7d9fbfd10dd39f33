//! `neap report`: one page of HTML from a recording, a profile, or a run.

use super::{file, format, program};
use crate::failure::{Failure, Outcome, shown};
use crate::grammar::ReportFormat;
use crate::launch::{Program, named_after, prepare};
use crate::output::{Talk, print};
use crate::recording::Writer;
use crate::report::{Report, quoted};
use crate::session::{Outputs, Session};
use crate::{files, supervise};
use clap::ArgMatches;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, process};

/// Time between two samples of a run.
const INTERVAL: Duration = Duration::from_millis(100);

/// Writes the page, or prints the verdict.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let talk = Talk::of(matches);
    if let Some(file) = file(matches, "FILE") {
        let report = talk.during("reading", || Report::load(&file))?;
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".html");
        deliver(matches, &report, PathBuf::from(name))?;
        return Ok(0);
    }
    run(matches, &program(matches), talk)
}

/// Runs the program with a temporary recording, makes the report from it, and ends as the program
/// did.
fn run(matches: &ArgMatches, words: &[OsString], talk: Talk) -> Outcome {
    let program = prepare(words)?;
    check(matches, &program)?;
    let recording = temporary()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", recording.as_raw_fd()));
    let writer = Writer::create(&path)?;
    Session::sample_by_default();
    let mut session = Session::new(words, Some(writer), INTERVAL, talk)?;
    let ended = supervise::run(&program, &mut session).map_err(|error| program.failure(&error))?;
    session.finish(ended.ending, Outputs::default(), program.name());
    let report = talk.during("reading", || Report::load(&path))?;
    deliver(matches, &report, default_name(&program, report.pid()))?;
    Ok(ended.ending.imitate())
}

/// Checks before the program runs that the page can be written to its file.
fn check(matches: &ArgMatches, program: &Program) -> Result<(), Failure> {
    match file(matches, "output") {
        Some(file) => files::check_writable(&file),
        None if format::<ReportFormat>(matches) == ReportFormat::Json => Ok(()),
        // The program's PID is unknown yet; this process's is as long.
        None => files::check_writable(&default_name(program, process::id()))
            .map_err(|failure| failure!("{failure}; name a file elsewhere with -o FILE")),
    }
}

fn default_name(program: &Program, pid: u32) -> PathBuf {
    named_after("neap.", program.name(), &format!(".{pid}.html")).into()
}

fn deliver(matches: &ArgMatches, report: &Report, otherwise: PathBuf) -> Result<(), Failure> {
    let talk = Talk::of(matches);
    if format::<ReportFormat>(matches) == ReportFormat::Json {
        let text = format!("{:#}\n", report.json());
        return match file(matches, "output") {
            Some(file) => files::write(&file, text.as_bytes()),
            None => print(&text).map(drop),
        };
    }
    let file = file(matches, "output").unwrap_or(otherwise);
    let page = talk.during("drawing", || report.html())?;
    files::write(&file, page.as_bytes())?;
    talk.say(&format!("wrote {}; next: xdg-open {0}", quoted(&file)));
    if talk == Talk::Normal {
        print(&report.text())?;
    }
    Ok(())
}

/// A file without a name for a recording, or memory if no file can be made: `/tmp` may be mounted
/// read-only.
fn temporary() -> Result<File, Failure> {
    let file = tempfile::tempfile().or_else(|refused| {
        let memory = memfd_create("neap-recording", MemfdFlags::CLOEXEC);
        memory.map(File::from).map_err(|_| refused)
    });
    file.map_err(|refused| {
        let (room, refused) = (env::temp_dir(), files::reason(&refused));
        let room = shown(&room);
        failure!(
            "cannot record to {room}: {refused}; set TMPDIR to a directory that can be written"
        )
    })
}
