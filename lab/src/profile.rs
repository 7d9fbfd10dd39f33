//! Whether the sampling profiler tells the truth: the mean error of each place over many processes
//! with the same known allocations.

use anyhow::ensure;

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::Figure;
use crate::engine::settings::{self, Settings};
use crate::peers::locate::{self, Places, Ready};
use crate::run;
use crate::work::sites::{PLACES, Reading, Side, Totals, readings};

/// The accuracy of the sampling profiler.
pub const EXPERIMENT: Experiment = Experiment {
    name: "profile",
    about: "Check the accuracy of the sampling profiler by known allocations",
    settings: || {
        vec![
            settings::neap(),
            settings::number("rate", "BYTES", (FINEST, u64::MAX))
                .default_value("524288")
                .help("Mean bytes between two samples"),
            settings::rounds().help("Processes whose means are compared (default: 200)"),
            settings::quick(),
        ]
    },
    run: carry_out,
    ..PLAIN
};

const RUNS: u32 = 200;
/// Bytes that each place allocates.
const BYTES: usize = 16 << 20;
/// The lowest rate that the library accepts, in bytes.
const FINEST: u64 = 4096;
/// A quick run divides its amounts by this.
const QUICKER: u64 = 16;

/// A place whose mean is far off is a failure.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let neap = locate::neap(&Places::new(settings.path("neap"))?)?;
    let (runs, rate) = (settings.rounds(RUNS), settings.number("rate"));
    let options = [("runs", runs.to_string()), ("rate", rate.to_string())];
    campaign.head(&options, std::slice::from_ref(&neap));
    let divisor = if settings.is_quick() { QUICKER } else { 1 };
    let plan = Plan {
        neap,
        runs,
        bytes: BYTES / divisor as usize,
        // A quick run takes the same number of samples: with only one or two per place, errors are
        // not normally distributed.
        rate: (rate / divisor).max(FINEST),
    };
    compare(&plan, campaign);
    Ok(Ended::Measured)
}

/// What to run.
struct Plan {
    /// Neap's library.
    pub neap: Ready,
    /// The number of processes.
    pub runs: u32,
    /// Approximate bytes that each place allocates in each process.
    pub bytes: usize,
    /// Mean bytes between two samples.
    pub rate: u64,
}

/// The names of the cases in the record.
pub const ALLOCATED: &str = "profile over truth; allocated";
/// See [`ALLOCATED`].
pub const LIVE: &str = "profile over truth; live";
/// See [`ALLOCATED`].
pub const ALLOCATED_ERRORS: &str = "mean error in standard errors; allocated";
/// See [`ALLOCATED`].
pub const LIVE_ERRORS: &str = "mean error in standard errors; live";
/// See [`ALLOCATED`].
pub const SPREAD: &str = "spread of the runs over the theory's; allocated";

/// A mean error of more standard errors than this is a failure. By chance alone, one of 50 places
/// exceeds 3 in every eighth campaign, and this value in one of 3,000. The reader of a record
/// judges against 3.
const MOST: f64 = 4.5;

/// Runs the processes and judges each place.
fn compare(plan: &Plan, campaign: &mut Campaign) {
    let mut runs = Vec::new();
    for run in 0..plan.runs {
        let what = format!("known allocations, run {} of {}", run + 1, plan.runs);
        campaign.progress.phase(&what);
        match once(plan) {
            Ok(readings) => runs.push(readings),
            Err(reason) => campaign.fail(format!("known allocations: {reason:#}")),
        }
    }
    for place in 0..PLACES {
        let of_place: Vec<Reading> = runs.iter().map(|run| run[place]).collect();
        note(&of_place, plan.rate, campaign);
    }
}

/// One process.
fn once(plan: &Plan) -> anyhow::Result<Vec<Reading>> {
    let neap = plan.neap.with_setting("NEAP_SAMPLE", plan.rate.to_string());
    let report = run::ask(["sites", &plan.bytes.to_string()], &neap)?;
    let number = |key| anyhow::Ok(run::needed(&report, key)?.parse::<u64>()?);
    ensure!(
        number("rate")? == plan.rate,
        "the process sampled at another rate"
    );
    ensure!(number("dropped")? == 0, "samples were dropped");
    readings(&report)
}

/// A side of a place: the cases of its ratios and of its errors, and its figures.
type SideView = (&'static str, &'static str, fn(&Reading) -> Side);

const SIDES: [SideView; 2] = [
    (ALLOCATED, ALLOCATED_ERRORS, |place| place.allocated),
    (LIVE, LIVE_ERRORS, |place| place.live),
];

/// The figures of one place over all runs.
fn note(runs: &[Reading], rate: u64, campaign: &mut Campaign) {
    let Some(first) = runs.first() else {
        return;
    };
    let (name, part) = (format!("{} B", first.size), first.part.name());
    for (round, run) in (0..).zip(runs) {
        for (case, _, side) in SIDES {
            let Side { told, truth } = side(run);
            if truth.bytes > 0.0 {
                let figure = Figure::number(name.as_str(), told.bytes / truth.bytes);
                campaign.note((case, part, round), Ok(vec![figure]));
            }
        }
    }
    for (_, case, side) in SIDES {
        let told: Vec<Totals> = runs.iter().map(|run| side(run).told).collect();
        let truth = side(first).truth;
        let worst = worst(&told, truth, deviation(first.usable, truth.objects, rate));
        let figure = if worst.abs() <= MOST {
            Ok(vec![Figure::number(name.as_str(), worst)])
        } else {
            Err(anyhow::anyhow!(
                "{name}: the mean is off by {worst:.2} standard errors"
            ))
        };
        campaign.note((case, part, 0), figure);
    }
    let spread = spread(runs, rate);
    campaign.note((SPREAD, part, 0), Ok(vec![Figure::number(name, spread)]));
}

/// The standard deviation of one profile's count for objects of `usable` bytes. Each is sampled
/// with the probability `p = 1 - exp(-usable / rate)` and then represents `1 / p`. Rounding to
/// whole parts adds an error of up to one part.
fn deviation(usable: usize, objects: f64, rate: u64) -> f64 {
    let p = -(-(usable as f64) / rate as f64).exp_m1();
    let rounding = 1.0 / neap_shared::sites::PARTS as f64;
    let of_one = (1.0 - p) / p + rounding * rounding;
    (objects * of_one).sqrt()
}

/// The runs' mean error in standard errors: the worst of objects, bytes and usable bytes. If the
/// truth is 0, any other estimate is infinitely wrong.
fn worst(told: &[Totals], truth: Totals, deviation: f64) -> f64 {
    let sides: [fn(&Totals) -> f64; 3] = [|t| t.objects, |t| t.bytes, |t| t.usable];
    let count = told.len() as f64;
    let error = |side: fn(&Totals) -> f64| {
        let mean = told.iter().map(side).sum::<f64>() / count;
        let off = mean - side(&truth);
        if off == 0.0 {
            return 0.0;
        }
        if truth.objects == 0.0 {
            return off * f64::INFINITY;
        }
        // Bytes deviate as objects do, times the bytes of one. The record rounds bytes to whole
        // ones.
        let of_one = side(&truth) / truth.objects;
        off / ((deviation * of_one).max(1.0) / count.sqrt())
    };
    let farthest = |a: &f64, b: &f64| a.abs().total_cmp(&b.abs());
    sides.map(error).into_iter().max_by(farthest).unwrap_or(0.0)
}

/// The runs' standard deviation over the theoretical one.
fn spread(runs: &[Reading], rate: u64) -> f64 {
    let error = |Side { told, truth }: Side| told.objects - truth.objects;
    let squares = runs.iter().map(|run| error(run.allocated).powi(2));
    let deviation = deviation(runs[0].usable, runs[0].allocated.truth.objects, rate);
    (squares.sum::<f64>() / runs.len() as f64).sqrt() / deviation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::sites::Part;

    /// A thousand blocks of 100 bytes, half of them live.
    fn known() -> Reading {
        Reading::of(100, Part::Half, 1_000, 112)
    }

    fn told(objects: f64) -> Totals {
        Totals {
            objects,
            bytes: objects * 100.0,
            usable: objects * 112.0,
        }
    }

    #[test]
    fn errors_are_counted_in_standard_errors() {
        let deviation = deviation(112, 1_000.0, 512 << 10);
        // One in 4,681 is sampled.
        assert!((deviation / (1_000.0_f64 * 4_680.6).sqrt() - 1.0).abs() < 0.001);
        let off = [told(1_000.0 + deviation), told(1_000.0 + deviation)];
        let worst = worst(&off, known().allocated.truth, deviation);
        assert!((worst - 2.0_f64.sqrt()).abs() < 1e-9, "{worst}");
    }

    #[test]
    fn anything_live_where_nothing_is_fails() {
        let nothing = Totals::default();
        assert_eq!(worst(&[nothing], nothing, 0.0), 0.0);
        assert_eq!(worst(&[told(1.0)], nothing, 0.0), f64::INFINITY);
    }

    #[test]
    fn a_biased_place_is_a_failure_and_an_unbiased_one_is_not() {
        let reading = |factor: f64| {
            let mut reading = known();
            reading.allocated.told = told(1_000.0 * factor);
            reading.live.told = told(500.0 * factor);
            reading
        };
        let mut campaign = Campaign::for_test();
        note(&[reading(0.5), reading(1.5)], 4_096, &mut campaign);
        assert_eq!(campaign.failures(), [""; 0]);
        assert!(
            campaign
                .record
                .rows
                .iter()
                .any(|row| row.case == LIVE_ERRORS)
        );
        note(&[reading(2.9), reading(3.1)], 4_096, &mut campaign);
        assert_eq!(campaign.failures().len(), 2, "{:?}", campaign.failures());
    }
}
