//! One run: a subject under an allocator, from its start to its end.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::allocators::Located;
use super::case::Case;
use super::case::{Home, Work};
use super::figures::{Mark, Moment, Observed};
use super::party::{Failure, Heard, Parties, Party};
use super::tree::{self, Look, Tree};
use crate::engine::record::Figure;
use crate::status::StatusPages;

/// From one sample to the next.
const INTERVAL: Duration = Duration::from_millis(50);
/// A sample takes at most this part of the time.
const SHARE: u32 = 10;
/// Samples from one search for new processes to the next.
const ROUND: usize = 10;

/// Runs `case` once under `allocator`. A run that fails is a result, too.
///
/// # Errors
/// If a program does not start, or no directory can be made.
pub fn once(
    (case, home): (&Case, &Home),
    (allocator, variables): (&Located, &[(String, String)]),
    keeping: Keeping,
) -> anyhow::Result<Vec<Figure>> {
    let work = Work::new()?;
    // Whatever becomes of the run, nothing of it is left running.
    let _end = tree::EndAll;
    let mut run = Run::start((case, home), (allocator, variables), &work)?;
    let outcome = run.carry_out();
    run.observed.failure = outcome.and_then(|()| run.parties.finish()).err();
    if let Keeping::Directory = keeping {
        eprintln!("the directory of the run is {}", work.keep().display());
    }
    Ok(run.observed.figures(case))
}

/// What becomes of a run's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It is removed.
    Nothing,
    /// It stays, for a look.
    Directory,
}

/// A run in progress.
struct Run<'a> {
    case: &'a Case,
    parties: Parties,
    tree: Tree,
    start: Instant,
    is_own: bool,
    /// Under Neap.
    pages: Option<StatusPages>,
    observed: Observed,
}

impl Run<'_> {
    fn start<'a>(
        (case, home): (&'a Case, &Home),
        (allocator, variables): (&Located, &[(String, String)]),
        work: &Work,
    ) -> anyhow::Result<Run<'a>> {
        let library = allocator.ready.library.as_path();
        let start = Instant::now();
        let mut subject = home.subject(case, work, &[])?;
        subject.envs(variables.iter().cloned());
        if !allocator.is_own() {
            subject.env("LD_PRELOAD", library);
        }
        let parties = Parties::start(subject, home.driver(case, work)?)?;
        let real = library.canonicalize();
        let library = real.as_deref().unwrap_or(library);
        let driver = parties.driver.as_ref().map(Party::id);
        let tree = Tree::new(parties.subject.id(), driver, library);
        Ok(Run {
            case,
            parties,
            tree,
            start,
            is_own: allocator.is_own(),
            pages: allocator.is_neap().then(StatusPages::default),
            observed: Observed::default(),
        })
    }

    /// Samples until the rest is over.
    fn carry_out(&mut self) -> Result<(), Failure> {
        loop {
            let took = self.sample(self.next_look());
            let next = Instant::now() + INTERVAL.max(took * SHARE);
            loop {
                if self.is_over()? {
                    return Ok(());
                }
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let left = left.min(self.left_of_rest());
                match self.parties.heard.recv_timeout(left) {
                    Ok(Heard::Line(at, line)) => self.hear(at, line.trim())?,
                    Ok(Heard::Closed) | Err(RecvTimeoutError::Disconnected) => {
                        return Err(self.parties.silent());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        }
    }

    /// New processes are looked for in one of [`ROUND`] samples.
    fn next_look(&self) -> Look {
        match self.observed.samples.len() % ROUND {
            0 => Look::Around,
            _ => Look::Known,
        }
    }

    /// Adds a sample; tells how long that took.
    fn sample(&mut self, look: Look) -> Duration {
        let before = Instant::now();
        let held = self.tree.held(look);
        let at = self.start.elapsed();
        if let (Some(pages), Look::Around) = (&mut self.pages, look) {
            pages.look(self.tree.lives());
        }
        self.observed.samples.push(Moment { at, held });
        before.elapsed()
    }

    /// Adds a sample for a moment that the program has told.
    fn mark(&mut self, at: Instant) -> Option<Mark> {
        self.sample(Look::Around);
        Some(Mark {
            at: at - self.start,
            sample: self.observed.samples.len() - 1,
        })
    }

    fn hear(&mut self, at: Instant, line: &str) -> Result<(), Failure> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "work" if self.observed.work.is_none() => {
                self.tree.restart_peaks();
                self.observed.work = self.mark(at);
            }
            "rest" if self.observed.work.is_some() && self.observed.rest.is_none() => {
                self.observed.rest = self.mark(at);
                let objection = tree::objection(&self.tree.counted(), self.is_own)
                    .or_else(|| tree::stranger(&self.tree.uncounted()));
                if let Some(said) = objection {
                    let what = "not comparable".to_string();
                    return Err(Failure { what, said });
                }
            }
            "live" => self.observed.live = rest.trim().parse().ok(),
            "check" => self.observed.check = Some(rest.trim().to_string()),
            _ => {}
        }
        Ok(())
    }

    /// Whether the rest is over.
    ///
    /// # Errors
    /// If a phase takes too long, or a program has ended.
    fn is_over(&mut self) -> Result<bool, Failure> {
        let now = self.start.elapsed();
        let since = |mark: Option<Mark>| mark.map(|mark| now - mark.at);
        let limits = (since(self.observed.work), since(self.observed.rest));
        let (phase, limit, spent) = match limits {
            (None, _) => ("preparation", self.case.prepare, now),
            (Some(spent), None) => ("load", self.case.seconds, spent),
            (_, Some(spent)) if spent >= self.rest() => {
                self.sample(Look::Around);
                self.observed.exact_peak = self.tree.exact_peak();
                let pages = self.pages.as_mut();
                self.observed.purges = pages.and_then(|pages| pages.sum(self.tree.lives()));
                return Ok(true);
            }
            (_, Some(spent)) => ("rest", u64::MAX, spent),
        };
        self.parties.ensure_running()?;
        if spent > Duration::from_secs(limit) {
            return Err(self.parties.failed(format!("{phase} over {limit} s")));
        }
        Ok(false)
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(self.case.rest)
    }

    /// Until the rest is over; before it has begun, until the next look at the programs.
    fn left_of_rest(&self) -> Duration {
        let over = self.observed.rest.map(|mark| mark.at + self.rest());
        let left = over.map(|over| over.saturating_sub(self.start.elapsed()));
        left.unwrap_or(INTERVAL).min(INTERVAL)
    }
}
