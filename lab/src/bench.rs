//! A campaign: every workload under every peer, in interleaved rounds, within a time budget.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::counts;
use crate::peers::Ready;
use crate::programs;
use crate::record::{Row, Value};
use crate::report;
use crate::rng::Rng;
use crate::run::{self, Sample};
use crate::work::count;
use crate::workloads::Workload;

/// The size of each workload's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Large enough to measure.
    Full,
    /// Just large enough to show that it works.
    Quick,
}

impl Extent {
    fn ops(self, workload: &Workload) -> u64 {
        match self {
            Extent::Full => workload.full,
            Extent::Quick => workload.quick,
        }
    }
}

/// Whether instructions and system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Counted if the tools are installed.
    Taken,
    /// Not counted.
    Skipped,
}

/// What to run.
pub struct Plan {
    /// The workloads.
    pub workloads: Vec<&'static Workload>,
    /// The allocators.
    pub peers: Vec<Ready>,
    /// Rounds of paired runs.
    pub rounds: u32,
    /// The size of each run.
    pub extent: Extent,
    /// Whether to count instructions and system calls.
    pub counts: Counts,
    /// No run starts after this time.
    pub budget: Duration,
    /// Seeds the order of the peers within each round.
    pub seed: u64,
}

/// The results of a campaign.
#[derive(Default)]
pub struct Results {
    /// The measurements.
    pub rows: Vec<Row>,
    /// Runs that failed, each reported once.
    pub failures: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

/// A campaign in progress.
struct Campaign<'a> {
    plan: &'a Plan,
    start: Instant,
    bar: &'a ProgressBar,
    results: Results,
}

/// Carries out the plan.
pub fn carry_out(plan: &Plan, bar: &ProgressBar) -> Results {
    let mut campaign = Campaign {
        plan,
        start: Instant::now(),
        bar,
        results: Results::default(),
    };
    let workloads = campaign.present_workloads();
    campaign.all_rounds(&workloads);
    match plan.counts {
        Counts::Taken => {
            campaign.count_instructions();
            campaign.count_system_calls(&workloads);
        }
        Counts::Skipped => campaign.leave_out("counts: not asked for".into()),
    }
    campaign.results
}

/// Steps of the progress bar for `plan`.
pub fn steps(plan: &Plan) -> u64 {
    let rounds = (plan.workloads.len() * plan.peers.len()) as u64 * u64::from(plan.rounds);
    match plan.counts {
        Counts::Taken => {
            rounds + ((plan.workloads.len() + count::PAIRS.len()) * plan.peers.len()) as u64
        }
        Counts::Skipped => rounds,
    }
}

impl Campaign<'_> {
    fn leave_out(&mut self, what: String) {
        self.results.left_out.push(what);
    }

    fn spent(&self) -> bool {
        self.start.elapsed() >= self.plan.budget
    }

    /// The workloads whose programs are installed.
    fn present_workloads(&mut self) -> Vec<&'static Workload> {
        let mut present = Vec::new();
        for workload in &self.plan.workloads {
            match programs::absent(workload) {
                None => present.push(*workload),
                Some(reason) => self.leave_out(format!("{}: {reason}", workload.name)),
            }
        }
        present
    }

    /// Rounds are the outer loop, so that a budget that ends early leaves every workload with
    /// almost the same number of pairs.
    fn all_rounds(&mut self, workloads: &[&'static Workload]) {
        let mut rng = Rng::new(self.plan.seed);
        for round in 0..self.plan.rounds {
            report::progress(
                self.bar,
                &format!("round {} of {}", round + 1, self.plan.rounds),
            );
            for (done, workload) in workloads.iter().enumerate() {
                if self.spent() {
                    let missing: Vec<&str> = workloads[done..].iter().map(|w| w.name).collect();
                    self.leave_out(format!(
                        "time is up in round {} of {}, before {}",
                        round + 1,
                        self.plan.rounds,
                        missing.join(", ")
                    ));
                    return;
                }
                self.one_row(workload, round, &mut rng);
            }
        }
    }

    /// One workload under every peer, in random order.
    fn one_row(&mut self, workload: &'static Workload, round: u32, rng: &mut Rng) {
        let mut peers: Vec<&Ready> = self.plan.peers.iter().collect();
        rng.shuffle(&mut peers);
        for peer in peers {
            self.bar.set_message(format!(
                "round {}: {} {}",
                round + 1,
                workload.name,
                peer.name
            ));
            let sample = once(workload, peer, self.plan.extent);
            self.keep(
                workload.name,
                peer,
                sample.map(|sample| Value::Timed { round, sample }),
            );
        }
    }

    fn keep(&mut self, name: &str, peer: &Ready, value: anyhow::Result<Value>) {
        self.bar.inc(1);
        match value {
            Ok(value) => {
                let (name, peer) = (name.to_string(), peer.name.to_string());
                self.results.rows.push(Row { name, peer, value });
            }
            Err(error) => {
                let failure = format!("{name} under {}: {error:#}", peer.name);
                if !self.results.failures.contains(&failure) {
                    self.results.failures.push(failure);
                }
            }
        }
    }

    fn count_instructions(&mut self) {
        if let Some(reason) = counts::no_instructions() {
            return self.leave_out(format!("instructions: {reason}"));
        }
        report::progress(self.bar, "counting instructions");
        let counted = match self.plan.extent {
            Extent::Full => count::PAIRS,
            Extent::Quick => &count::PAIRS[..1],
        };
        for counted in counted {
            for peer in &self.plan.peers {
                if self.spent() {
                    return self.leave_out(format!(
                        "time is up at the instructions of {}",
                        counted.name
                    ));
                }
                let count = counts::instructions(counted, peer);
                self.keep(counted.name, peer, count.map(Value::Instructions));
            }
        }
    }

    fn count_system_calls(&mut self, workloads: &[&'static Workload]) {
        if let Some(reason) = counts::no_system_calls() {
            return self.leave_out(format!("system calls: {reason}"));
        }
        report::progress(self.bar, "counting system calls");
        for workload in workloads.iter().filter(|w| w.is_ours()) {
            for peer in &self.plan.peers {
                if self.spent() {
                    return self.leave_out(format!(
                        "time is up at the system calls of {}",
                        workload.name
                    ));
                }
                let calls = counts::system_calls(workload, peer, self.plan.extent.ops(workload));
                self.keep(workload.name, peer, calls.map(Value::SystemCalls));
            }
        }
    }
}

fn once(workload: &Workload, peer: &Ready, extent: Extent) -> anyhow::Result<Sample> {
    let ops = extent.ops(workload);
    match workload.is_ours() {
        true => run::once(workload, peer, ops),
        false => programs::once(workload, peer, ops),
    }
}
