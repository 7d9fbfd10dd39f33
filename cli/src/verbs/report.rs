//! `neap report`: one page of HTML from a recording, a profile, or a run.

use crate::failure::{Failure, say, shown};
use crate::report::Report;
use crate::table::print;
use crate::{Outcome, progress};
use clap::ArgMatches;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

/// Writes the page, or prints the verdict.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let file = matches.get_one::<OsString>("FILE").map(PathBuf::from);
    let Some(file) = file else {
        return Err(Failure::own("not yet"));
    };
    let quiet = progress::Talk::of(matches);
    let report = quiet.during("reading", || Report::load(&file))?;
    finish(matches, &report, quiet, || {
        let name = file.file_name().unwrap_or_default();
        PathBuf::from(name).with_added_extension("html")
    })
}
