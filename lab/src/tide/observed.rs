//! The steps of a run and their order, and what a record says of each and of the resident size over
//! time.

use crate::engine::record::{self, Figure, Record, Unit};
use crate::names::named;
use crate::status::PURGED;
use crate::work::tide::protocol::{Action, Done};

named! {
    /// A step, named as in the write-up after what was just done.
    #[derive(PartialOrd, Ord)]
    pub enum Step {
        /// The process before any step.
        Start = "start",
        /// The heap's bytes were allocated and dropped.
        Allocated = "allocated",
        /// The coroutines are parked.
        Created = "created",
        /// They ended.
        Closed = "closed",
        /// The heap's bytes again.
        AllocatedAgain = "allocated-again",
        /// The coroutines again.
        CreatedAgain = "created-again",
    }
}

impl Step {
    /// The worker's action; `None` at the start.
    pub fn action(self) -> Option<Action> {
        match self {
            Step::Start => None,
            Step::Allocated | Step::AllocatedAgain => Some(Action::Allocate),
            Step::Created | Step::CreatedAgain => Some(Action::Create),
            Step::Closed => Some(Action::Close),
        }
    }
}

named! {
    /// An order of the steps.
    pub enum Run {
        /// All five, with a wait after each.
        Waited = "waited",
        /// All five without waits, with a wait at the end.
        AtOnce = "at-once",
        /// Coroutines first, then at once the heap, which has no freed memory of its own.
        StacksFirst = "stacks-first",
    }
}

impl Run {
    /// Its steps, beginning with the start.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Run::Waited | Run::AtOnce => &Step::ALL,
            Run::StacksFirst => &[
                Step::Start,
                Step::Created,
                Step::Closed,
                Step::AllocatedAgain,
            ],
        }
    }

    /// Whether it waits after `step`.
    pub fn waits_after(self, step: Step) -> bool {
        self == Run::Waited || self.steps().last() == Some(&step)
    }
}

/// The case of a step.
pub fn case(run: Run, step: Step) -> String {
    format!("{} {}", run.name(), step.name())
}

/// An observed step; sizes in KiB.
pub struct Observation {
    /// The step.
    pub step: Step,
    /// When it began and ended, in ms since the process began.
    pub ms: (u64, u64),
    /// The worker's report.
    pub done: Done,
    /// Resident as soon as the step was done.
    pub rss: u64,
    /// Resident after the wait; `None` without a wait.
    pub later: Option<u64>,
    /// Peak resident size during the step.
    pub peak: u64,
    /// Page tables as soon as the step was done.
    pub tables: u64,
    /// Neap's free pages that may be resident, and what it gave back so far, after the wait if
    /// there was one. Both lag by less than a sixty-fourth of the heap, or 1 MiB.
    pub neap: Option<(u64, u64)>,
}

/// Resident KiB at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In ms since the process began.
    pub ms: u64,
    /// Resident KiB.
    pub kib: u64,
}

/// The names of a step's figures.
pub const BEGAN: &str = "began";
pub const ENDED: &str = "ended";
pub const RSS: &str = "RSS";
pub const LATER: &str = "RSS later";
pub const PEAK: &str = "peak RSS";
pub const FULL: &str = "RSS when full";
pub const LIVE: &str = "live";
pub const TABLES: &str = "page tables";
pub const FAULTS: &str = "minor faults";
pub const TIME: &str = "time";
pub const COROUTINES: &str = "coroutines";
pub const DIRTY: &str = "free and dirty";
pub const NOTE: &str = "note";

/// A step's figures.
pub fn figures(seen: &Observation) -> Vec<Figure> {
    let ms = |name, ms: u64| Figure::new(name, Unit::Milliseconds, ms as f64);
    let done = &seen.done;
    let mut figures = vec![
        ms(BEGAN, seen.ms.0),
        ms(ENDED, seen.ms.1),
        Figure::kib(RSS, seen.rss),
    ];
    figures.extend(seen.later.map(|kib| Figure::kib(LATER, kib)));
    figures.extend([
        Figure::kib(PEAK, seen.peak),
        Figure::kib(FULL, done.full_kib),
        Figure::kib(LIVE, done.live_kib),
        Figure::kib(TABLES, seen.tables),
        Figure::count(FAULTS, done.faults),
        Figure::nanoseconds(TIME, done.ns as f64),
        Figure::count(COROUTINES, done.coroutines),
    ]);
    if let Some((dirty, purged)) = seen.neap {
        figures.extend([Figure::kib(DIRTY, dirty), Figure::kib(PURGED, purged)]);
    }
    let note = (!done.note.is_empty()).then(|| Figure::text(NOTE, &*done.note));
    figures.extend(note);
    figures
}

/// The resident size over time, as figures of the run's case.
pub fn sample_figures(samples: &[Sample]) -> Vec<Figure> {
    let figure = |sample: &Sample| Figure::kib(format!("RSS at {} ms", sample.ms), sample.kib);
    samples.iter().map(figure).collect()
}

fn sample(figure: &Figure) -> Option<Sample> {
    let ms = figure
        .name
        .strip_prefix("RSS at ")?
        .strip_suffix(" ms")?
        .parse()
        .ok()?;
    Some(Sample {
        ms,
        kib: figure.as_number()? as u64,
    })
}

/// A record, read as steps.
pub struct Observed<'a>(pub &'a Record);

impl<'a> Observed<'a> {
    /// The engines with steps of one of these runs, in the order of the report.
    pub fn engines(&self, runs: &[Run]) -> Vec<&'a str> {
        let has = |engine: &&str| {
            runs.iter()
                .any(|run| self.step(engine, *run, Step::Start).is_some())
        };
        self.0.peers().into_iter().filter(has).collect()
    }

    fn figures(&self, engine: &str, case: &str) -> Option<record::Run<'a>> {
        let is_it = |run: &record::Run| run.peer() == engine && run.case() == case;
        self.0.runs().find(is_it)
    }

    /// A step's figures.
    pub fn step(&self, engine: &str, run: Run, step: Step) -> Option<record::Run<'a>> {
        self.figures(engine, &case(run, step))
    }

    /// A step's figures in the first run that has it.
    pub fn first(&self, engine: &str, step: Step) -> Option<record::Run<'a>> {
        Run::ALL
            .into_iter()
            .find_map(|run| self.step(engine, run, step))
    }

    /// An engine's steps of a run, in order.
    pub fn steps(&self, engine: &str, run: Run) -> Vec<record::Run<'a>> {
        let step = |step: &Step| self.step(engine, run, *step);
        Step::ALL.iter().filter_map(step).collect()
    }

    /// The resident size during a run.
    pub fn samples(&self, engine: &str, run: Run) -> Vec<Sample> {
        let run = self.figures(engine, run.name());
        let figures = run.iter().flat_map(record::Run::figures);
        figures.filter_map(sample).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn names_find_their_steps_and_runs() {
        for step in Step::ALL {
            assert_eq!(Step::find(step.name()), Some(step));
        }
        for run in Run::ALL {
            assert_eq!(Run::find(run.name()), Some(run));
        }
        assert_eq!((Step::find("x"), Run::find("x")), (None, None));
    }

    #[test]
    fn runs_begin_at_the_start_and_wait_at_their_end() {
        for run in Run::ALL {
            let steps = run.steps();
            assert_eq!(steps[0].action(), None);
            assert!(steps[1..].iter().all(|step| step.action().is_some()));
            assert!(run.waits_after(steps[steps.len() - 1]));
        }
        assert!(Run::Waited.waits_after(Step::Closed));
        assert!(!Run::AtOnce.waits_after(Step::Closed));
        assert!(!Run::StacksFirst.waits_after(Step::Closed));
    }

    /// MiB as KiB.
    const fn mib(mib: u64) -> u64 {
        mib << 10
    }

    /// How much freed memory an engine keeps, for examples.
    pub struct Habit {
        /// MiB resident after each step but the start, at once and later.
        pub rss: [(u64, u64); 5],
        /// MiB newly faulted by "created" and by "allocated again" in the run without waits.
        pub faulted: (u64, u64),
    }

    /// A heap and stacks that share everything and keep nothing.
    pub const SHARING: Habit = Habit {
        rss: [(100, 2), (202, 202), (202, 2), (102, 2), (202, 202)],
        faulted: (100, 1),
    };

    /// As in the write-up.
    pub const KEEPING: Habit = Habit {
        rss: [(102, 102), (302, 302), (302, 302), (402, 402), (402, 402)],
        faulted: (200, 100),
    };

    fn seen(step: Step, rss: u64, later: Option<u64>, live: u64, faulted: u64) -> Observation {
        let at = Step::ALL.iter().position(|s| *s == step).unwrap_or(0) as u64 * 3_000;
        let allocates = matches!(step, Step::Allocated | Step::AllocatedAgain);
        Observation {
            step,
            ms: (at, at + 900),
            done: Done {
                faults: faulted * 256,
                ns: 900_000_000,
                full_kib: if allocates { mib(rss.max(102)) } else { 0 },
                live_kib: mib(live),
                coroutines: live * 256,
                note: String::new(),
            },
            rss: mib(rss),
            later: later.map(mib),
            peak: mib(rss.max(102)),
            tables: 512,
            neap: None,
        }
    }

    /// Adds all runs of an engine: 100 MiB of heap, 200 MiB of stacks, 2 MiB to begin with.
    pub fn add(record: &mut Record, engine: &str, habit: &Habit) {
        let live = [0, 200, 0, 0, 200];
        let fresh = [100, habit.faulted.0, 0, habit.faulted.1, 200];
        for run in Run::ALL {
            let mut samples = Vec::new();
            for &step in run.steps() {
                let place = Step::ALL.iter().position(|s| *s == step).unwrap_or(0);
                let seen = match place.checked_sub(1) {
                    None => seen(step, 2, None, 0, 0),
                    Some(at) => {
                        let later = run.waits_after(step).then_some(habit.rss[at].1);
                        seen(step, habit.rss[at].0, later, live[at], fresh[at])
                    }
                };
                samples.push(Sample {
                    ms: seen.ms.1,
                    kib: seen.rss,
                });
                record.push(&case(run, step), engine, 0, figures(&seen));
            }
            record.push(run.name(), engine, 0, sample_figures(&samples));
        }
    }

    /// Two engines.
    pub fn example() -> Record {
        let mut record = Record::default();
        let head = [("date", "a b"), ("heap MB", "100"), ("coroutines", "50000")];
        record.head = head.map(|(k, v)| (k.to_string(), v.to_string())).into();
        add(&mut record, "go", &KEEPING);
        add(&mut record, "neap", &SHARING);
        record
    }

    #[test]
    fn steps_and_samples_are_found_as_they_were() {
        let mut record = example();
        let mut noted = seen(Step::Created, 9, Some(8), 7, 6);
        noted.neap = Some((3, 4));
        noted.done.note = "32,752 coroutines, then: Cannot allocate memory".into();
        record.push(
            &case(Run::AtOnce, Step::Created),
            "glibc",
            0,
            figures(&noted),
        );
        let record = Record::from_csv(&record.to_csv()).unwrap();
        let observed = Observed(&record);
        assert_eq!(observed.engines(&[Run::Waited]), ["go", "neap"]);
        let closed = observed.step("go", Run::Waited, Step::Closed).unwrap();
        assert_eq!(closed.number(LATER), Some(mib(302) as f64));
        assert!(observed.step("glibc", Run::Waited, Step::Closed).is_none());
        let created = observed.step("glibc", Run::AtOnce, Step::Created).unwrap();
        assert_eq!(created.figures().count(), figures(&noted).len());
        assert_eq!(created.text(NOTE), Some(&*noted.done.note));
        assert_eq!(observed.samples("neap", Run::StacksFirst).len(), 4);
    }
}
