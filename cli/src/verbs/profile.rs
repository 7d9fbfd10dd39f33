//! `neap profile`: what allocated the memory of a process or of a saved profile.

use super::{file as named_file, format};
use crate::attach::Target;
use crate::failure::{Failure, Outcome, shown};
use crate::grammar::ProfileFormat;
use crate::output::{Talk, print, print_bytes};
use crate::profile::{self, Profile, Value, Waiter, Wish, pprof};
use crate::{files, recording};
use clap::ArgMatches;
use std::ffi::OsString;
use std::io::{IsTerminal, stdout};
use std::path::Path;

/// Gathers the profile and prints or writes it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let form = format(matches);
    let list = matches.get_one::<String>("list").map(String::as_str);
    let value = matches.get_one("value").copied().unwrap_or_default();
    if form == ProfileFormat::Leaks && matches!(value, Value::AllocSpace | Value::AllocObjects) {
        return Err(failure!(
            "--format leaks shows what is live: give --value live_space, live_objects or waste"
        ));
    }
    let file = named_file(matches, "output");
    check(list, form, file.as_deref())?;
    let base = named_file(matches, "base")
        .map(|base| saved(&base))
        .transpose()?;
    let mut profile = source(matches)?;
    if let Some(base) = base {
        profile = profile.since(&base)?;
    }
    let bytes = match list {
        Some(pattern) => profile::listing(&profile, value, pattern)?.into_bytes(),
        None => bytes(form, &profile, value)?,
    };
    match file {
        Some(file) => files::write(&file, &bytes).map(|()| 0),
        None if form == ProfileFormat::Pprof => print_bytes(&bytes),
        None => print(&String::from_utf8_lossy(&bytes)),
    }
}

/// Checks before a long wait that the pattern is valid and the file can be written.
fn check(list: Option<&str>, form: ProfileFormat, file: Option<&Path>) -> Result<(), Failure> {
    if form == ProfileFormat::Pprof && file.is_none() && stdout().is_terminal() {
        return Err(failure!(
            "a file of pprof's format is binary, and standard output is a terminal: name a file \
             with -o FILE, or redirect it"
        ));
    }
    list.map_or(Ok(()), profile::check_pattern)?;
    file.map_or(Ok(()), files::check_writable)
}

fn bytes(form: ProfileFormat, profile: &Profile, value: Value) -> Result<Vec<u8>, Failure> {
    let text = match form {
        ProfileFormat::Tree => profile::tree(&profile.folded(), value),
        ProfileFormat::Leaks => profile::leaks(&profile.folded(), value),
        ProfileFormat::Json => format!("{:#}\n", profile::json(profile)),
        ProfileFormat::Collapsed => profile::collapsed(profile, value),
        ProfileFormat::Flamegraph => profile::flamegraph(profile, value)?,
        ProfileFormat::Pprof => return Ok(pprof::encode(profile)),
    };
    Ok(text.into_bytes())
}

/// A word with a slash is a file. So is the name of an existing file, unless a process has that
/// name as well.
fn source(matches: &ArgMatches) -> Result<Profile, Failure> {
    let word: Option<&OsString> = matches.get_one("PROCESS");
    let word = word.ok_or_else(|| failure!("name a process or a file"))?;
    let path = Path::new(word);
    if word.as_encoded_bytes().contains(&b'/') {
        return file(path, matches);
    }
    match Target::find(word) {
        Ok(target) => process(&target, matches),
        Err(_) if path.is_file() => file(path, matches),
        Err(failure) => Err(failure),
    }
}

fn process(target: &Target, matches: &ArgMatches) -> Result<Profile, Failure> {
    let wish = Wish {
        time: matches.get_one("for").copied(),
        rate: matches.get_one("sample").copied(),
        waiter: Waiter::Person(Talk::of(matches)),
    };
    profile::gather(target, wish)
}

/// Most bytes read: one more than an unpacked file may have.
const MOST: u64 = pprof::MOST as u64 + 1;

fn file(path: &Path, matches: &ArgMatches) -> Result<Profile, Failure> {
    if matches.contains_id("for") || matches.contains_id("sample") {
        return Err(failure!(
            "{} is a file: leave --for and --sample out",
            shown(path)
        ));
    }
    saved(path)
}

/// The profile in a file.
fn saved(path: &Path) -> Result<Profile, Failure> {
    let bytes = files::read(path, MOST)?;
    if bytes.starts_with(recording::START) {
        return Err(failure!(
            "{} is a recording of `neap run --record`: use `neap report {0}`",
            shown(path)
        ));
    }
    Profile::from_file(&bytes).map_err(|failure| failure!("{}: {failure}", shown(path)))
}
