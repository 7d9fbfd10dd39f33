//! `neap tune`: the size classes that would suit a program.
//!
//! The program runs in the counting mode. Each of its processes under libneap.so sends the
//! descriptor of its board. At its end it leaves the sizes that it requested there. `neap tune`
//! adds up those of all processes.

use super::run::prepare;
use crate::attach::Board;
use crate::attach::monitor::{Inbox, Monitor, What};
use crate::classes::{self, Comparison, Histogram};
use crate::failure::Outcome;
use crate::failure::{Failure, say, shown};
use crate::launch::set_variables;
use crate::output::print;
use crate::profile;
use crate::progress::Talk;
use crate::report::quoted;
use crate::supervise::{self, Ending, Watch};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks for processes that have started or ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often processes write their sizes while they run, in case they are killed.
const WRITTEN: Duration = Duration::from_millis(500);
/// How long they continue to do so after the last request.
const LEASE: Duration = Duration::from_secs(10);
/// Time allowed for the descriptors of processes that ended with the program. They are in the
/// socket, and this process's own thread must read them.
const LAST_WORD: Duration = Duration::from_millis(20);
/// The number of the C frontend on a board.
const LIBRARY: u64 = 1;

/// Declares the command line.
pub fn command() -> Command {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(OsString))
            .value_hint(ValueHint::FilePath)
            .help(help)
    };
    Command::new("tune")
        .about("Find the size classes that waste least for a program")
        .after_help(
            "The program runs with every call counted, slower than otherwise. Exits with 0 if the classes were written, however the \
             program ended, and with 125 if not.",
        )
        .override_usage(
            "neap tune [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n       neap tune [OPTIONS] --from FILE",
        )
        .arg(
            Arg::new("classes")
                .long("classes")
                .value_name("K")
                .value_parser(value_parser!(u16))
                .help(format!(
                    "Most classes [{} to {}; default: {1}]",
                    classes::least(),
                    classes::MOST
                )),
        )
        .arg(file("output", "Write the classes to this file [default: PROGRAM.classes]").short('o'))
        .arg(file("save-sizes", "Keep the sizes that were asked for in this file, for --from"))
        .arg(
            file("from", "Run nothing: the sizes are those of this file")
                .conflicts_with_all(["PROGRAM", "save-sizes"]),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object instead of tables"),
        )
        .arg(
            Arg::new("PROGRAM")
                .num_args(1..)
                .trailing_var_arg(true)
                .required_unless_present("from")
                .value_parser(value_parser!(OsString))
                .value_hint(ValueHint::CommandWithArguments)
                .help("The program, found by PATH, and its arguments"),
        )
}

/// Finds the classes, writes and prints them.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let most = matches
        .get_one::<u16>("classes")
        .map_or(classes::MOST, |&most| most.into());
    let path = |name| matches.get_one::<OsString>(name).map(PathBuf::from);
    // Reject an impossible request before the program runs.
    classes::best(&Histogram::new(""), most)?;
    let words = matches.get_many::<OsString>("PROGRAM");
    let words: Vec<OsString> = words.into_iter().flatten().cloned().collect();
    for file in [path("output"), path("save-sizes")].into_iter().flatten() {
        profile::check_writable(&file)?;
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
        profile::write(&file, histogram.to_text().as_bytes())?;
    }
    if histogram.allocations() == 0 {
        return Err(Failure::own(format!(
            "{} asked for nothing that size classes serve: there is nothing to tune",
            shown(&histogram.program)
        )));
    }
    let sizes = Talk::Normal.during("planning", || classes::best(&histogram, most))?;
    let file = path("output").unwrap_or_else(|| default_file(&histogram.program));
    let text = classes::file(&sizes, &histogram.program);
    profile::write(&file, text.as_bytes())?;
    tell(matches, &histogram, &sizes, &file).map(|()| 0)
}

/// Checks that the default file can be written.
fn check_usual(program: &str) -> Result<(), Failure> {
    profile::check_writable(&default_file(program)).map_err(|failure| {
        Failure::own(format!(
            "{failure}; name a file elsewhere with -o FILE (--output)"
        ))
    })
}

fn default_file(program: &str) -> PathBuf {
    let base = Path::new(program)
        .file_name()
        .unwrap_or(OsStr::new("program"));
    let mut name = base.to_owned();
    name.push(".classes");
    PathBuf::from(name)
}

fn tell(
    matches: &ArgMatches,
    histogram: &Histogram,
    sizes: &[u16],
    file: &Path,
) -> Result<(), Failure> {
    let comparison = Comparison::new(histogram, sizes);
    let next = next_command(matches, file);
    if matches.get_flag("json") {
        let mut object = classes::json(&comparison, sizes);
        object["file"] = file.to_string_lossy().into();
        object["next"] = next.into();
        return print(&format!("{object:#}\n")).map(drop);
    }
    let name = quoted(&file.to_string_lossy());
    let page = classes::text(&comparison);
    print(&format!("{page}\nwrote {name}; next: {next}\n")).map(drop)
}

fn next_command(matches: &ArgMatches, file: &Path) -> String {
    let words = matches
        .get_many::<OsString>("PROGRAM")
        .into_iter()
        .flatten();
    let words: Vec<String> = words
        .map(|word| quoted(&word.to_string_lossy()).to_string())
        .collect();
    let program = match words.is_empty() {
        true => "PROGRAM".to_owned(),
        false => words.join(" "),
    };
    format!(
        "neap run --classes={} -- {program}",
        quoted(&file.to_string_lossy())
    )
}

/// Runs the program and adds up what its processes requested.
fn counted(words: &[OsString]) -> Result<Histogram, Failure> {
    let monitor = Monitor::bind()?;
    set_variables([
        ("NEAP_MONITOR", monitor.name()),
        ("NEAP_COUNT", "1".into()),
        ("NEAP_ATTACH", "1".into()),
        // Sizes are counted with the built-in classes.
        ("NEAP_CLASSES", OsString::new()),
    ]);
    let program = prepare(words)?;
    let name = Path::new(program.name()).file_name().unwrap_or_default();
    let mut counting = Counting::new(monitor, Histogram::new(&name.to_string_lossy()));
    let ending =
        supervise::run(&program, &mut counting).map_err(|error| program.failure(&error))?;
    counting.finish(ending)
}

/// The processes that count.
struct Counting {
    monitor: Option<Monitor>,
    inbox: Option<Inbox>,
    alive: Vec<Board>,
    leased: Option<Instant>,
    histogram: Histogram,
    /// Processes that counted, and those that have Neap built in.
    processes: [usize; 2],
}

impl Counting {
    fn new(monitor: Monitor, histogram: Histogram) -> Self {
        Self {
            monitor: Some(monitor),
            inbox: None,
            alive: Vec::new(),
            leased: None,
            histogram,
            processes: [0; 2],
        }
    }

    fn greet(&mut self) {
        let arrivals = self.inbox.as_ref().map(Inbox::arrivals);
        for arrival in arrivals.into_iter().flatten() {
            match arrival.what {
                What::Board(board) if board.head().frontend == LIBRARY => {
                    self.processes[0] += 1;
                    self.alive.push(board);
                    self.leased = None;
                }
                What::Board(_) => self.processes[1] += 1,
                What::Profile(_) => {}
            }
        }
    }

    /// Takes the sizes of processes that have ended.
    fn part(&mut self) {
        let (ended, alive) = std::mem::take(&mut self.alive)
            .into_iter()
            .partition(Board::has_ended);
        self.alive = alive;
        self.add(ended);
    }

    fn add(&mut self, boards: Vec<Board>) {
        for board in boards {
            self.histogram.add(&board.sizes());
        }
    }

    /// Has live processes keep writing their counts, because they may be killed.
    fn lease(&mut self) {
        if self
            .leased
            .is_none_or(|leased| leased.elapsed() > LEASE / 4)
        {
            for board in &self.alive {
                // If the request fails, the figures that the process writes at its end remain.
                let _ = board.watch(WRITTEN, LEASE);
            }
            self.leased = Some(Instant::now());
        }
    }

    fn finish(mut self, ending: Ending) -> Result<Histogram, Failure> {
        thread::sleep(LAST_WORD);
        self.greet();
        let boards = std::mem::take(&mut self.alive);
        let left = boards.iter().filter(|board| !board.has_ended()).count();
        for board in boards.iter().filter(|board| !board.has_ended()) {
            // Without an answer, use the figures that it wrote last.
            let _ = board.ask(WRITTEN);
        }
        self.add(boards);
        let program = shown(&self.histogram.program);
        if left > 0 {
            say(&format!(
                "{left} processes of {program} still run: their further requests are not counted"
            ));
        }
        match ending {
            Ending::Exit(0) => {}
            Ending::Exit(status) => say(&format!("{program} exited with {status}")),
            Ending::Signal(signal) => say(&format!(
                "{program} was killed by signal {signal}: its last half second may not be counted"
            )),
        }
        match self.processes {
            [0, 0] => Err(Failure::own(format!(
                "{program} did not run under Neap, so nothing was counted: neap doctor -- {program} may tell why"
            ))),
            [0, _] => Err(Failure::own(format!(
                "{program} has Neap built in: its size classes were fixed when it was compiled"
            ))),
            _ => Ok(self.histogram),
        }
    }
}

impl Watch for Counting {
    fn interval(&self) -> Duration {
        INTERVAL
    }

    fn began(&mut self, _pid: libc::pid_t) {
        self.inbox = self.monitor.take().map(Monitor::start);
    }

    fn tick(&mut self) {
        self.greet();
        self.part();
        self.lease();
    }
}

/// The absolute name of a file of classes, for `neap run --classes`, because the program's
/// processes may run in other directories.
///
/// # Errors
///
/// The file cannot be read, or the library would not accept it.
pub fn file_of_classes(file: &Path) -> Result<OsString, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::own(format!(
            "--classes {}: {why}; neap tune writes such files",
            shown(file)
        ))
    };
    let text = std::fs::read(file).map_err(|error| refused(&error))?;
    neap_shared::classes::parse(&text).map_err(|error| refused(&error))?;
    let absolute = std::path::absolute(file).map_err(|error| refused(&error))?;
    Ok(absolute.into_os_string())
}
