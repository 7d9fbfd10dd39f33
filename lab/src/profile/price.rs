//! The cost of sampling and of being watched: paired runs of three programs, interleaved in
//! shuffled order.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use super::watcher::Watcher;
use crate::engine::campaign::Campaign;
use crate::engine::figure::Figure;
use crate::names::named;
use crate::peers::Ready;
use crate::stats::Comparison;
use crate::workloads::{self, Workload};
use crate::{command, machine, programs, run};

named! {
    /// How the process under Neap runs.
    enum Way {
        /// With everything off.
        Plain = "off",
        /// With sampling on from its start.
        Sampled = "sampled",
        /// With everything off, and `neap top` attached.
        Watched = "watched",
    }
}

impl Way {
    /// The fraction of its time that it may cost.
    fn bar(self) -> f64 {
        match self {
            Way::Plain => 0.0,
            Way::Sampled => 0.02,
            Way::Watched => 0.005,
        }
    }
}

/// What to run.
pub struct Plan {
    /// Neap's library.
    pub neap: Ready,
    /// The command `neap`, whose `top` is attached; without it, only sampling is measured.
    pub command: Option<PathBuf>,
    /// The number of pairs.
    pub rounds: u32,
    /// Operations are divided by this.
    pub divisor: u64,
    /// Mean bytes between two samples.
    pub rate: u64,
}

/// The programs, and enough operations of each for a few seconds, because `top` looks once per
/// second.
const RUNS: [(&str, u64); 3] = [
    ("redis", 1_000_000),
    ("python-json", 6),
    ("server", 160_000_000),
];

/// The installed command `neap`.
pub fn command() -> Option<PathBuf> {
    command::neap()
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Cost {
    nanoseconds: f64,
    processor: f64,
}

/// Runs all pairs.
pub fn carry_out(plan: &Plan, campaign: &mut Campaign) {
    let mut ways = vec![Way::Plain, Way::Sampled];
    match plan.command {
        Some(_) => ways.push(Way::Watched),
        None => campaign.leave_out("watched: no command neap is here"),
    }
    for (name, operations) in RUNS {
        let Some(workload) = workloads::find(name) else {
            continue;
        };
        if let Some(reason) = programs::absent(workload) {
            campaign.leave_out(format!("{name}: {reason}"));
            continue;
        }
        campaign
            .progress
            .phase(&format!("{name}, {} rounds", plan.rounds));
        let operations = (operations / plan.divisor).max(workload.quick);
        if let Err(reason) = all_rounds(plan, workload, operations, &ways, campaign) {
            campaign.fail(format!("{name}: {reason:#}"));
        }
    }
}

fn all_rounds(
    plan: &Plan,
    workload: &Workload,
    operations: u64,
    ways: &[Way],
    campaign: &mut Campaign,
) -> anyhow::Result<()> {
    let mut order = ways.to_vec();
    let mut costs: Vec<Vec<(Way, Cost)>> = Vec::new();
    // Unmeasured: the first run of a program reads its files from disk.
    once(plan, workload, operations, Way::Plain)?;
    for _ in 0..plan.rounds {
        campaign.rng().shuffle(&mut order);
        let one = |&way: &Way| Ok((way, once(plan, workload, operations, way)?));
        costs.push(order.iter().map(one).collect::<anyhow::Result<_>>()?);
    }
    for &way in ways {
        note_times(workload.name, way, &costs, campaign);
    }
    for &way in &ways[1..] {
        note_ratios(workload.name, way, &costs, campaign);
    }
    Ok(())
}

fn cost_of(round: &[(Way, Cost)], way: Way) -> Option<Cost> {
    round
        .iter()
        .find(|(of, _)| *of == way)
        .map(|(_, cost)| *cost)
}

fn note_times(name: &str, way: Way, costs: &[Vec<(Way, Cost)>], campaign: &mut Campaign) {
    for (round, cost) in (0..).zip(costs.iter().filter_map(|round| cost_of(round, way))) {
        let mut figures = vec![Figure::nanoseconds("of an operation", cost.nanoseconds)];
        // For a watched run, it includes the time of `top`.
        if way != Way::Watched {
            let processor = Figure::nanoseconds("processor time of the run", cost.processor);
            figures.push(processor);
        }
        campaign.note((name, way.name(), round), Ok(figures));
    }
}

/// The case of the ratios.
pub const PRICE: &str = "more than with everything off";

fn note_ratios(name: &str, way: Way, costs: &[Vec<(Way, Cost)>], campaign: &mut Campaign) {
    let of_pairs = |side: fn(&Cost) -> f64| -> Vec<(f64, f64)> {
        let pair = |round: &Vec<(Way, Cost)>| {
            let (with, without) = (cost_of(round, way)?, cost_of(round, Way::Plain)?);
            Some((side(&with), side(&without)))
        };
        costs.iter().filter_map(pair).collect()
    };
    let times = of_pairs(|cost| cost.nanoseconds);
    note_pairs(name, &format!("{}: time", way.name()), &times, campaign);
    if way == Way::Sampled {
        let processor = of_pairs(|cost| cost.processor);
        note_pairs(name, "sampled: processor time", &processor, campaign);
    }
    let Some(comparison) = Comparison::of(&times) else {
        return;
    };
    let p = Figure::number(format!("{}: p", way.name()), comparison.p);
    campaign.note((PRICE, name, 0), Ok(vec![p]));
    if comparison.separable() && comparison.median > 1.0 + way.bar() {
        let (percent, bar) = ((comparison.median - 1.0) * 100.0, way.bar() * 100.0);
        let failure = format!(
            "{name} {}: {percent:.2} % more time, over {bar} %",
            way.name()
        );
        campaign.fail(failure);
    }
}

fn note_pairs(name: &str, figure: &str, pairs: &[(f64, f64)], campaign: &mut Campaign) {
    for (round, (with, without)) in (0..).zip(pairs) {
        let more = Figure::share(figure, with / without - 1.0);
        campaign.note((PRICE, name, round), Ok(vec![more]));
    }
}

/// One run of a workload.
fn once(plan: &Plan, workload: &Workload, operations: u64, way: Way) -> anyhow::Result<Cost> {
    let neap = match way {
        Way::Sampled => plan.neap.with_setting("NEAP_SAMPLE", plan.rate.to_string()),
        Way::Plain | Way::Watched => plan.neap.clone(),
    };
    let watcher = match (way, &plan.command) {
        (Way::Watched, command) => Some(Watcher::start(command.as_ref().context("no neap")?)),
        _ => None,
    };
    let before = machine::childrens_processor_time();
    let sample = match workload.is_ours() {
        true => run::once(workload, &neap, operations),
        false => programs::once(workload, &neap, operations),
    };
    let processor = machine::childrens_processor_time().saturating_sub(before);
    if let Some(told) = watcher.map(Watcher::stop) {
        let complaint = told.complaint.unwrap_or_default();
        ensure!(told.lines > 0, "neap top told nothing: {complaint}");
    }
    Ok(Cost {
        nanoseconds: sample?.ns_per_op,
        processor: processor.as_nanos() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(factor: f64) -> Vec<Vec<(Way, Cost)>> {
        let cost = |nanoseconds| Cost {
            nanoseconds,
            processor: nanoseconds,
        };
        let round = |n: u32| {
            let base = 100.0 + f64::from(n);
            vec![
                (Way::Sampled, cost(base * factor)),
                (Way::Plain, cost(base)),
            ]
        };
        (0..10).map(round).collect()
    }

    #[test]
    fn what_costs_more_than_its_bar_is_a_failure() {
        let mut campaign = Campaign::for_test();
        note_ratios("redis", Way::Sampled, &rounds(1.01), &mut campaign);
        assert!(campaign.failures().is_empty());
        assert_eq!(campaign.record.rows.len(), 21);
        note_ratios("redis", Way::Sampled, &rounds(1.05), &mut campaign);
        assert_eq!(campaign.failures().len(), 1, "{:?}", campaign.failures());
    }
}
