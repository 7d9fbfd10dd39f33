//! The process that a report is about, and what is known of it.

use super::material::Material;
use crate::profile::Profile;
use crate::recording::format::{Classes, Event, Happening, Heap, Sample};
use std::collections::BTreeMap;

/// One process.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Its number; 0: not known.
    pub pid: u32,
    /// What it runs.
    pub program: String,
    /// In the order of time; may be empty.
    pub samples: Vec<&'a Sample>,
    /// Its size classes, the last time they were written.
    pub classes: Option<&'a Classes>,
    /// What happened to it.
    pub events: Vec<&'a Event>,
    /// Its profile.
    pub profile: Option<&'a Profile>,
    /// Its profile when it held most, and when that was, in ms.
    pub at_peak: Option<&'a (u64, Profile)>,
}

/// Two readings of one clock differ by so much, in ms, when each is rounded.
const CLOCKS_MS: u64 = 2;

/// A process of the recording, in short.
#[derive(Debug, Default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it ran, first to last.
    pub program: String,
    /// The most that was seen in RAM, in bytes.
    pub peak: u64,
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
        let pid = process.pid;
        let mut samples: Vec<_> = recording
            .iter()
            .flat_map(|recording| &recording.samples)
            .filter(|sample| sample.pid == pid)
            .collect();
        samples.sort_by_key(|sample| sample.t_ms);
        let classes = recording
            .iter()
            .flat_map(|recording| &recording.classes)
            .rfind(|classes| classes.pid == pid && !classes.classes.is_empty());
        let events = recording
            .iter()
            .flat_map(|recording| &recording.events)
            .filter(|event| event.pid == pid);
        Self {
            pid,
            program: process.program.clone(),
            samples,
            classes,
            events: events.collect(),
            at_peak: material
                .peaks
                .iter()
                .rfind(|(_, profile)| profile.pid == pid),
            profile: material.profiles.iter().rfind(|profile| profile.pid == pid),
        }
    }

    fn of_profile(material: &'a Material) -> Self {
        let profile = material.profiles.first();
        let head = material.recording.as_ref().map(|recording| &recording.head);
        let program = match (head, profile) {
            (Some(head), _) => head.program.clone(),
            (None, Some(profile)) => profile.program.clone(),
            (None, None) => String::new(),
        };
        Self {
            pid: profile.map_or(0, |profile| profile.pid),
            program,
            samples: Vec::new(),
            classes: None,
            events: Vec::new(),
            profile,
            at_peak: None,
        }
    }

    /// The sample at which the program held most, among those that know the heap and at which nearly the most was in RAM: what is
    /// freed stays in RAM for a while, so that most of all may be there when much of it is free.
    pub fn peak(&self) -> Option<(&'a Sample, &'a Heap)> {
        let most = self
            .told()
            .map(|(sample, _)| sample.rss_of_figures())
            .max()?;
        self.told()
            .filter(|(sample, _)| sample.rss_of_figures() >= most - most / 20)
            .max_by_key(|(_, heap)| heap.ledger.requested.saturating_add(heap.ledger.rounding))
    }

    /// Samples with news: of those that show the same figures of the heap, the first.
    pub fn fresh(&self) -> Vec<&'a Sample> {
        let mut fresh: Vec<&Sample> = Vec::new();
        for sample in self
            .samples
            .iter()
            .filter(|sample| sample.rss > 0 || sample.heap.is_some())
        {
            let is_same = |before: &&Sample| {
                before.heap.is_some()
                    && before.heap.as_ref().map(|heap| heap.ledger)
                        == sample.heap.as_ref().map(|heap| heap.ledger)
                    && before.figures_ms().abs_diff(sample.figures_ms()) <= CLOCKS_MS
            };
            if !fresh.last().is_some_and(is_same) {
                fresh.push(sample);
            }
        }
        fresh
    }

    /// The last sample that knows the heap.
    pub fn last(&self) -> Option<(&'a Sample, &'a Heap)> {
        self.told().last()
    }

    /// The figures that count from the start, at the end.
    pub fn totals(&self) -> Option<&'a Heap> {
        self.samples
            .iter()
            .rev()
            .find_map(|sample| sample.heap.as_ref())
    }

    /// Fresh samples that know the heap.
    pub fn told(&self) -> impl Iterator<Item = (&'a Sample, &'a Heap)> {
        let fresh = self.fresh().into_iter();
        fresh.filter_map(|sample| Some((sample, sample.heap.as_ref()?)))
    }

    /// The most that was in RAM, in bytes.
    pub fn peak_rss(&self) -> u64 {
        let both = |sample: &&Sample| sample.rss.max(sample.rss_of_figures());
        self.samples.iter().map(both).max().unwrap_or(0)
    }

    /// How it ended, if that was seen.
    pub fn ending(&self) -> Option<&'a Happening> {
        use Happening::{Ended, Exited, Killed};
        let ends = |what: &&Happening| matches!(what, Ended | Exited { .. } | Killed { .. });
        self.events.iter().map(|event| &event.what).rfind(ends)
    }

    /// From the program's start to the last that is known of the process, in ms.
    pub fn duration_ms(&self) -> u64 {
        let samples = self.samples.iter().map(|sample| sample.t_ms);
        let events = self.events.iter().map(|event| event.t_ms);
        samples.chain(events).max().unwrap_or(0)
    }
}

/// The processes of the recording, the largest first.
pub fn processes(material: &Material) -> Vec<Process> {
    let Some(recording) = &material.recording else {
        return Vec::new();
    };
    let mut found: BTreeMap<u32, Process> = BTreeMap::new();
    for sample in &recording.samples {
        let process = found.entry(sample.pid).or_default();
        process.peak = process.peak.max(sample.rss);
    }
    for event in &recording.events {
        if let Happening::Came { program } = &event.what {
            found.entry(event.pid).or_default().program = program.clone();
        }
    }
    let mut processes: Vec<_> = found
        .into_iter()
        .map(|(pid, process)| Process { pid, ..process })
        .collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.peak));
    processes
}
