//! `neap tune`: the size classes that would suit a program.
//!
//! The program runs in the counting mode. Each of its processes under libneap.so sends the
//! descriptor of its status page, and leaves its requested sizes there at its end. `neap tune` adds
//! up the sizes of all processes.

use super::{file, format, program};
use crate::attach::StatusPage;
use crate::attach::monitor::{Monitor, What};
use crate::classes::{self, Comparison, Histogram};
use crate::failure::{Failure, Outcome, shown};
use crate::files;
use crate::grammar::TextOrJson;
use crate::launch::{named_after, prepare, set_variables};
use crate::output::{Talk, print};
use crate::report::quoted;
use crate::supervise::{self, Ending, Watch};
use clap::ArgMatches;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two checks for processes that have started or ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often processes write their sizes while they run, in case they are killed.
const WRITTEN: Duration = Duration::from_millis(500);
/// How long they continue to do so after the last request.
const LEASE: Duration = Duration::from_secs(10);
/// Whether Neap may make more system calls than other allocators.
const QUERIES: &str = "NEAP_KERNEL_QUERIES";
/// The number of the C frontend on a status page.
const LIBRARY: u64 = 1;

/// Finds the classes, writes and prints them.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let most = matches.get_one::<u64>("max-classes");
    let most = most.map_or(classes::MOST, |&most| most.try_into().unwrap_or(usize::MAX));
    let path = |name| file(matches, name);
    // Reject an impossible request before the program runs.
    classes::best(&Histogram::new(""), most)?;
    let words = program(matches);
    for file in [path("output"), path("save-sizes")].into_iter().flatten() {
        files::check_writable(&file)?;
    }
    if let (None, Some(word)) = (path("output"), words.first()) {
        // The program may finally have another name, but the file goes to the same directory.
        check_usual(&word.to_string_lossy())?;
    }
    let histogram = match path("from") {
        Some(file) => {
            let histogram = Histogram::read(&file)?;
            if path("output").is_none() {
                check_usual(&histogram.program)?;
            }
            histogram
        }
        None => counted(&words)?,
    };
    if let Some(file) = path("save-sizes") {
        files::write(&file, histogram.to_text().as_bytes())?;
    }
    if histogram.allocations() == 0 {
        return Err(failure!(
            "{} asked for nothing that size classes serve: there is nothing to tune",
            shown(&histogram.program)
        ));
    }
    let sizes = Talk::Normal.during("planning", || classes::best(&histogram, most))?;
    let file = path("output").unwrap_or_else(|| default_file(&histogram.program));
    let text = classes::file(&sizes, &histogram.program);
    files::write(&file, text.as_bytes())?;
    tell(matches, &histogram, &sizes, &file).map(|()| 0)
}

/// Checks that the default file can be written.
fn check_usual(program: &str) -> Result<(), Failure> {
    files::check_writable(&default_file(program))
        .map_err(|failure| failure!("{failure}; name a file elsewhere with -o FILE"))
}

fn default_file(program: &str) -> PathBuf {
    named_after("", OsStr::new(program), ".classes").into()
}

fn tell(
    matches: &ArgMatches,
    histogram: &Histogram,
    sizes: &[u16],
    file: &Path,
) -> Result<(), Failure> {
    let comparison = Comparison::new(histogram, sizes);
    let next = next_command(matches, file);
    if format::<TextOrJson>(matches) == TextOrJson::Json {
        let mut object = classes::json(&comparison, sizes);
        object["file"] = file.to_string_lossy().into();
        object["next"] = next.into();
        return print(&format!("{object:#}\n")).map(drop);
    }
    let name = quoted(file);
    print(&format!("{comparison}\nwrote {name}; next: {next}\n")).map(drop)
}

fn next_command(matches: &ArgMatches, file: &Path) -> String {
    let words = program(matches);
    let words: Vec<String> = words.iter().map(quoted).collect();
    let program = if words.is_empty() {
        "PROGRAM".to_owned()
    } else {
        words.join(" ")
    };
    format!("neap run --classes {} -- {program}", quoted(file))
}

/// Runs the program and adds up what its processes requested.
fn counted(words: &[OsString]) -> Result<Histogram, Failure> {
    if env::var_os(QUERIES).is_some_and(|value| value == "0") {
        return Err(failure!(
            "neap tune needs the status page, which {QUERIES}=0 turns off; unset {QUERIES}"
        ));
    }
    let monitor = Monitor::bind()?;
    set_variables([
        ("NEAP_MONITOR", monitor.name()),
        ("NEAP_COUNT", "1".into()),
        ("NEAP_STATUS_PAGE", "1".into()),
        // Sizes are counted with the built-in classes.
        ("NEAP_CLASSES", OsString::new()),
    ]);
    let program = prepare(words)?;
    let name = Path::new(program.name()).file_name().unwrap_or_default();
    let mut counting = Counting {
        monitor,
        alive: Vec::new(),
        leased: None,
        histogram: Histogram::new(&name.to_string_lossy()),
        processes: [0; 2],
    };
    let ended = supervise::run(&program, &mut counting).map_err(|error| program.failure(&error))?;
    counting.finish(ended.ending)
}

/// The processes that count.
struct Counting {
    monitor: Monitor,
    alive: Vec<StatusPage>,
    leased: Option<Instant>,
    histogram: Histogram,
    /// Processes that counted, and those that have Neap built in.
    processes: [usize; 2],
}

impl Counting {
    fn greet(&mut self) {
        for arrival in self.monitor.arrivals() {
            match arrival.what {
                What::StatusPage(status_page) if status_page.head().frontend == LIBRARY => {
                    self.processes[0] += 1;
                    self.alive.push(status_page);
                    self.leased = None;
                }
                What::StatusPage(_) => self.processes[1] += 1,
                What::Profile(_) => {}
            }
        }
    }

    /// Takes the sizes of processes that have ended.
    fn part(&mut self) {
        let (alive, histogram) = (&mut self.alive, &mut self.histogram);
        for ended in alive.extract_if(.., |status_page| status_page.has_ended()) {
            histogram.add(&ended.sizes());
        }
    }

    /// Has live processes keep writing their counts, because they may be killed.
    fn lease(&mut self) {
        if self.leased.is_none_or(|at| at.elapsed() > LEASE / 4) {
            for status_page in &self.alive {
                // If the request fails, the figures that the process writes at its end remain.
                let _ = status_page.watch(WRITTEN, LEASE);
            }
            self.leased = Some(Instant::now());
        }
    }

    fn finish(mut self, ending: Ending) -> Result<Histogram, Failure> {
        // Processes that have ended sent their descriptors before.
        self.monitor.finish();
        self.greet();
        self.part();
        let left = self.alive.len();
        for status_page in std::mem::take(&mut self.alive) {
            // Without an answer, use the figures that it wrote last.
            let _ = status_page.ask(WRITTEN);
            self.histogram.add(&status_page.sizes());
        }
        let program = shown(&self.histogram.program);
        if left > 0 {
            say!("{left} processes of {program} still run: their further requests are not counted");
        }
        match ending {
            Ending::Exit(0) => {}
            Ending::Exit(status) => say!("{program} exited with {status}"),
            Ending::Signal(signal) => say!(
                "{program} was killed by signal {signal}: its last half second may not be counted"
            ),
        }
        match self.processes {
            [0, 0] => Err(failure!(
                "{program} did not run under Neap, so nothing was counted: neap doctor -- \
                 {program} may tell why"
            )),
            [0, _] => Err(failure!(
                "{program} has Neap built in: its size classes were fixed when it was compiled"
            )),
            _ => Ok(self.histogram),
        }
    }
}

impl Watch for Counting {
    fn interval(&self) -> Duration {
        INTERVAL
    }

    fn began(&mut self, _pid: libc::pid_t) {
        self.monitor.start();
    }

    fn tick(&mut self) {
        self.greet();
        self.part();
        self.lease();
    }
}
