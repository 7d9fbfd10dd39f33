//! Writes the profiles and leaks after the program's end, and says where they are.

use super::run::Session;
use super::watched::{Reading, Watched};
use crate::failure::{Failure, shown};
use crate::files;
use crate::launch::named_after;
use crate::profile::{Profile, Value, leaks, no_sample, pprof};
use crate::recording::Record;
use crate::recording::format::Embedded;
use crate::supervise::Ending;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_shared::stats::Bytes;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How to have more samples.
const FINER: &str = "sample more finely, up to --sample 4K";

/// A hint for a program with nothing live at its end.
const FREED: &str = "what a program frees as it ends, such as Python's globals, is not live here: \
    neap report -- PROGRAM shows what grew before";

/// Why there is no profile at all.
const UNSAMPLED: &str = "no process was sampled (each allocated little, or is not under Neap)";

/// At most this many live samples are few.
const FEW: u64 = 3;

/// The requested outputs.
#[derive(Default)]
pub struct Outputs {
    /// The recording, if any.
    pub recording: Option<PathBuf>,
    /// The file for the profile, if requested.
    pub profile: Option<ProfileFile>,
    /// Whether to print the sites that are still live.
    pub leaks: bool,
}

/// A file for a profile.
pub enum ProfileFile {
    /// Named by the user.
    Named(PathBuf),
    /// `neap.PROGRAM.PID.pb.gz` in this directory, the one that `neap` started in.
    In(PathBuf),
}

impl ProfileFile {
    /// Checks before the start that the file can be written and would not overwrite another kind of
    /// file.
    ///
    /// # Errors
    ///
    /// It cannot be written, or is another kind of file.
    pub fn named(file: &Path) -> Result<Self, Failure> {
        let refused = |what: &dyn std::fmt::Display| {
            let file = shown(file);
            failure!("cannot write the profile to {file}: {what}")
        };
        files::check_writable(file)?;
        let start = if file.is_file() {
            files::read(file, 2)?
        } else {
            Vec::new()
        };
        if !start.is_empty() && start != pprof::GZIP {
            return Err(refused(
                &"the file exists and is not a profile, so it is left as it is",
            ));
        }
        let absolute = std::path::absolute(file).map_err(|error| refused(&error))?;
        Ok(Self::Named(absolute))
    }

    /// The default name in the current directory. Checks before the start that such a file can be
    /// written.
    ///
    /// # Errors
    ///
    /// It cannot; the message says what else to do.
    pub fn usual(program: &OsStr) -> Result<Self, Failure> {
        let here = std::env::current_dir().map_err(|error| {
            failure!(
                "there is no current directory for the profile ({error}): name a file with \
                 --profile=FILE"
            )
        })?;
        // The program's PID is unknown yet; this process's is as long.
        let file = here.join(usual_name(program, std::process::id()));
        files::check_writable(&file)
            .map_err(|failure| failure!("{failure}; name a file elsewhere with --profile=FILE"))?;
        Ok(Self::In(here))
    }

    fn resolve(self, program: &OsStr, pid: u32) -> PathBuf {
        match self {
            Self::Named(file) => file,
            Self::In(directory) => directory.join(usual_name(program, pid)),
        }
    }
}

fn usual_name(program: &OsStr, pid: u32) -> OsString {
    named_after("neap.", program, &format!(".{pid}.pb.gz"))
}

impl Session {
    /// Writes the requested outputs after the program's end. A failure here is reported but does
    /// not change the exit code, because the program ran.
    pub fn finish(mut self, ending: Ending, outputs: Outputs, program: &OsStr) {
        self.conclude(ending);
        let profiles = if self.wants_profiles(&outputs) {
            self.profiles()
        } else {
            Vec::new()
        };
        self.embed(&profiles);
        if let Some(file) = &outputs.recording {
            self.tell_recording(file);
        }
        if let Some(file) = outputs.profile {
            self.write_profiles(&profiles, &file.resolve(program, self.main));
        }
        if outputs.leaks {
            self.print_leaks(&profiles);
        }
    }

    fn wants_profiles(&self, outputs: &Outputs) -> bool {
        self.writer.is_some() || outputs.profile.is_some() || outputs.leaks
    }

    /// The profiles of all processes with samples: the main program's first, then by bytes
    /// allocated.
    fn profiles(&self) -> Vec<Profile> {
        let read = || {
            let processes = self.processes.iter();
            processes
                .filter_map(|process| self.profile(process))
                .collect()
        };
        let mut profiles: Vec<Profile> = self.talk.during("looking up names of functions", read);
        profiles.sort_by_key(|profile| {
            let rank = u8::from(profile.pid != self.main);
            (rank, std::cmp::Reverse(profile.total().alloc_bytes))
        });
        profiles
    }

    fn profile(&self, process: &Watched) -> Option<Profile> {
        let region = process.region.as_ref()?;
        let head = region.head().ok()?;
        if head.samples == 0 {
            return None;
        }
        match region.read().and_then(|bytes| Profile::from_region(&bytes)) {
            Ok(profile) => Some(of_process(process, profile)),
            Err(failure) => {
                say!(
                    "the profile of process {} is left out: {failure}",
                    process.pid
                );
                None
            }
        }
    }

    fn embed(&mut self, profiles: &[Profile]) {
        if self.writer.is_none() {
            return;
        }
        let mut records: Vec<_> = profiles
            .iter()
            .map(|profile| embedded(profile, None, None))
            .collect();
        for process in &self.processes {
            let read = |reading: &Reading| {
                let profile = Profile::from_region(&reading.region).ok()?;
                Some((of_process(process, profile), Some(reading.t_ms)))
            };
            let early = process.early().and_then(read);
            let peak = process.peak().and_then(read);
            records.extend(early.map(|(profile, at)| embedded(&profile, None, at)));
            records.extend(peak.map(|(profile, at)| embedded(&profile, at, None)));
        }
        records.iter().for_each(|record| self.write(record));
    }

    fn tell_recording(&self, file: &Path) {
        let Some(writer) = &self.writer else {
            return;
        };
        match writer.complaint() {
            Some(complaint) => crate::failure::say(&complaint),
            None => self.talk.say(&format!(
                "wrote {} ({}); next: neap report {0}",
                argument(file),
                Bytes(writer.bytes())
            )),
        }
    }

    fn write_profiles(&self, profiles: &[Profile], file: &Path) {
        if profiles.is_empty() {
            self.talk.say(&format!("no profile: {}", self.unsampled()));
            return;
        }
        for (index, profile) in profiles.iter().enumerate() {
            let name = match index {
                0 => file.to_owned(),
                _ => beside(file, profile.pid, &profiles[..index]),
            };
            match files::write(&name, &pprof::encode(profile)) {
                Ok(()) => self.tell_profile(&name, profile),
                Err(failure) => say!("the profile of process {} is lost: {failure}", profile.pid),
            }
        }
    }

    fn tell_profile(&self, file: &Path, profile: &Profile) {
        let file = argument(file);
        self.talk.say(&format!(
            "wrote {file} ({}); next, one of:\n  neap profile {file}\n  neap report {file}\n  go \
             tool pprof -http=: {file}",
            shown(&profile.program)
        ));
    }

    /// Why no process has a profile, and what to do.
    fn unsampled(&self) -> String {
        let regions = || self.processes.iter().flat_map(|process| &process.region);
        let mut rates = regions().filter_map(|region| region.head().ok());
        match rates.find(|head| head.rate > 0 && head.samples == 0) {
            Some(head) => no_sample("what ran", head.rate, FINER),
            None => UNSAMPLED.to_owned(),
        }
    }

    /// The main program's leaks, and those of others with more than a few live samples.
    fn print_leaks(&self, profiles: &[Profile]) {
        let Some((first, others)) = profiles.split_first() else {
            return self.talk.say(&format!(
                "nothing is known to be live: {}",
                self.unsampled()
            ));
        };
        let has_few = |profile: &&Profile| profile.total().live_bytes / FEW <= profile.rate;
        let (few, many): (Vec<_>, Vec<_>) = others.iter().partition(has_few);
        for profile in std::iter::once(first).chain(many) {
            // Standard output belongs to the program. A failure to write here cannot be reported,
            // so it is ignored.
            let _ = anstream::stderr().write_all(leaks(profile, Value::LiveSpace).as_bytes());
        }
        if first.pid == self.main && first.total().live_bytes == 0 {
            self.talk.say(FREED);
        }
        if let count @ 1.. = few.len() {
            self.talk.say(&format!(
                "left out: processes with at most {FEW} live samples ({count}; see --profile)"
            ));
        }
    }
}

fn of_process(process: &Watched, profile: Profile) -> Profile {
    Profile {
        pid: process.pid,
        ..profile.called(&process.program)
    }
}

fn embedded(profile: &Profile, peak_ms: Option<u64>, early_ms: Option<u64>) -> Record {
    Record::Profile(Embedded {
        peak_ms,
        early_ms,
        pid: profile.pid,
        program: profile.program.clone(),
        pprof: STANDARD.encode(pprof::encode(profile)),
    })
}

/// A file name for the profile of a further process. A process that executed another program has
/// two profiles.
fn beside(file: &Path, pid: u32, before: &[Profile]) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{pid}"));
    let same = before.iter().filter(|profile| profile.pid == pid).count();
    if same > 0 {
        name.push(format!(".{}", same + 1));
    }
    PathBuf::from(name)
}

/// A file's name quoted for a shell, relative if that is shorter.
fn argument(file: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = file.strip_prefix(here).unwrap_or(file);
    crate::report::quoted(short)
}
