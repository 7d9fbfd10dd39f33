//! The input of a report: recordings, profiles, and the memory errors that guarded samples found.

use crate::failure::{Failure, shown};
use crate::profile::{Extent, Profile, base, bounded, gap, pprof};
use crate::recording::format::{Embedded, Event, Happening};
use crate::recording::{self, Recording};
use crate::report::known;
use crate::{files, guard};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// A recording, profiles, or both.
#[derive(Debug, Default)]
pub struct Material {
    /// The recording.
    pub recording: Option<Recording>,
    /// The recording's profiles, or the file's.
    pub profiles: Vec<Profile>,
    /// The recording's profiles from a process's peak, each with its time in ms.
    pub peaks: Vec<(u64, Profile)>,
    /// Profiles from the second quarter of a process's time, each with its time in ms.
    pub early: Vec<(u64, Profile)>,
    /// Memory errors of the recording's processes, or those of the file.
    pub errors: Vec<Errors>,
    /// Notes for people: what could not be used, or has an unusual meaning.
    pub notes: Vec<String>,
}

/// Most bytes of a profile, or of reports.
const LARGEST: u64 = 256 << 20;

/// Reads a recording, a profile, or the reports of guarded samples.
///
/// # Errors
///
/// The file cannot be read, is none of these, or is damaged.
pub fn load(file: &Path) -> Result<Material, Failure> {
    match start(file)? {
        pprof::GZIP => of_profile(file),
        [b'{', _] => Ok(Material::new(recording::read(file)?)),
        [b'n', _] if guard::is_start(&files::read(file, 8)?) => of_guards(file),
        _ => Err(failure!(
            "{} is no recording (neap run --record), no profile (neap run --profile) and no reports \
             (--guard-file); for a program write: neap report -- {0}",
            shown(file)
        )),
    }
}

impl Material {
    /// The recording and its profiles. A damaged profile is left out and noted.
    pub fn new(recording: Recording) -> Self {
        let mut material = Self::default();
        for embedded in &recording.profiles {
            material.take(embedded, &recording);
        }
        if recording.left_out > 0 {
            material.notes.push(format!(
                "The recording ends in the middle of a line: its last {} bytes are left out.",
                recording.left_out
            ));
        }
        material.errors = errors(&recording);
        material.recording = Some(recording);
        material
    }

    fn take(&mut self, embedded: &Embedded, recording: &Recording) {
        let taken_ms = embedded.early_ms.or(embedded.peak_ms);
        let most = held(recording, embedded.pid, taken_ms.unwrap_or(u64::MAX));
        let profile = decoded(&embedded.pprof).map(|profile| Profile {
            pid: embedded.pid,
            program: embedded.program.clone(),
            ..bounded(profile, most)
        });
        match (profile, embedded.early_ms, embedded.peak_ms) {
            (Ok(profile), Some(early_ms), _) => self.early.push((early_ms, profile)),
            (Ok(profile), None, Some(peak_ms)) => self.peaks.push((peak_ms, profile)),
            (Ok(profile), None, None) => self.profiles.push(profile),
            (Err(failure), ..) => self.notes.push(format!(
                "A profile of process {} is damaged and left out: {failure}.",
                embedded.pid
            )),
        }
    }
}

/// The most usable bytes that a process can have held when it was last counted before `t_ms`.
/// Unlimited if that is unknown, as for a process that executed another program.
fn held(recording: &Recording, pid: u32, t_ms: u64) -> u64 {
    let came = |event: &&Event| event.pid == pid && matches!(event.what, Happening::Came { .. });
    if recording.events.iter().filter(came).count() > 1 {
        return u64::MAX;
    }
    let of_process = recording.samples.iter().filter(|sample| sample.pid == pid);
    let counts = of_process.flat_map(|sample| {
        let told = sample.told().map(|told| (told.at_ms, known::held(&told)));
        let counted = sample.spans.map(|spans| (sample.t_ms, spans.taken()));
        told.into_iter().chain(counted)
    });
    let last = counts.filter(|(at_ms, _)| *at_ms <= t_ms).max();
    last.map_or(u64::MAX, |(_, bytes)| bytes)
}

fn decoded(base64: &str) -> Result<Profile, Failure> {
    let bytes = STANDARD
        .decode(base64)
        .map_err(|error| Failure::own(error.to_string()))?;
    pprof::decode(&bytes)
}

fn of_profile(file: &Path) -> Result<Material, Failure> {
    let profile = pprof::decode(&files::read(file, LARGEST)?)
        .map_err(|failure| failure!("{}: {failure}", shown(file)))?;
    let notes = session_note(&profile).into_iter().chain(gap(&profile));
    Ok(Material {
        notes: notes.collect(),
        profiles: vec![profile],
        ..Material::default()
    })
}

fn of_guards(file: &Path) -> Result<Material, Failure> {
    let text = files::read(file, LARGEST)?;
    let made = fs::metadata(file).and_then(|found| found.created()).ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    // The reports say not when they were written: no earlier than their file.
    let began_ms = made.map_or(0, |made| made.as_millis() as u64);
    let errors = of_reports(&String::from_utf8_lossy(&text), began_ms);
    if errors.is_empty() {
        return Err(failure!("{} has no report of a process", shown(file)));
    }
    Ok(Material {
        errors,
        ..Material::default()
    })
}

fn session_note(profile: &Profile) -> Option<String> {
    match profile.extent {
        Extent::Whole => None,
        Extent::Session { .. } => Some(
            "The profile is of one session of a process that had sampled before: what is called \
             live here is by how much \
             what is live at each place grew in that time."
                .to_owned(),
        ),
    }
}

fn start(file: &Path) -> Result<[u8; 2], Failure> {
    let is_special = fs::metadata(file).is_ok_and(|found| !found.is_file());
    if is_special {
        return Err(failure!("{} is not an ordinary file", shown(file)));
    }
    Ok(files::read(file, 2)?.try_into().unwrap_or_default())
}

/// The variable that names the file for reports.
const FILE: &str = "NEAP_GUARD_FILE";
/// Most bytes read of the file.
const MOST: u64 = 16 << 20;
/// Most processes whose errors are told.
const PROCESSES: usize = 20;

/// The errors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Its PID.
    pub pid: u32,
    /// Its program; may be empty.
    pub program: String,
    /// How many.
    pub count: u64,
    /// Their reports, as far as they can be read. Untrusted.
    pub reports: String,
}

/// The errors of each process of the recording that made some.
fn errors(recording: &Recording) -> Vec<Errors> {
    let mut counts = BTreeMap::new();
    let guards = recording.samples.iter().filter_map(|sample| {
        let errors = sample.guards?.errors;
        (errors > 0).then_some((sample.pid, errors))
    });
    for (pid, errors) in guards {
        let most = counts.entry(pid).or_insert(0);
        *most = errors.max(*most);
    }
    let text = if counts.is_empty() {
        String::new()
    } else {
        file(recording)
    };
    let found = counts.into_iter().take(PROCESSES);
    let found = found.map(|(pid, count)| Errors {
        program: program(recording, pid),
        ..Errors::of(pid, count, &text, recording.head.started_ms)
    });
    found.collect()
}

impl Errors {
    /// Of a process whose name is not known, with its part of the text of all reports.
    fn of(pid: u32, count: u64, text: &str, began_ms: u64) -> Self {
        Self {
            pid,
            program: String::new(),
            count,
            reports: guard::of_process(text, pid, count, began_ms),
        }
    }
}

/// The errors of each process with reports in a file of them (`--guard-file`); of many, the last.
/// A mapped file that changed since `began_ms` may not be the one of the report.
pub fn of_reports(text: &str, began_ms: u64) -> Vec<Errors> {
    let processes = guard::processes(text);
    let last = processes.len().saturating_sub(PROCESSES);
    let found = processes.into_iter().skip(last);
    let found = found.map(|(pid, count)| Errors::of(pid, count, text, began_ms));
    found.collect()
}

/// What the program last was.
fn program(recording: &Recording, pid: u32) -> String {
    let names = recording.events.iter().filter(|event| event.pid == pid);
    let mut names = names.filter_map(|event| match &event.what {
        Happening::Came { program, .. } => Some(program.clone()),
        _ => None,
    });
    let last = names.next_back().unwrap_or_default();
    let head = &recording.head;
    if last.is_empty() && head.pid == pid.cast_signed() {
        base(&head.program).to_owned()
    } else {
        last
    }
}

/// The file of the reports; empty if there is none, or if the user may not read it. The recording
/// may come from anywhere, so what is taken of the file must look like a report.
fn file(recording: &Recording) -> String {
    let name = recording.head.options.get(FILE);
    let bytes = name.and_then(|name| files::foreign(Path::new(name), MOST));
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Switched;

    #[test]
    fn a_profile_of_a_session_comes_with_a_note() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("profile.pb.gz");
        let noted = |extent| {
            let profile = Profile {
                extent,
                ..Profile::default()
            };
            std::fs::write(&file, pprof::encode(&profile)).unwrap();
            load(&file).unwrap().notes
        };
        assert_eq!(noted(Extent::Whole), Vec::<String>::new());
        let [note] = noted(Extent::Session { shrunk: 3 }).try_into().unwrap();
        assert!(note.contains("one session"), "{note}");
    }

    #[test]
    fn a_profile_whose_sampling_was_switched_off_comes_with_a_note() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("profile.pb.gz");
        let profile = Profile {
            rate: 65536,
            switched: Some(Switched {
                rate: 0,
                after_ms: 800,
            }),
            ..Profile::default()
        };
        std::fs::write(&file, pprof::encode(&profile)).unwrap();
        let [note] = load(&file).unwrap().notes.try_into().unwrap();
        assert!(
            note.contains("switched off by another neap 0.8 s"),
            "{note}"
        );
    }
}
