//! A campaign: interleaved rounds within a time budget, all that came of them, and the progress on
//! standard error.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use super::record::{EXPERIMENT, Figure, Record};
use crate::machine;
use crate::peers::Peer;
use crate::peers::locate::Ready;
use crate::stats::Rng;

/// How the workers' own loops were compiled.
const HARNESS: &str = if cfg!(debug_assertions) {
    "debug build"
} else {
    "optimised"
};

/// What is run under what: a case, a peer.
pub trait Named {
    /// Its name on the command line and in the record, without commas.
    fn name(&self) -> String;
}

impl<T: Named + ?Sized> Named for &T {
    fn name(&self) -> String {
        (*self).name()
    }
}

impl Named for str {
    fn name(&self) -> String {
        self.to_string()
    }
}

/// Implements [`Named`] for types that have their name in a field.
macro_rules! by_name {
    ($($type:ty),+) => {
        $(impl $crate::engine::campaign::Named for $type {
            fn name(&self) -> String {
                self.name.to_string()
            }
        })+
    };
}
pub(crate) use by_name;

by_name!(Peer, Ready);

/// A campaign in progress.
pub struct Campaign {
    experiment: &'static str,
    /// What was measured.
    pub record: Record,
    /// What is shown meanwhile.
    pub progress: Progress,
    /// The runs that failed, each reported once.
    failures: Vec<String>,
    /// What was left out, and why.
    left_out: Vec<String>,
    start: Instant,
    budget: Duration,
    rng: Rng,
}

impl Campaign {
    /// A campaign of an experiment that starts no run after `budget`. `seed` orders the peers of a
    /// round.
    pub fn new(
        experiment: &'static str,
        progress: Progress,
        budget: Duration,
        seed: u64,
    ) -> Campaign {
        Campaign {
            experiment,
            record: Record::default(),
            progress,
            failures: Vec::new(),
            left_out: Vec::new(),
            start: Instant::now(),
            budget,
            rng: Rng::new(seed),
        }
    }

    /// Sets the head of the record: the experiment, the date, the sources, the options, the
    /// machine, the versions.
    pub fn head<K: AsRef<str>>(&mut self, options: &[(K, String)], peers: &[Ready]) {
        let first = [
            (EXPERIMENT, self.experiment.to_string()),
            ("date", machine::today()),
            ("revision", machine::revision()),
        ];
        let options = options.iter();
        let options = options.map(|(key, value)| (key.as_ref(), value.clone()));
        let lines = first.into_iter().chain(options);
        let lines = lines
            .chain([("harness", HARNESS.to_string())])
            .chain(machine::describe());
        self.record.head = lines.map(|(key, value)| (key.to_string(), value)).collect();
        for peer in peers {
            self.add_version(peer.name, &peer.version);
        }
    }

    /// Adds a version to the head.
    pub fn add_version(&mut self, name: &str, version: &str) {
        self.record
            .head
            .push((format!("version of {name}"), version.to_string()));
    }

    /// Notes something that is not measured.
    pub fn leave_out(&mut self, what: impl Into<String>) {
        self.left_out.push(what.into());
    }

    /// Notes a failure, unless the same was noted before.
    pub fn fail(&mut self, failure: String) {
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// Whether the time is up; then notes what is left out.
    pub fn is_spent(&mut self, what: impl FnOnce() -> String) -> bool {
        let spent = self.start.elapsed() >= self.budget;
        if spent {
            self.leave_out(format!("time is up {}", what()));
        }
        spent
    }

    /// Adds a run's figures, or why there are none.
    pub fn note(
        &mut self,
        (case, peer, round): (&str, &str, u32),
        told: anyhow::Result<Vec<Figure>>,
    ) {
        self.progress.step();
        match told {
            Ok(figures) => self.record.push(case, peer, round, figures),
            Err(reason) => self.fail(format!("{case} under {peer}: {reason:#}")),
        }
    }

    /// Runs every case under every peer, `rounds` times. Rounds are the outer loop, so that a
    /// budget that ends early leaves every case with almost the same number of pairs.
    pub fn rounds<C: Named, P: Named>(
        &mut self,
        rounds: u32,
        (cases, peers): (&[C], &[P]),
        mut run: impl FnMut(&C, &P) -> anyhow::Result<Vec<Figure>>,
    ) {
        self.progress
            .expect(u64::from(rounds) * (cases.len() * peers.len()) as u64);
        for round in 0..rounds {
            let what = format!("round {} of {rounds}", round + 1);
            if !self.round((round, &what), (cases, peers), |_, case, peer| {
                run(case, peer)
            }) {
                return;
            }
        }
    }

    /// Runs every case under every peer once, the peers in shuffled order. The record has them in
    /// their own order. True unless the time was up before the end.
    pub fn round<C: Named, P: Named>(
        &mut self,
        (round, what): (u32, &str),
        (cases, peers): (&[C], &[P]),
        mut run: impl FnMut(&Record, &C, &P) -> anyhow::Result<Vec<Figure>>,
    ) -> bool {
        self.progress.phase(what);
        let mut order: Vec<usize> = (0..peers.len()).collect();
        for (done, case) in cases.iter().enumerate() {
            let missing = || Vec::from_iter(cases[done..].iter().map(Named::name)).join(", ");
            if self.is_spent(|| format!("in {what}, before {}", missing())) {
                return false;
            }
            self.rng.shuffle(&mut order);
            let mut told: Vec<_> = peers.iter().map(|_| None).collect();
            for &at in &order {
                self.progress
                    .say(&format!("{} {}", case.name(), peers[at].name()));
                told[at] = Some(run(&self.record, case, &peers[at]));
            }
            for (peer, told) in peers.iter().zip(told) {
                self.note(
                    (&case.name(), &peer.name(), round),
                    told.unwrap_or(Ok(Vec::new())),
                );
            }
        }
        true
    }

    /// Tells what was left out and what failed. True if nothing failed.
    pub fn verdict(&self) -> bool {
        self.left_out
            .iter()
            .for_each(|what| eprintln!("left out: {what}"));
        self.failures
            .iter()
            .for_each(|failure| eprintln!("failed: {failure}"));
        self.failures.is_empty()
    }
}

#[cfg(test)]
impl Campaign {
    /// A silent campaign with time, for tests.
    pub fn for_test() -> Campaign {
        Campaign::new("test", Progress::silent(), Duration::MAX, 1)
    }

    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }
}

/// The steps done so far: on a terminal a line that is rewritten, elsewhere a line for each phase.
pub struct Progress {
    bar: ProgressBar,
    is_silent: bool,
}

const STYLE: &str = "{pos}/{len}, {elapsed}, about {eta} left: {prefix} {msg}";

impl Progress {
    /// Progress on standard error.
    pub fn new() -> Progress {
        let style = ProgressStyle::with_template(STYLE).expect("a template of its own");
        let bar = ProgressBar::new(0).with_style(style);
        Progress {
            bar: bar.with_finish(ProgressFinish::AndClear),
            is_silent: false,
        }
    }

    /// Progress that is not shown.
    pub fn silent() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
            is_silent: true,
        }
    }

    /// Announces this many more steps.
    pub fn expect(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Begins a phase.
    pub fn phase(&self, what: &str) {
        self.bar.set_prefix(what.to_string());
        if self.bar.is_hidden() && !self.is_silent {
            eprintln!("{what}");
        }
    }

    /// Shows the work within the phase, on a terminal.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    /// Counts a step.
    pub fn step(&self) {
        self.bar.inc(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(case: &str, peer: &str) -> anyhow::Result<Vec<Figure>> {
        anyhow::ensure!(peer != "naive", "gone");
        Ok(vec![Figure::text("which", format!("{case} {peer}"))])
    }

    #[test]
    fn every_case_runs_under_every_peer_in_every_round_and_failures_are_told_once() {
        let mut campaign = Campaign::for_test();
        let (cases, peers) = (["own", "other"], ["neap", "naive", "glibc"]);
        campaign.rounds(3, (&cases, &peers), |case, peer| told(case, peer));
        let rows = &campaign.record.rows;
        assert_eq!(rows.len(), 3 * 2 * 2);
        assert!(
            rows.iter()
                .all(|row| row.figure.as_text().unwrap().ends_with(&row.peer))
        );
        let of_peer = |row: &super::super::record::Row| row.peer.clone();
        assert_eq!(
            rows[..4].iter().map(of_peer).collect::<Vec<_>>(),
            ["neap", "glibc", "neap", "glibc"]
        );
        assert_eq!(
            campaign.failures(),
            ["own under naive: gone", "other under naive: gone"]
        );
        assert!(campaign.left_out().is_empty() && !campaign.verdict());
    }

    #[test]
    fn without_time_nothing_runs_and_the_campaign_says_what_is_missing() {
        let mut campaign = Campaign::new("test", Progress::silent(), Duration::ZERO, 1);
        campaign.rounds(2, (&["own", "other"], &["neap"]), |case, peer| {
            told(case, peer)
        });
        assert_eq!(
            campaign.left_out(),
            ["time is up in round 1 of 2, before own, other"]
        );
        assert!(campaign.record.rows.is_empty() && campaign.verdict());
    }
}
