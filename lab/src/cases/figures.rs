//! What a run's samples say.

use std::time::Duration;

use super::case::Case;
use super::party::Failure;
use super::tree::Held;
use crate::engine::record::{Figure, Unit};
use crate::status::Purges;

/// The figures' names.
pub const PEAK: &str = "peak";
pub const AT_REST: &str = "at rest";
pub const SOON: &str = "2 s after";
pub const END: &str = "at the end";
pub const LIVE: &str = "live";
pub const TIME: &str = "time";
pub const CPU: &str = "processor time";
pub const IDLE_CPU: &str = "processor time at rest";
pub const PROCESSES: &str = "processes";
pub const CHECK: &str = "check";
pub const OUTCOME: &str = "outcome";
pub const SAID: &str = "said";
pub const COURSE: &str = "MB over seconds";

/// The outcome of a run without a fault.
pub const FINE: &str = "ok";

/// The second moment of the rest.
const SOON_AFTER: Duration = Duration::from_secs(2);

/// A sample, and when it was taken since the run's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    pub at: Duration,
    pub held: Held,
}

/// A moment that the program told: when, and the first sample after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    pub at: Duration,
    pub sample: usize,
}

/// Everything that was observed of a run.
#[derive(Debug, Default)]
pub struct Observed {
    /// The samples, in order.
    pub samples: Vec<Moment>,
    /// When the load began.
    pub work: Option<Mark>,
    /// When it was over.
    pub rest: Option<Mark>,
    /// The kernel's own peak since then, if there was one process.
    pub exact_peak: Option<u64>,
    /// What Neap gave back to the kernel from the start to the end of the rest.
    pub purges: Option<Purges>,
    /// The bytes that the program says are live at rest.
    pub live: Option<u64>,
    /// A digest of the work's result.
    pub check: Option<String>,
    /// Why it did not go well.
    pub failure: Option<Failure>,
}

impl Observed {
    /// The figures. A run that failed has those up to its failure.
    pub fn figures(&self, case: &Case) -> Vec<Figure> {
        let mut figures = Vec::new();
        let seconds = |name, time: Duration| Figure::new(name, Unit::Seconds, time.as_secs_f64());
        let bytes = |name, bytes: u64| Figure::bytes(name, bytes as f64);
        if let Some(work) = self.work {
            figures.push(bytes(PEAK, self.peak(work)));
            let most = self.samples[work.sample..]
                .iter()
                .map(|moment| moment.held.processes);
            figures.push(Figure::count(PROCESSES, most.max().unwrap_or(0) as u64));
        }
        if let (Some(work), Some(rest), Some(last)) = (self.work, self.rest, self.samples.last()) {
            let (begun, idle) = (self.samples[work.sample], self.samples[rest.sample]);
            figures.push(bytes(AT_REST, idle.held.bytes));
            let mut later = self.samples[rest.sample..].iter();
            let soon = later.find(|moment| moment.at >= rest.at + SOON_AFTER);
            figures.extend(soon.map(|moment| bytes(SOON, moment.held.bytes)));
            figures.push(bytes(END, last.held.bytes));
            figures.push(seconds(TIME, rest.at - work.at));
            let taken = |from: Moment, to: Moment| to.held.cpu.saturating_sub(from.held.cpu);
            figures.push(seconds(CPU, taken(begun, idle)));
            figures.push(seconds(IDLE_CPU, taken(idle, *last)));
        }
        figures.extend(self.purges.iter().flat_map(Purges::figures));
        figures.extend(self.live.map(|live| bytes(LIVE, live)));
        let check = self.check.as_ref().filter(|_| case.check);
        figures.extend(check.map(|check| Figure::text(CHECK, check)));
        let failure = self.failure.as_ref();
        let (what, said) = failure.map_or((FINE, ""), |failure| (&failure.what, &failure.said));
        figures.push(Figure::text(OUTCOME, one_line(what)));
        if !said.is_empty() {
            figures.push(Figure::text(SAID, one_line(said)));
        }
        figures.extend(self.course().map(|course| Figure::text(COURSE, course)));
        figures
    }

    fn peak(&self, work: Mark) -> u64 {
        let sampled = self.samples[work.sample..]
            .iter()
            .map(|moment| moment.held.bytes);
        sampled.chain(self.exact_peak).max().unwrap_or(0)
    }

    /// The memory over time since the load began, thinned: the rest's beginning, then `seconds:MB`.
    fn course(&self) -> Option<String> {
        let work = self.work?;
        let rest = self.rest.map_or(String::new(), |rest| {
            format!("{:.2} ", (rest.at - work.at).as_secs_f64())
        });
        Some(rest + &course(&self.samples[work.sample..], work.at))
    }
}

/// The memory over time since `zero`, thinned: `seconds:MB`.
pub fn course(samples: &[Moment], zero: Duration) -> String {
    let point = |moment: Moment| {
        let seconds = moment.at.saturating_sub(zero).as_secs_f64();
        format!("{seconds:.2}:{:.1}", moment.held.bytes as f64 / 1e6)
    };
    let points: Vec<String> = thinned(samples).into_iter().map(point).collect();
    points.join(" ")
}

/// The points of a course in the record.
const POINTS: usize = 200;

/// At most [`POINTS`] samples: the largest of each stretch of time, and the last.
fn thinned(samples: &[Moment]) -> Vec<Moment> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    let whole = (last.at - first.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let stretch = |moment: &Moment| {
        ((moment.at - first.at).as_secs_f64() / whole * (POINTS - 1) as f64) as usize
    };
    let stretches = samples.chunk_by(|a, b| stretch(a) == stretch(b));
    stretches
        .filter_map(|part| part.iter().copied().max_by_key(|moment| moment.held.bytes))
        .collect()
}

/// A text without line ends.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A course, read back from a record.
#[derive(Debug, Default, PartialEq)]
pub struct Course {
    /// When the load was over, in seconds.
    pub rest: Option<f64>,
    /// Seconds and MB.
    pub points: Vec<(f64, f64)>,
}

impl Course {
    /// Parses the text of a course; `None` if it is damaged.
    pub fn parse(text: &str) -> Option<Course> {
        let mut course = Course::default();
        for word in text.split(' ') {
            match word.split_once(':') {
                Some((seconds, megabytes)) => {
                    let point = (seconds.parse().ok()?, megabytes.parse().ok()?);
                    course.points.push(point);
                }
                None => course.rest = word.parse().ok(),
            }
        }
        Some(course)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::tests::record;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn moment(ms: u64, bytes: u64) -> Moment {
        let held = Held {
            bytes,
            cpu: Duration::from_millis(ms / 2),
            processes: 1,
        };
        Moment {
            at: Duration::from_millis(ms),
            held,
        }
    }

    fn mark(sample: usize) -> Option<Mark> {
        let at = Duration::from_millis(50 * sample as u64);
        Some(Mark { at, sample })
    }

    /// Loads for two seconds from 100 ms on, and rests for three.
    fn observed() -> Observed {
        let bytes = |ms: u64| match ms {
            ..=2_100 => 1_000_000 * ms,
            _ => 5_000_000,
        };
        Observed {
            samples: (0..=102).map(|n| moment(n * 50, bytes(n * 50))).collect(),
            work: mark(2),
            rest: mark(42),
            check: Some("abc".into()),
            ..Observed::default()
        }
    }

    fn case() -> Case {
        // Tests run at the same time, each with a folder of its own.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (me, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("neap-case-few-{me}-{count}"));
        std::fs::create_dir_all(&folder).unwrap();
        let text = "title = \"t\"\ncomplaint = [\"c\"]\nwhat = \"w\"\nkind = \"like\"\n\
                    subject = [\"true\"]\n";
        std::fs::write(folder.join("case.toml"), text).unwrap();
        let case = Case::read(&folder).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        case
    }

    #[test]
    fn figures_are_of_the_load_and_of_the_rest() {
        let figures = observed().figures(&case());
        let number = |name: &str| {
            let found = figures.iter().find(|figure| figure.name == name);
            found.and_then(Figure::as_number)
        };
        assert_eq!(number(PEAK), Some(2.1e9));
        assert_eq!((number(AT_REST), number(SOON)), (Some(2.1e9), Some(5e6)));
        assert_eq!((number(END), number(TIME)), (Some(5e6), Some(2.0)));
        assert_eq!((number(CPU), number(IDLE_CPU)), (Some(1.0), Some(1.5)));
        let record = record([("few", "neap", 0, figures)]);
        let run = record.runs().next().unwrap();
        assert_eq!(
            (run.text(OUTCOME), run.text(CHECK)),
            (Some(FINE), Some("abc"))
        );
        let course = Course::parse(run.text(COURSE).unwrap()).unwrap();
        assert_eq!((course.rest, course.points[0]), (Some(2.0), (0.0, 100.0)));
        assert_eq!(*course.points.last().unwrap(), (5.0, 5.0));
    }

    #[test]
    fn a_run_that_failed_has_its_peak_and_says_why() {
        let failure = Failure {
            what: "subject ended early: signal 11".into(),
            said: "no\nmemory".into(),
        };
        let failed = Observed {
            rest: None,
            failure: Some(failure),
            ..observed()
        };
        let figures = failed.figures(&case());
        let record = record([("few", "neap", 0, figures)]);
        let run = record.runs().next().unwrap();
        assert_eq!((run.number(PEAK), run.number(END)), (Some(2.1e9), None));
        assert_eq!(run.text(SAID), Some("no memory"));
        assert!(run.text(OUTCOME).unwrap().contains("signal 11"));
    }

    #[test]
    fn a_course_keeps_its_peaks_when_it_is_thinned() {
        let mut samples: Vec<Moment> = (0..10_000).map(|ms| moment(ms, 10)).collect();
        samples[4_321].held.bytes = 99;
        let thin = thinned(&samples);
        assert!(thin.len() <= POINTS && thin.len() > POINTS - 5);
        assert!(thin.contains(&samples[4_321]));
        assert!(thinned(&[]).is_empty() && thinned(&samples[..1]).len() == 1);
    }
}
