//! Interleaved rounds of every cell under every allocator, within a time budget.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::cells::{Cell, Contender};
use super::measure;
use super::record::{Row, Value};
use crate::report;
use crate::rng::Rng;

/// What to run.
pub struct Plan {
    /// The cells.
    pub cells: Vec<Cell>,
    /// The allocators.
    pub contenders: Vec<Contender>,
    /// Rounds.
    pub rounds: u32,
    /// Approximate duration of a timed run.
    pub cell_time: Duration,
    /// No run starts after this time.
    pub budget: Duration,
    /// Seeds the order of the allocators within each round.
    pub seed: u64,
}

impl Plan {
    /// Steps of a progress bar: the rounds, and an accounting run for every cell.
    pub fn steps(&self) -> u64 {
        (self.cells.len() * self.contenders.len()) as u64 * (u64::from(self.rounds) + 1)
    }
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
    rng: Rng,
    results: Results,
}

/// Carries out the plan. The accounting runs follow the first round, so a budget that ends early
/// costs repetitions but no columns of the report.
pub fn carry_out(plan: &Plan, bar: &ProgressBar) -> Results {
    let mut campaign = Campaign {
        plan,
        start: Instant::now(),
        bar,
        rng: Rng::new(plan.seed),
        results: Results::default(),
    };
    let mut round = 0;
    while round < plan.rounds && campaign.round(round) {
        if round == 0 {
            campaign.accounts();
        }
        round += 1;
    }
    campaign.results
}

impl Campaign<'_> {
    /// Notes what is left out if the time is up.
    fn spent(&mut self, what: &str, rest: &[Cell]) -> bool {
        let spent = self.start.elapsed() >= self.plan.budget;
        if spent {
            let missing: Vec<String> = rest.iter().map(Cell::name).collect();
            self.results.left_out.push(format!(
                "time is up in {what}, before {}",
                missing.join(", ")
            ));
        }
        spent
    }

    /// Runs one round. True if it was completed.
    fn round(&mut self, round: u32) -> bool {
        let what = format!("round {} of {}", round + 1, self.plan.rounds);
        report::progress(self.bar, &what);
        for (done, cell) in self.plan.cells.iter().enumerate() {
            if self.spent(&what, &self.plan.cells[done..]) {
                return false;
            }
            let mut contenders: Vec<&Contender> = self.plan.contenders.iter().collect();
            self.rng.shuffle(&mut contenders);
            for contender in contenders {
                self.say(&what, cell, contender);
                let timed = measure::timed(cell, contender, self.plan.cell_time);
                self.keep(
                    cell,
                    contender,
                    timed.map(|timed| Value::Timed { round, timed }),
                );
            }
        }
        true
    }

    fn accounts(&mut self) {
        let what = "the accounts";
        report::progress(self.bar, "accounting for zeroed bytes and system calls");
        for (done, cell) in self.plan.cells.iter().enumerate() {
            if self.spent(what, &self.plan.cells[done..]) {
                return;
            }
            for contender in &self.plan.contenders {
                let Some(pairs) = self.pairs_to_account(cell, contender) else {
                    self.bar.inc(1);
                    continue;
                };
                self.say(what, cell, contender);
                let account = measure::accounted(cell, contender, pairs);
                self.keep(cell, contender, account.map(Value::Accounted));
            }
        }
    }

    /// The number of pairs that take a fifth of a second, by the first round; `None` if that
    /// failed.
    fn pairs_to_account(&self, cell: &Cell, contender: &Contender) -> Option<u64> {
        let timed = self.results.rows.iter().find_map(|row| match &row.value {
            Value::Timed { timed, .. } if row.is_of(cell, contender.name) => Some(timed),
            _ => None,
        });
        Some((2e8 / timed?.ns_median).clamp(1.0, 100.0) as u64)
    }

    fn say(&self, what: &str, cell: &Cell, contender: &Contender) {
        self.bar
            .set_message(format!("{what}: {} {}", cell.name(), contender.name));
    }

    fn keep(&mut self, cell: &Cell, contender: &Contender, value: anyhow::Result<Value>) {
        self.bar.inc(1);
        match value {
            Ok(value) => self
                .results
                .rows
                .push(Row::new(cell, contender.name, value)),
            Err(error) => {
                let failure = format!("{} under {}: {error:#}", cell.name(), contender.name);
                if !self.results.failures.contains(&failure) {
                    self.results.failures.push(failure);
                }
            }
        }
    }
}
