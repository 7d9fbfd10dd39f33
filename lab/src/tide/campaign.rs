//! Every run of every engine, then the prices in interleaved rounds.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::ProgressBar;

use super::engines::Present;
use super::follow::{follow, thinned};
use super::record::{Price, Row};
use super::sizes::Sizes;
use super::steps::Run;
use crate::peers::Ready;
use crate::rng::Rng;
use crate::work::tide::prices::Priced;
use crate::work::tide::stacks::StackKind;
use crate::{report, run};

/// A sample within this many KiB of the last one kept is dropped.
const TOLERANCE: u64 = 512;

/// What to run.
pub struct Plan {
    /// The engines.
    pub engines: Vec<Present>,
    /// The orders of the steps.
    pub runs: Vec<Run>,
    /// The sizes.
    pub sizes: Sizes,
    /// The wait after a step.
    pub wait: Duration,
    /// The prices, if requested.
    pub prices: Option<Prices>,
    /// No run starts after this time.
    pub budget: Duration,
    /// Seeds the order of the prices.
    pub seed: u64,
}

/// How the prices are measured.
pub struct Prices {
    /// Neap's library: the heap under both kinds of stacks.
    pub neap: Ready,
    /// Interleaved rounds.
    pub rounds: u32,
    /// Coroutines per burst; the other counts follow from it.
    pub burst: u64,
}

/// The compared kinds of stacks.
const KINDS: [StackKind; 2] = [StackKind::Own, StackKind::Neap];

impl Plan {
    /// Steps of a progress bar.
    pub fn steps(&self) -> u64 {
        let rounds = self.prices.as_ref().map_or(0, |prices| prices.rounds);
        (self.engines.len() * self.runs.len() + KINDS.len() * rounds as usize) as u64
    }
}

/// The results of a campaign.
#[derive(Default)]
pub struct Results {
    /// The measurements.
    pub rows: Vec<Row>,
    /// Runs that failed.
    pub failures: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

/// Carries out the plan.
pub fn carry_out(plan: &Plan, bar: &ProgressBar) -> Results {
    let mut campaign = Campaign {
        plan,
        bar,
        start: Instant::now(),
        results: Results::default(),
    };
    for engine in &plan.engines {
        for &run in &plan.runs {
            campaign.one_run(engine, run);
        }
    }
    if let Some(prices) = &plan.prices {
        campaign.prices(prices);
    }
    campaign.results
}

struct Campaign<'a> {
    plan: &'a Plan,
    bar: &'a ProgressBar,
    start: Instant,
    results: Results,
}

impl Campaign<'_> {
    /// Whether the time is up; then notes what is left out.
    fn is_spent(&mut self, what: &str) -> bool {
        let spent = self.start.elapsed() >= self.plan.budget;
        if spent {
            self.results
                .left_out
                .push(format!("time is up before {what}"));
        }
        spent
    }

    fn one_run(&mut self, engine: &Present, run: Run) {
        let what = format!("{} {}", engine.name, run.name());
        if !self.is_spent(&what) {
            report::progress(self.bar, &what);
            match follow(engine, &self.plan.sizes, run, self.plan.wait) {
                Ok(followed) => {
                    let (engine, samples) = (engine.name, thinned(&followed.samples, TOLERANCE));
                    let step = |seen| Row::step(engine, run, seen);
                    let sample = |sample| Row::sample(engine, run, sample);
                    let rows = &mut self.results.rows;
                    rows.extend(followed.steps.into_iter().map(step));
                    rows.extend(samples.into_iter().map(sample));
                }
                Err(error) => self.results.failures.push(format!("{what}: {error:#}")),
            }
        }
        self.bar.inc(1);
    }

    fn prices(&mut self, prices: &Prices) {
        let mut rng = Rng::new(self.plan.seed);
        for round in 0..prices.rounds {
            let what = format!("round {} of {} of the prices", round + 1, prices.rounds);
            if self.is_spent(&what) {
                return;
            }
            report::progress(self.bar, &what);
            let mut kinds = KINDS;
            rng.shuffle(&mut kinds);
            for kind in kinds {
                self.price(prices, kind, round);
                self.bar.inc(1);
            }
        }
    }

    fn price(&mut self, prices: &Prices, kind: StackKind, round: u32) {
        match priced(prices, kind, self.plan.sizes.stack_bytes) {
            Ok(all) => {
                let row = |(price, ns)| {
                    Row::Price(Price {
                        stacks: kind,
                        round,
                        price,
                        ns,
                    })
                };
                let rows = Priced::ALL.into_iter().zip(all).map(row);
                self.results.rows.extend(rows);
            }
            Err(error) => {
                let failure = format!("the prices of {} stacks: {error:#}", kind.name());
                if !self.results.failures.contains(&failure) {
                    self.results.failures.push(failure);
                }
            }
        }
    }
}

/// Times one kind of stacks in a process of its own.
fn priced(prices: &Prices, kind: StackKind, stack_bytes: usize) -> anyhow::Result<[f64; 4]> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["worker", "tide-prices", kind.name()])
        .args([stack_bytes.to_string(), prices.burst.to_string()])
        .env("LD_PRELOAD", &prices.neap.library);
    let report = run::output(&mut command)?;
    run::ensure_heap(&report, &prices.neap.library)?;
    parse(&report)
}

/// Prints, in the worker, what [`parse`] reads in the harness.
pub fn print(prices: &[f64; 4]) {
    for (price, ns) in Priced::ALL.iter().zip(prices) {
        println!("{}={ns:.2}", price.name());
    }
}

fn parse(report: &str) -> anyhow::Result<[f64; 4]> {
    let mut prices = [0.0; 4];
    for (place, price) in prices.iter_mut().zip(Priced::ALL) {
        *place = run::needed(report, price.name())?.parse()?;
        ensure!(*place > 0.0, "{} took no time", price.name());
    }
    Ok(prices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_by_their_words() {
        let report = "cold-burst=4.5\nwarm-burst=3\ncreate-end=2\nswitch=1.25\nheap=/x\n";
        assert_eq!(parse(report).unwrap(), [4.5, 3.0, 2.0, 1.25]);
        assert!(parse(&report.replace("switch=1.25", "switch=0")).is_err());
        assert!(parse(&report.replace("switch", "swap")).is_err());
    }
}
