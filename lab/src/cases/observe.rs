//! One run: a subject under an allocator, from its start to its end.

use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::allocators::Located;
use super::case::Case;
use super::case::{Home, Work};
use super::figures::{Failure, Mark, Moment, Observed};
use super::party::{Heard, Party, in_words, is_orderly};
use super::tree::{self, Look, Tree};
use crate::engine::record::Figure;
use crate::status::StatusPages;

/// From one sample to the next.
const INTERVAL: Duration = Duration::from_millis(50);
/// A sample takes at most this part of the time.
const SHARE: u32 = 10;
/// Samples from one search for new processes to the next.
const ROUND: usize = 10;
/// For the end of a program whose input is closed, and for one that was asked to end.
const LONGEST_END: Duration = Duration::from_secs(30);
const LONGEST_GRACE: Duration = Duration::from_secs(5);

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
    run.observed.outcome = outcome.and_then(|()| run.finish());
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
    subject: Party,
    driver: Option<Party>,
    heard: Receiver<Heard>,
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
        let mut command = home.command(&case.subject, Some(work))?;
        for (name, value) in &case.env {
            command.env(name, home.filled(value, Some(work)));
        }
        command.envs(variables.iter().cloned());
        if !allocator.is_own() {
            command.env("LD_PRELOAD", library);
        }
        let (ear, heard) = mpsc::channel();
        let is_driven = !case.driver.is_empty();
        let start = Instant::now();
        let ears = (!is_driven).then(|| ear.clone());
        let subject = Party::start("subject", command, ears)?;
        let driver = match is_driven {
            true => {
                let mut command = home.command(&case.driver, Some(work))?;
                command.env("CASE_SUBJECT", subject.id().to_string());
                Some(Party::start("driver", command, Some(ear))?)
            }
            false => None,
        };
        let real = library.canonicalize();
        let library = real.as_deref().unwrap_or(library);
        let tree = Tree::new(subject.id(), driver.as_ref().map(Party::id), library);
        Ok(Run {
            case,
            subject,
            driver,
            heard,
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
                match self.heard.recv_timeout(left) {
                    Ok(Heard::Line(at, line)) => self.hear(at, line.trim())?,
                    Ok(Heard::Closed) | Err(RecvTimeoutError::Disconnected) => {
                        return Err(self.silent());
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
        let parties = [Some(&mut self.subject), self.driver.as_mut()];
        let early = parties
            .into_iter()
            .flatten()
            .find_map(|party| Some((party.role, party.ended()?)));
        if let Some((role, status)) = early {
            return Err(self.failed(format!("{role} ended early: {}", in_words(status))));
        }
        match spent > Duration::from_secs(limit) {
            true => Err(self.failed(format!("{phase} over {limit} s"))),
            false => Ok(false),
        }
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

    /// The driving program has closed its standard output too early.
    fn silent(&mut self) -> Failure {
        let party = self.driver.as_mut().unwrap_or(&mut self.subject);
        let what = match party.wait(LONGEST_GRACE).map(in_words) {
            Some(status) => format!("{} ended early: {status}", party.role),
            None => format!("{} closed its output early", party.role),
        };
        self.failed(what)
    }

    fn failed(&self, what: String) -> Failure {
        // The readers of the standard errors may be behind.
        std::thread::sleep(INTERVAL);
        let parties = [Some(&self.subject), self.driver.as_ref()];
        let words = parties.into_iter().flatten().map(|party| {
            let words = party.last_words();
            (!words.is_empty()).then(|| format!("{}: {words}", party.role))
        });
        let said: Vec<String> = words.flatten().collect();
        Failure {
            what,
            said: said.join(" / "),
        }
    }

    /// Lets the programs end.
    fn finish(&mut self) -> Result<(), Failure> {
        let Some(driver) = &mut self.driver else {
            self.subject.dismiss();
            let status = self.subject.wait(LONGEST_END);
            return self.judge("subject", status, |status| status.success());
        };
        driver.dismiss();
        let status = driver.wait(LONGEST_END);
        self.judge("driver", status, |status| status.success())?;
        self.subject.dismiss();
        if self.subject.wait(LONGEST_GRACE).is_none() {
            self.subject.terminate();
        }
        let status = self.subject.wait(LONGEST_END);
        self.judge("subject", status, is_orderly)
    }

    fn judge(
        &self,
        role: &str,
        status: Option<ExitStatus>,
        is_good: fn(ExitStatus) -> bool,
    ) -> Result<(), Failure> {
        match status {
            None => Err(self.failed(format!("{role} does not end"))),
            Some(status) if is_good(status) => Ok(()),
            Some(status) => Err(self.failed(format!("{role} ended badly: {}", in_words(status)))),
        }
    }
}
