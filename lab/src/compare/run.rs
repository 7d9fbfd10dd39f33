//! One run of the user's program under an allocator, from its start to its end.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{bail, ensure};
use neap_shared::areas::{Place, mappings};

use crate::cases::allocators::GLIBC;
use crate::cases::figures::{COURSE, CPU, END, Moment, PEAK, TIME, course};
use crate::cases::party::{Party, in_words};
use crate::cases::tree::{self, EndAll, Look, Tree};
use crate::command::last_lines;
use crate::engine::record::{Figure, Unit};
use crate::machine;
use crate::peers::locate::Ready;

/// The figures that only these runs have.
pub const MEAN: &str = "on average";
pub const FAULTS: &str = "page faults";
/// The part of the memory that cannot be `malloc`'s, and what takes most of it.
pub const FOREIGN: &str = "part that is not malloc's";
pub const MOST_FOREIGN: &str = "most of it";

/// From one sample to the next; less at the start of a run.
const INTERVAL: Duration = Duration::from_millis(50);
/// A sample takes at most this part of the time, unless the machine is busy.
const SHARE: u32 = 20;
/// From one search for new processes to the next.
const ROUND: Duration = Duration::from_millis(200);
/// A program that took no processor time for so long waits for its load.
const QUIET: Duration = Duration::from_millis(500);
/// The longest wait for that, and for the end of a program that was asked to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Fewer samples have no mean.
const ENOUGH: usize = 20;
/// The longest run.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The mappings are read again when the memory has grown by a part of this.
const GROWTH: u64 = 5;

/// The user's program.
pub struct Program {
    /// Its command line.
    pub words: Vec<String>,
    /// What loads it; without, it runs to its end.
    pub load: Option<String>,
    /// How long it is watched after the load.
    pub rest: Duration,
}

impl Program {
    /// Its name in the record.
    pub fn name(&self) -> String {
        let file = Path::new(&self.words[0]).file_name();
        file.unwrap_or_default().to_string_lossy().replace(',', " ")
    }
}

/// What a run has shown.
#[derive(Default)]
pub struct Ran {
    figures: Vec<Figure>,
    /// How it ended; empty if it was asked to, after a load.
    ending: String,
    /// The end of what it wrote to standard error.
    said: String,
    /// Why it does not show what its allocator does.
    pub objection: Option<String>,
    /// What has not mapped the allocator, and is large.
    pub stranger: Option<String>,
    /// Whether CPython is among its programs.
    pub is_python: bool,
    /// Resident bytes by [`Place`] when it held most.
    held: [u64; Place::ALL.len()],
}

impl Ran {
    /// The figures, if it ended as the first run did, and was under its allocator.
    ///
    /// # Errors
    /// If not.
    pub fn judged(self, first: &Ran) -> anyhow::Result<Vec<Figure>> {
        let (own, glibcs, said) = (&self.ending, &first.ending, last_lines(&self.said));
        ensure!(
            own == glibcs,
            "ended with {own}, but with {glibcs} under glibc: {said}"
        );
        let objection = self.objection.filter(|_| first.objection.is_none());
        if let Some(objection) = objection.or(self.stranger) {
            bail!("not comparable: {objection}");
        }
        Ok(self.figures)
    }

    /// The part of the memory that cannot be `malloc`'s, and what takes most of that.
    pub fn places(&self) -> Vec<Figure> {
        let all = Place::ALL.into_iter();
        let foreign = all.filter(|place| !place.may_be_mallocs());
        let bytes = |place: &Place| self.held[*place as usize];
        let whole: u64 = self.held.iter().sum();
        let part: u64 = foreign.clone().map(|it| bytes(&it)).sum();
        let most = foreign.max_by_key(bytes).map_or("", Place::words);
        let part = part as f64 / whole.max(1) as f64;
        vec![
            Figure::share(FOREIGN, part),
            Figure::text(MOST_FOREIGN, most),
        ]
    }
}

/// Runs `program` once under `allocator`.
///
/// # Errors
/// If it does not start or does not end, or its load fails.
pub fn once(program: &Program, allocator: &Ready) -> anyhow::Result<Ran> {
    // Whatever becomes of the run, nothing of it is left running.
    let _end = EndAll;
    ensure!(!is_asked_to_end(), "interrupted");
    let mut command = Command::new(&program.words[0]);
    command.args(&program.words[1..]).env_remove("LD_PRELOAD");
    if !allocator.name.starts_with(GLIBC) {
        command.env("LD_PRELOAD", &allocator.library);
    }
    command.envs(allocator.settings.iter().cloned());
    let mut subject = Party::start("program", command, None)?;
    subject.dismiss();
    let mut watch = Watch::new(&subject, allocator);
    let rest = match &program.load {
        None => {
            let status = watch.until(LONGEST, "the program", |_| Ok(subject.ended()))?;
            watch.ran.ending = in_words(status);
            None
        }
        Some(load) => Some(watch.load(&mut subject, load, program.rest)?),
    };
    watch.conclude(&subject, rest);
    watch.ran.said = subject.errors();
    Ok(watch.ran)
}

fn seconds(name: &str, time: Duration) -> Figure {
    Figure::new(name, Unit::Seconds, time.as_secs_f64())
}

/// The samples of a run.
struct Watch {
    tree: Tree,
    is_own: bool,
    start: Instant,
    /// When processes were searched for.
    searched: Option<Instant>,
    samples: Vec<Moment>,
    /// With how many bytes the mappings were looked at.
    looked: u64,
    ran: Ran,
}

impl Watch {
    fn new(subject: &Party, allocator: &Ready) -> Watch {
        let library = &allocator.library;
        let library = library.canonicalize().unwrap_or_else(|_| library.clone());
        Watch {
            tree: Tree::new(subject.id(), None, &library),
            is_own: allocator.name.starts_with(GLIBC),
            start: Instant::now(),
            searched: None,
            samples: Vec::new(),
            looked: 0,
            ran: Ran::default(),
        }
    }

    /// Takes samples until `done` tells something.
    fn until<T>(
        &mut self,
        longest: Duration,
        what: &str,
        mut done: impl FnMut(&Watch) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let (begun, most) = (Instant::now(), longest.as_secs());
        loop {
            if let Some(told) = done(self)? {
                return Ok(told);
            }
            ensure!(!is_asked_to_end(), "interrupted");
            ensure!(begun.elapsed() < longest, "{what} takes over {most} s");
            let before = Instant::now();
            self.sample();
            let gentle = (before.elapsed() * SHARE).min(ROUND);
            thread::sleep(INTERVAL.min(self.start.elapsed() / 20).max(gentle));
        }
    }

    fn sample(&mut self) {
        let at = self.start.elapsed();
        let is_due = |last: Instant| last.elapsed() >= ROUND.min(at / 4);
        let look = match self.searched.is_none_or(is_due) {
            true => Look::Around,
            false => Look::Known,
        };
        let held = self.tree.held(look);
        self.samples.push(Moment { at, held });
        if look == Look::Around {
            self.searched = Some(Instant::now());
            let stranger = tree::stranger(&self.tree.uncounted());
            self.ran.stranger = self.ran.stranger.take().or(stranger);
        }
        if held.bytes > self.looked + self.looked / GROWTH {
            self.looked = held.bytes;
            self.look();
        }
    }

    /// Looks at the processes' mappings.
    fn look(&mut self) {
        let (counted, ran) = (self.tree.counted(), &mut self.ran);
        // It has just ended.
        if counted.is_empty() {
            return;
        }
        ran.objection = tree::objection(&counted, self.is_own);
        ran.held = Default::default();
        for id in counted {
            let program = fs::read_link(format!("/proc/{id}/exe")).unwrap_or_default();
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            ran.is_python |= name.starts_with("python3");
            // A process that has ended has no mappings.
            let text = fs::read_to_string(format!("/proc/{id}/smaps")).unwrap_or_default();
            for mapping in mappings(&text) {
                ran.held[mapping.place as usize] += mapping.proportional;
            }
        }
    }

    /// Waits until the program waits, loads it, lets it rest and ends it. Returns when the load was
    /// over.
    fn load(
        &mut self,
        subject: &mut Party,
        load: &str,
        rest: Duration,
    ) -> anyhow::Result<Duration> {
        self.until(PATIENCE, "the program's start", |watch| {
            ensure_runs(subject)?;
            Ok(watch.is_quiet().then_some(()))
        })?;
        let (work, before) = (Instant::now(), self.last().held.cpu);
        let mut shell = Command::new("sh");
        shell.args(["-c", load]).env_remove("LD_PRELOAD");
        let mut driver = Party::start("load", shell, None)?;
        driver.dismiss();
        self.tree.leave_out(driver.id());
        let status = self.until(LONGEST, "the load", |_| {
            ensure_runs(subject)?;
            Ok(driver.ended())
        })?;
        let (end, time) = (in_words(status), work.elapsed());
        ensure!(
            status.success(),
            "the load ended with {end}: {}",
            driver.last_words()
        );
        self.sample();
        let at = self.last().at;
        self.until(LONGEST, "the rest", |watch| {
            ensure_runs(subject)?;
            Ok((watch.start.elapsed() >= at + rest).then_some(()))
        })?;
        self.sample();
        self.ran.figures = vec![
            seconds(TIME, time),
            seconds(CPU, self.last().held.cpu.saturating_sub(before)),
            Figure::bytes(END, self.last().held.bytes as f64),
        ];
        subject.terminate();
        subject.wait(PATIENCE);
        Ok(at)
    }

    fn last(&self) -> Moment {
        let none = Moment {
            at: Duration::ZERO,
            held: Default::default(),
        };
        self.samples.last().copied().unwrap_or(none)
    }

    /// Whether the program has a process, and took no processor time for [`QUIET`].
    fn is_quiet(&self) -> bool {
        let (last, mut earlier) = (self.last(), self.samples.iter().rev());
        let then = earlier.find(|moment| moment.at + QUIET <= last.at);
        then.is_some_and(|then| then.held.processes > 0 && then.held.cpu == last.held.cpu)
    }

    /// Adds the figures of the whole run. `rest`: when the load was over.
    fn conclude(&mut self, subject: &Party, rest: Option<Duration>) {
        let bytes = self.samples.iter().map(|moment| moment.held.bytes);
        let peak = bytes.max().unwrap_or(0);
        let figures = &mut self.ran.figures;
        if rest.is_none() {
            figures.push(seconds(TIME, self.start.elapsed()));
        }
        let mut exact = 0;
        if let Some(usage) = subject.usage() {
            // The kernel's maximum begins with this process, of which the program was a copy.
            let is_its_own = usage.ru_maxrss > machine::own_usage().ru_maxrss;
            exact = u64::from(is_its_own) * usage.ru_maxrss as u64 * 1_024;
            let faults = usage.ru_minflt + usage.ru_majflt;
            figures.push(Figure::count(FAULTS, faults as u64));
            let cpu = seconds(CPU, machine::processor_time(usage));
            figures.extend(rest.is_none().then_some(cpu));
        }
        let rest = rest.map_or(String::new(), |rest| format!("{:.2} ", rest.as_secs_f64()));
        figures.extend(mean(&self.samples).map(|mean| Figure::bytes(MEAN, mean)));
        let course = rest + &course(&self.samples, Duration::ZERO);
        let peak = Some(peak.max(exact)).filter(|peak| *peak > 0);
        figures.extend(peak.map(|peak| Figure::bytes(PEAK, peak as f64)));
        figures.push(Figure::text(COURSE, course));
    }
}

fn ensure_runs(subject: &mut Party) -> anyhow::Result<()> {
    match subject.ended().map(in_words) {
        Some(end) => bail!("the program ended early: {end}: {}", subject.last_words()),
        None => Ok(()),
    }
}

/// The mean over time, each sample valid until the next; `None` if they are too few.
fn mean(samples: &[Moment]) -> Option<f64> {
    if samples.len() < ENOUGH {
        return None;
    }
    let (mut sum, mut time) = (0.0, 0.0);
    for pair in samples.windows(2) {
        let seconds = (pair[1].at - pair[0].at).as_secs_f64();
        (sum, time) = (sum + pair[0].held.bytes as f64 * seconds, time + seconds);
    }
    (time > 0.0).then(|| sum / time)
}

/// Whether a signal asked this process to end. A run then ends in order.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: i32) {
    ASKED.store(true, Relaxed);
}

/// Lets a run end in order before this process does.
pub fn heed_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores a word.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

pub fn is_asked_to_end() -> bool {
    ASKED.load(Relaxed)
}
