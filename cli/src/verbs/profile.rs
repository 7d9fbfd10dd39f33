//! `neap profile`: what allocated the memory of a process or of a saved profile.

use crate::attach::Target;
use crate::failure::Outcome;
use crate::failure::{Failure, shown};
use crate::output::print;
use crate::profile::{self, Profile, Talk, Value, Wish, pprof};
use crate::recording;
use clap::ArgMatches;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Gathers the profile and prints or writes it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let form = Form::of(matches);
    let value = value(matches);
    if matches!(form, Form::Leaks) && matches!(value, Value::AllocSpace | Value::AllocObjects) {
        return Err(Failure::own(
            "--leaks shows what is live: give --value live_space, live_objects or waste",
        ));
    }
    form.check()?;
    let profile = source(matches)?;
    form.put(&profile, value)
}

/// The output.
enum Form<'a> {
    Tree,
    Leaks,
    Json,
    List(&'a str),
    Collapsed(Option<&'a Path>),
    Flamegraph(&'a Path),
    Pprof(&'a Path),
}

impl<'a> Form<'a> {
    fn of(matches: &'a ArgMatches) -> Self {
        let file = |name: &str| matches.get_one::<OsString>(name).map(Path::new);
        if let Some(file) = file("pprof") {
            Self::Pprof(file)
        } else if let Some(file) = file("flamegraph") {
            Self::Flamegraph(file)
        } else if matches.contains_id("collapsed") {
            Self::Collapsed(file("collapsed").filter(|file| !file.as_os_str().is_empty()))
        } else if let Some(pattern) = matches.get_one::<String>("list") {
            Self::List(pattern)
        } else if matches.get_flag("leaks") {
            Self::Leaks
        } else if matches.get_flag("json") {
            Self::Json
        } else {
            Self::Tree
        }
    }

    /// Checks before a long wait that the pattern is valid and the file can be written.
    fn check(&self) -> Result<(), Failure> {
        match self {
            Self::List(pattern) => profile::check_pattern(pattern),
            Self::Collapsed(Some(file)) | Self::Flamegraph(file) | Self::Pprof(file) => {
                profile::check_writable(file)
            }
            Self::Tree | Self::Leaks | Self::Json | Self::Collapsed(None) => Ok(()),
        }
    }

    fn put(&self, profile: &Profile, value: Value) -> Outcome {
        match self {
            Self::Tree => print(&profile::tree(&profile.folded(), value)),
            Self::Leaks => print(&profile::leaks(&profile.folded(), value)),
            Self::Json => print(&format!("{:#}\n", profile::json(profile))),
            Self::List(pattern) => print(&profile::listing(profile, value, pattern)?),
            Self::Collapsed(None) => print(&profile::collapsed(profile, value)),
            Self::Collapsed(Some(file)) => {
                put_file(file, profile::collapsed(profile, value).as_bytes())
            }
            Self::Flamegraph(file) => {
                put_file(file, profile::flamegraph(profile, value)?.as_bytes())
            }
            Self::Pprof(file) => put_file(file, &pprof::encode(profile)),
        }
    }
}

fn put_file(file: &Path, bytes: &[u8]) -> Outcome {
    profile::write(file, bytes).map(|()| 0)
}

fn value(matches: &ArgMatches) -> Value {
    let word = matches.get_one::<String>("value");
    word.and_then(|word| Value::of_word(word))
        .unwrap_or_default()
}

/// A word with a slash is a file. So is the name of an existing file, unless a process has that
/// name as well.
fn source(matches: &ArgMatches) -> Result<Profile, Failure> {
    let word: Option<&OsString> = matches.get_one("TARGET");
    let word = word.ok_or_else(|| Failure::own("name a process or a file"))?;
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
    let seconds = matches.get_one::<f64>("seconds");
    let wish = Wish {
        time: seconds.map(|&seconds| Duration::from_secs_f64(seconds)),
        rate: matches.get_one("rate").copied(),
        talk: match matches.get_flag("quiet") {
            true => Talk::Quiet,
            false => Talk::Progress,
        },
    };
    profile::gather(target, wish)
}

/// Most bytes read: one more than an unpacked file may have.
const MOST: u64 = pprof::MOST as u64 + 1;

fn file(path: &Path, matches: &ArgMatches) -> Result<Profile, Failure> {
    if matches.contains_id("seconds") || matches.contains_id("rate") {
        return Err(Failure::own(format!(
            "{} is a file: leave --seconds and --rate out",
            shown(path)
        )));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes))
        .map_err(|error| Failure::own(format!("cannot read {}: {error}", shown(path))))?;
    if bytes.starts_with(recording::START) {
        return Err(Failure::own(format!(
            "{} is a recording of `neap run --record`: use `neap report {0}`",
            shown(path)
        )));
    }
    Profile::from_file(&bytes).map_err(|failure| match is_alien(&bytes) {
        true => Failure::own(format!(
            "{} is no pprof profile: give a file of `neap run --profile`, of `neap profile --pprof` or of another tool \
             that writes pprof's format",
            shown(path)
        )),
        false => Failure::own(format!("{}: {failure}", shown(path))),
    })
}

/// Whether the bytes of a file were never a profile, rather than a damaged one: they begin neither
/// as a compressed file nor with a profile's first field nor as a region, and are no message.
fn is_alien(bytes: &[u8]) -> bool {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const FIRST_FIELD: &[u8] = &[0x0a];
    let region = neap_shared::sites::MAGIC.to_le_bytes();
    let starts = [GZIP, FIRST_FIELD, &region];
    let begins_well = starts.iter().any(|start| bytes.starts_with(start));
    let is_too_long = bytes.len() > pprof::MOST;
    !begins_well && !is_too_long && !pprof::is_message(bytes)
}
