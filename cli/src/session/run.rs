//! The processes of a run, sampled at every tick into the recording.

use super::watched::{Clock, Watched};
use crate::attach::monitor::{Monitor, What};
use crate::failure::Failure;
use crate::launch::set_variables;
use crate::output::Talk;
use crate::recording::format::{Event, FORMAT, Happening, VERSION};
use crate::recording::{Head, Machine, Record, Writer};
use crate::supervise::{Ending, Watch};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names this session's socket to processes.
const MONITOR: &str = "NEAP_MONITOR";
/// The variable that switches sampling on.
const SAMPLE: &str = "NEAP_SAMPLE";
/// Bytes between two samples if no option says otherwise, the same as Go's.
const USUAL_RATE: &str = "512K";
/// Makes a process keep the thread that answers.
const ANSWER: &str = "NEAP_ANSWER";
/// Most processes sampled at one time. For further ones, only the beginning and the end are
/// recorded.
const MOST_AT_ONCE: usize = 16;

/// A watched run.
pub struct Session {
    monitor: Monitor,
    pub(super) writer: Option<Writer>,
    pub(super) interval: Duration,
    pub(super) words: Vec<OsString>,
    pub(super) clock: Clock,
    pub(super) main: u32,
    pub(super) processes: Vec<Watched>,
    pub(super) talk: Talk,
}

impl Session {
    /// Prepares to watch `words`, with samples into `writer`. Sets the variables that the program
    /// needs.
    ///
    /// # Errors
    ///
    /// No socket can be made.
    pub fn new(
        words: &[OsString],
        writer: Option<Writer>,
        interval: Duration,
        talk: Talk,
    ) -> Result<Self, Failure> {
        let monitor = Monitor::bind()?;
        set_variables([(MONITOR, monitor.name())]);
        if writer.is_some() {
            // The recording knows only what processes tell, also while they sleep.
            set_by_default(ANSWER, "1");
        }
        Ok(Self {
            monitor,
            writer,
            interval,
            words: words.to_vec(),
            clock: Clock::start(),
            main: 0,
            processes: Vec::new(),
            talk,
        })
    }

    /// Makes the program sample from its start, unless a variable or a flag sets a rate.
    pub fn sample_by_default() {
        set_by_default(SAMPLE, USUAL_RATE);
    }

    pub(super) fn write(&mut self, record: &Record) {
        let now = self.clock.now_ms();
        if let Some(writer) = &mut self.writer {
            writer.write(now, record);
        }
    }

    pub(super) fn event(&mut self, pid: u32, what: Happening) {
        let t_ms = self.clock.now_ms();
        self.write(&Record::Event(Event { t_ms, pid, what }));
    }

    fn head(&self) -> Head {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let mut words = self.words.iter().map(text);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            written_by: concat!("neap ", env!("CARGO_PKG_VERSION")).to_owned(),
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            pid: self.main.cast_signed(),
            started_ms: since.map_or(0, |since| since.as_millis() as u64),
            interval_ms: self.interval.as_millis() as u64,
            machine: Machine::here(),
            options: options(),
        }
    }

    /// Takes the messages since the last time.
    fn greet(&mut self) {
        for arrival in self.monitor.arrivals() {
            let at = self
                .processes
                .iter()
                .rposition(|process| process.pid == arrival.pid);
            match (arrival.what, at) {
                (What::Profile(region), Some(at)) => self.processes[at].region = Some(region),
                (What::Profile(region), None) => {
                    let mut process = Watched::new(arrival.pid, None);
                    process.region = Some(region);
                    self.processes.push(process);
                }
                (What::StatusPage(status_page), at) => {
                    let status_page = match at {
                        None => Some(status_page),
                        Some(at) => self.processes[at].take_own_heap(status_page),
                    };
                    let Some(status_page) = status_page else {
                        self.event(arrival.pid, Happening::OwnHeap);
                        continue;
                    };
                    let process = Watched::new(arrival.pid, Some(status_page));
                    let came = Happening::Came {
                        program: process.program.clone(),
                        frontend: process.frontend(),
                    };
                    self.processes.push(process);
                    self.event(arrival.pid, came);
                }
            }
        }
    }

    /// Samples every live process.
    fn sample(&mut self) {
        let (clock, interval, main) = (self.clock, self.interval, self.main);
        let mut records = Vec::new();
        let recorded = self.writer.is_some();
        let living = self
            .processes
            .iter_mut()
            .filter(|process| process.is_alive());
        for process in living.take(MOST_AT_ONCE) {
            records.extend(process.look(clock, interval, recorded, main));
        }
        records.iter().for_each(|record| self.write(record));
    }

    /// Records the last figures of every process.
    pub(super) fn conclude(&mut self, ending: Ending) {
        // Processes that have ended sent their descriptors before.
        self.monitor.finish();
        self.greet();
        let (clock, main) = (self.clock, self.main);
        let mut records = Vec::new();
        for process in &mut self.processes {
            records.extend(process.conclude(clock, main));
        }
        records.iter().for_each(|record| self.write(record));
        let what = match ending {
            Ending::Exit(status) => Happening::Exited { status },
            Ending::Signal(signal) => Happening::Killed { signal },
        };
        self.event(self.main, what);
    }
}

impl Watch for Session {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn began(&mut self, pid: libc::pid_t) {
        self.main = pid.unsigned_abs();
        self.clock = Clock::start();
        self.monitor.start();
        let head = Record::Head(self.head());
        self.write(&head);
    }

    fn tick(&mut self) {
        self.greet();
        self.sample();
    }
}

/// Sets a variable unless the user's own variable or flag has set it.
fn set_by_default(name: &'static str, value: &str) {
    if env::var_os(name).is_none_or(|word| word.is_empty()) {
        set_variables([(name, OsString::from(value))]);
    }
}

/// The `NEAP_*` variables that are set, except the session's own.
fn options() -> BTreeMap<String, String> {
    let text = |word: OsString| word.to_string_lossy().into_owned();
    env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, value)| {
            name.starts_with(neap_shared::control::PREFIX) && name != MONITOR && !value.is_empty()
        })
        .collect()
}
