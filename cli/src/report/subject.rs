//! The process that a report is about, and what is known of it.

use super::known::History;
use super::material::{Errors, Material};
use crate::profile::{Profile, base};
use crate::recording::Recording;
use crate::recording::format::{Classes, Event, Frontend, Happening, Sample};
use neap_shared::control::{self, Value};

/// The variable that switches sampling on.
const SAMPLE: &[u8] = b"NEAP_SAMPLE";

/// One process.
#[derive(Debug, Default)]
pub struct Subject<'a> {
    /// Its PID; 0: unknown.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// In order of time; may be empty.
    pub samples: Vec<&'a Sample>,
    /// Its size classes when they were last written.
    pub classes: Option<&'a Classes>,
    /// Its events.
    pub events: Vec<&'a Event>,
    /// Its profile.
    pub profile: Option<&'a Profile>,
    /// Its profile at its peak, with the time in ms.
    pub at_peak: Option<&'a (u64, Profile)>,
    /// Its profile from the second quarter of its time, with the time in ms.
    pub early: Option<&'a (u64, Profile)>,
    /// Its kind of heap.
    pub frontend: Frontend,
    /// What it finally executed.
    pub became: Option<String>,
    /// Between two samples.
    pub interval_ms: u64,
    /// Why it has no profile, if it has none.
    pub sampling: Sampling,
    /// Memory errors, of other processes of the recording as well.
    pub errors: &'a [Errors],
}

/// Why a process has no profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Its allocations were not sampled.
    #[default]
    Off,
    /// They were, once in this many bytes on average, and no sample fell.
    Every(u64),
    /// They were, but its end is not in the recording, or its profile is damaged.
    Lost,
}

/// Summary of a process of the recording, from its start or its last `exec`.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its PID.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The highest resident count seen, in bytes.
    pub peak: u64,
    /// Its kind of heap.
    pub frontend: Frontend,
    /// What it finally executed.
    pub became: Option<String>,
    /// Before this time, in ms, the PID ran another program.
    from_ms: u64,
    /// From this time on, in ms, it runs another program.
    until_ms: Option<u64>,
}

impl Process {
    fn has(&self, pid: u32, t_ms: u64) -> bool {
        let before_the_next = self.until_ms.is_none_or(|until| t_ms < until);
        self.pid == pid && self.from_ms <= t_ms && before_the_next
    }

    /// Whether a profile with this PID and name belongs to it.
    fn is_of(&self, profile: &Profile) -> bool {
        let is_alone = self.from_ms == 0 && self.until_ms.is_none();
        self.pid == profile.pid && (is_alone || self.program == profile.program)
    }
}

impl<'a> Subject<'a> {
    /// The largest process of `material`.
    pub fn choose(material: &'a Material) -> Self {
        match processes(material).first() {
            Some(process) => Self::of(process, material),
            None => Self::of_profile(material),
        }
    }

    fn of(process: &Process, material: &'a Material) -> Self {
        let recording = material.recording.as_ref();
        let all = recording.iter().flat_map(|recording| &recording.samples);
        let ours = all.filter(|sample| process.has(sample.pid, sample.t_ms));
        let mut samples: Vec<_> = ours.collect();
        samples.sort_by_key(|sample| sample.t_ms);
        let mut classes = recording.iter().flat_map(|recording| &recording.classes);
        let classes = classes
            .rfind(|classes| process.has(classes.pid, classes.t_ms) && !classes.classes.is_empty());
        let events = recording.iter().flat_map(|recording| &recording.events);
        let events = events.filter(|event| process.has(event.pid, event.t_ms));
        let of_process = |profiles: &'a [(u64, Profile)]| {
            let mut profiles = profiles.iter();
            profiles.rfind(|(_, profile)| process.is_of(profile))
        };
        let mut profiles = material.profiles.iter();
        let mut subject = Self {
            pid: process.pid,
            program: process.program.clone(),
            samples,
            classes,
            events: events.collect(),
            at_peak: of_process(&material.peaks),
            early: of_process(&material.early),
            profile: profiles.rfind(|profile| process.is_of(profile)),
            frontend: process.frontend,
            became: process.became.clone(),
            interval_ms: recording.map_or(0, |recording| recording.head.interval_ms),
            sampling: Sampling::Off,
            errors: &material.errors,
        };
        subject.sampling = recording.map_or(Sampling::Off, |recording| subject.sampling(recording));
        subject
    }

    fn sampling(&self, recording: &Recording) -> Sampling {
        let option = control::find(SAMPLE).expect("the variable is declared");
        let value = recording.head.options.get(option.env);
        let rate = value.and_then(|value| control::parse(option.kind, value.as_bytes()).ok());
        let mut embedded = recording.profiles.iter();
        let is_whole = self.ending().is_some() && !embedded.any(|profile| profile.pid == self.pid);
        match rate {
            Some(Value::Bytes(rate)) if is_whole => Sampling::Every(rate),
            Some(_) => Sampling::Lost,
            None => Sampling::Off,
        }
    }

    fn of_profile(material: &'a Material) -> Self {
        let profile = material.profiles.first();
        let head = material.recording.as_ref().map(|recording| &recording.head);
        let program = match (head, profile) {
            (Some(head), _) => base(&head.program).to_owned(),
            (None, Some(profile)) => profile.program.clone(),
            (None, None) => String::new(),
        };
        let pid = match (profile, material.errors.as_slice()) {
            (Some(profile), _) => profile.pid,
            (None, [errors]) => errors.pid,
            (None, _) => 0,
        };
        Self {
            pid,
            program: named(program, pid),
            profile,
            errors: &material.errors,
            ..Self::default()
        }
    }

    /// What is known over time, and of which moments.
    pub fn history(&self) -> History<'a> {
        History::new(&self.samples, self.interval_ms, self.duration_ms())
    }

    /// How it ended, if that was observed.
    pub fn ending(&self) -> Option<&'a Happening> {
        use Happening::{Ended, Exited, Killed};
        let ends = |what: &&Happening| matches!(what, Ended | Exited { .. } | Killed { .. });
        self.events.iter().map(|event| &event.what).rfind(ends)
    }

    /// From the program's start to the last record of the process, in ms.
    pub fn duration_ms(&self) -> u64 {
        let samples = self.samples.iter().map(|sample| sample.t_ms);
        let events = self.events.iter().map(|event| event.t_ms);
        samples.chain(events).max().unwrap_or(0)
    }
}

/// The processes of the recording, largest first. A process that executed a program appears twice,
/// because its earlier figures are of another heap.
pub fn processes(material: &Material) -> Vec<Process> {
    let Some(recording) = &material.recording else {
        return Vec::new();
    };
    let mut found = starts(recording);
    for sample in &recording.samples {
        let rss = sample.told().map_or(0, |told| told.rss).max(sample.rss);
        let mut known = found.iter_mut();
        match known.find(|process| process.has(sample.pid, sample.t_ms)) {
            Some(process) => process.peak = process.peak.max(rss),
            None => found.push(Process {
                pid: sample.pid,
                peak: rss,
                ..Process::default()
            }),
        }
    }
    for process in &mut found {
        if process.program.is_empty() && process.pid.cast_signed() == recording.head.pid {
            base(&recording.head.program).clone_into(&mut process.program);
        }
        process.program = named(std::mem::take(&mut process.program), process.pid);
    }
    // Drop a process that called `exec` before its first sample.
    found.retain(|process| process.until_ms.is_none() || process.peak > 0);
    found.sort_by_key(|process| std::cmp::Reverse(process.peak));
    found
}

/// The starts, as far as the events tell.
fn starts(recording: &Recording) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    for event in &recording.events {
        let before = found.iter_mut().rfind(|process| process.pid == event.pid);
        let (program, frontend) = match (&event.what, before.is_some()) {
            (Happening::Came { program, frontend }, _) => (program, frontend),
            (Happening::OwnHeap, true) => {
                let process = before.into_iter();
                process.for_each(|process| process.frontend = Frontend::Rust);
                continue;
            }
            _ => continue,
        };
        let from_ms = match before {
            None => 0,
            Some(before) => {
                before.until_ms = Some(event.t_ms);
                before.became = Some(program.clone());
                event.t_ms
            }
        };
        found.push(Process {
            pid: event.pid,
            program: program.clone(),
            frontend: *frontend,
            from_ms,
            ..Process::default()
        });
    }
    found
}

/// A process that ended before its name could be read is named by its PID.
fn named(program: String, pid: u32) -> String {
    match (program.is_empty(), pid) {
        (false, _) => program,
        (true, 0) => "the program".to_owned(),
        (true, pid) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Head;
    use crate::recording::format::{Embedded, Heap};

    fn came(t_ms: u64, pid: u32, program: &str) -> Event {
        let program = program.to_owned();
        let frontend = Frontend::Library;
        let what = Happening::Came { program, frontend };
        Event { t_ms, pid, what }
    }

    fn recording(events: Vec<Event>, samples: Vec<Sample>) -> Material {
        let head = Head {
            program: "./server".to_owned(),
            pid: 7,
            ..Head::default()
        };
        let mut material = Material::new(Recording::new(head));
        let recording = material.recording.as_mut().unwrap();
        (recording.events, recording.samples) = (events, samples);
        material
    }

    fn sample(t_ms: u64, pid: u32, rss: u64) -> Sample {
        let sample = Sample {
            t_ms,
            pid,
            rss,
            ..Sample::default()
        };
        sample.with(Heap {
            rss,
            ..Heap::default()
        })
    }

    #[test]
    fn a_process_whose_name_was_not_seen_has_one_all_the_same() {
        let events = vec![came(1, 7, ""), came(1, 8, "")];
        let material = recording(events, vec![sample(5, 7, 9), sample(5, 8, 3)]);
        let names: Vec<_> = processes(&material)
            .into_iter()
            .map(|process| process.program)
            .collect();
        assert_eq!(names, ["server", "process 8"]);
        assert_eq!(Subject::choose(&Material::default()).program, "the program");
    }

    #[test]
    fn a_process_without_samples_is_told_from_one_that_was_not_sampled() {
        let ended = Event {
            t_ms: 10,
            pid: 7,
            what: Happening::Exited { status: 0 },
        };
        let sampling = |rate: Option<&str>, events: &[&Event], profiles: &[Embedded]| {
            let events = events.iter().map(|event| (*event).clone()).collect();
            let mut material = recording(events, vec![sample(5, 7, 9)]);
            let recording = material.recording.as_mut().unwrap();
            recording.profiles = profiles.to_vec();
            let options = &mut recording.head.options;
            options.extend(rate.map(|rate| ("NEAP_SAMPLE".to_owned(), rate.to_owned())));
            Subject::choose(&material).sampling
        };
        assert_eq!(sampling(None, &[&ended], &[]), Sampling::Off);
        assert_eq!(sampling(Some("lots"), &[&ended], &[]), Sampling::Off);
        let fine = sampling(Some("512K"), &[&ended], &[]);
        assert_eq!(fine, Sampling::Every(512 << 10));
        assert_eq!(sampling(Some("512K"), &[], &[]), Sampling::Lost);
        let damaged = Embedded {
            peak_ms: None,
            early_ms: None,
            pid: 7,
            program: "./server".to_owned(),
            pprof: "!!".to_owned(),
        };
        let lost = sampling(Some("512K"), &[&ended], &[damaged]);
        assert_eq!(lost, Sampling::Lost);
    }

    #[test]
    fn what_was_told_before_an_exec_is_not_of_the_program_after_it() {
        let events = vec![came(1, 7, "sh"), came(100, 7, "server")];
        let samples = vec![sample(50, 7, 3), sample(150, 7, 90), sample(250, 7, 80)];
        let material = recording(events, samples);
        let subject = Subject::choose(&material);
        assert_eq!(
            (subject.program.as_str(), subject.samples.len()),
            ("server", 2)
        );
        let shell = &processes(&material)[1];
        assert_eq!(
            (shell.program.as_str(), shell.became.as_deref()),
            ("sh", Some("server"))
        );
        assert_eq!(shell.peak, 3);
    }
}
