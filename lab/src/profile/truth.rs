//! Whether profiles are unbiased: many processes that allocate the same, and the mean error of each place.

use std::fmt;
use std::process::Command;

use anyhow::ensure;

use super::known::{Known, Part, Reading, SIZES, Totals, readings};
use crate::figures::{Figure, Results};
use crate::peers::Ready;
use crate::run;

/// What is run.
pub struct Plan {
    /// Neap's library.
    pub neap: Ready,
    /// Processes.
    pub runs: u32,
    /// Bytes that each place allocates in each, about.
    pub bytes: usize,
    /// Mean bytes between two samples.
    pub rate: u64,
}

/// The cases of the record.
pub const ALLOCATED: &str = "profile over truth; allocated";
/// See [`ALLOCATED`].
pub const LIVE: &str = "profile over truth; live";
/// See [`ALLOCATED`].
pub const ALLOCATED_ERRORS: &str = "mean error in standard errors; allocated";
/// See [`ALLOCATED`].
pub const LIVE_ERRORS: &str = "mean error in standard errors; live";
/// See [`ALLOCATED`].
pub const SPREAD: &str = "spread of the runs over the theory's; allocated";

/// A mean error of more standard errors than these is looked at again.
const MOST: f64 = 3.0;
/// Looks in all; what is off in each of them is a failure. Chance alone puts one of all places that are right beyond
/// [`MOST`] in every tenth campaign and in every third quick one, but seldom the same place twice.
const LOOKS: u32 = 3;

/// Runs the processes, and judges each place. The figures are those of the last look.
pub fn carry_out(plan: &Plan, tell: impl Fn(&str), results: &mut Results) {
    let mut runs = look(plan, &tell, results);
    let mut off = far_off(&runs, plan.rate);
    for _ in 1..LOOKS {
        if off.is_empty() {
            break;
        }
        let errors: Vec<String> = off.iter().map(Error::to_string).collect();
        tell(&format!("looking again: {}", errors.join("; ")));
        runs = look(plan, &tell, results);
        off = both(&off, far_off(&runs, plan.rate));
    }
    for place in of_places(&runs) {
        note(&place, plan.rate, results);
    }
    let failed = off.iter().map(|e| format!("every time again: {e}"));
    results.failures.extend(failed);
}

/// The readings of as many processes as are wanted.
fn look(plan: &Plan, tell: &impl Fn(&str), results: &mut Results) -> Vec<Vec<Reading>> {
    let mut runs = Vec::new();
    for run in 1..=plan.runs {
        tell(&format!("known allocations, run {run} of {}", plan.runs));
        match once(plan) {
            Ok(readings) => runs.push(readings),
            Err(reason) => results
                .failures
                .push(format!("known allocations: {reason:#}")),
        }
    }
    runs
}

/// The readings of each place over all runs.
fn of_places(runs: &[Vec<Reading>]) -> impl Iterator<Item = Vec<Reading>> {
    let places = 0..SIZES.len() * Part::ALL.len();
    places.map(move |place| runs.iter().map(|run| run[place]).collect())
}

/// By how many standard errors the mean of one side of a place is off.
struct Error {
    case: &'static str,
    known: Known,
    worst: f64,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, part) = (self.known.size, self.known.part.name());
        let (case, worst) = (self.case, self.worst);
        write!(f, "{case}, {size} B, {part}: {worst:.2}")
    }
}

/// The errors of more than [`MOST`].
fn far_off(runs: &[Vec<Reading>], rate: u64) -> Vec<Error> {
    let all = of_places(runs).flat_map(|place| errors(&place, rate));
    all.filter(|error| error.worst.abs() > MOST).collect()
}

/// Those of `again` whose place and side were off before, too.
fn both(before: &[Error], again: Vec<Error>) -> Vec<Error> {
    let same = |a: &Error, b: &Error| a.case == b.case && a.known == b.known;
    let known = |error: &Error| before.iter().any(|earlier| same(earlier, error));
    again.into_iter().filter(known).collect()
}

/// One process.
fn once(plan: &Plan) -> anyhow::Result<Vec<Reading>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["worker", "sites", &plan.bytes.to_string()])
        .env("LD_PRELOAD", &plan.neap.library)
        .env("NEAP_SAMPLE", plan.rate.to_string());
    let report = run::output(&mut command)?;
    run::ensure_heap(&report, &plan.neap.library)?;
    let number = |key| anyhow::Ok(run::needed(&report, key)?.parse::<u64>()?);
    ensure!(
        number("rate")? == plan.rate,
        "the process sampled at another rate"
    );
    ensure!(number("dropped")? == 0, "samples were dropped");
    readings(&report)
}

/// The figures of one place over all runs.
fn note(runs: &[Reading], rate: u64, results: &mut Results) {
    let Some(Reading { known, .. }) = runs.first().copied() else {
        return;
    };
    let (name, part) = (format!("{} B", known.size), known.part.name());
    for (round, run) in (0..).zip(runs) {
        let pairs = [
            (ALLOCATED, run.allocated, known.allocated()),
            (LIVE, run.live, known.live()),
        ];
        for (case, told, truth) in pairs.into_iter().filter(|(_, _, truth)| truth.bytes > 0.0) {
            let figure = Figure::number(name.as_str(), told.bytes / truth.bytes);
            results.note((case, part, round), Ok(vec![figure]));
        }
    }
    for error in errors(runs, rate) {
        let figure = Figure::number(name.as_str(), error.worst);
        results.note((error.case, part, 0), Ok(vec![figure]));
    }
    let spread = spread(runs, &known, rate);
    results.note((SPREAD, part, 0), Ok(vec![Figure::number(name, spread)]));
}

/// What was allocated and what is live at one place: the mean errors of all runs.
fn errors(runs: &[Reading], rate: u64) -> Vec<Error> {
    let Some(Reading { known, .. }) = runs.first().copied() else {
        return Vec::new();
    };
    let sides: [Side; 2] = [
        (
            ALLOCATED_ERRORS,
            |run| run.allocated,
            known.allocated(),
            known.objects,
        ),
        (
            LIVE_ERRORS,
            |run| run.live,
            known.live(),
            known.part.live(known.objects),
        ),
    ];
    let error = |(case, told, truth, objects): Side| {
        let told: Vec<Totals> = runs.iter().map(told).collect();
        let worst = worst(&told, truth, deviation(&known, objects, rate));
        Error { case, known, worst }
    };
    sides.map(error).into()
}

/// A case, what a run says for it, the truth, and the objects it is about.
type Side = (&'static str, fn(&Reading) -> Totals, Totals, usize);

/// The standard deviation of the objects of one profile, where `objects` were there. Each is sampled with the chance
/// `p = 1 - exp(-usable / rate)` and stands for `1 / p` then; and whoever writes a number of parts down rounds it by up to one.
fn deviation(known: &Known, objects: usize, rate: u64) -> f64 {
    let p = -(-(known.usable as f64) / rate as f64).exp_m1();
    let rounding = 1.0 / neap::sites::PARTS as f64;
    let of_one = (1.0 - p) / p + rounding * rounding;
    (objects as f64 * of_one).sqrt()
}

/// The mean error of the runs in standard errors, of objects, bytes or usable bytes, whichever is the farthest off. Where there
/// was nothing, any estimate but nothing is infinitely far off.
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
        // Bytes deviate as objects do, times the bytes of one. Bytes are written down as whole ones.
        let of_one = side(&truth) / truth.objects;
        off / ((deviation * of_one).max(1.0) / count.sqrt())
    };
    let farthest = |a: &f64, b: &f64| a.abs().total_cmp(&b.abs());
    sides.map(error).into_iter().max_by(farthest).unwrap_or(0.0)
}

/// The standard deviation of the runs over the one that theory says.
fn spread(runs: &[Reading], known: &Known, rate: u64) -> f64 {
    let squares = runs
        .iter()
        .map(|run| (run.allocated.objects - known.objects as f64).powi(2));
    (squares.sum::<f64>() / runs.len() as f64).sqrt() / deviation(known, known.objects, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known {
        size: 100,
        part: Part::Half,
        objects: 1_000,
        usable: 112,
    };

    fn told(objects: f64) -> Totals {
        Totals {
            objects,
            bytes: objects * 100.0,
            usable: objects * 112.0,
        }
    }

    #[test]
    fn errors_are_counted_in_standard_errors() {
        let deviation = deviation(&KNOWN, 1_000, 512 << 10);
        // One in 4,681 is sampled.
        assert!((deviation / (1_000.0_f64 * 4_680.6).sqrt() - 1.0).abs() < 0.001);
        let off = [told(1_000.0 + deviation), told(1_000.0 + deviation)];
        let worst = worst(&off, KNOWN.allocated(), deviation);
        assert!((worst - 2.0_f64.sqrt()).abs() < 1e-9, "{worst}");
    }

    #[test]
    fn anything_live_where_nothing_is_fails() {
        let nothing = Totals::default();
        assert_eq!(worst(&[nothing], nothing, 0.0), 0.0);
        assert_eq!(worst(&[told(1.0)], nothing, 0.0), f64::INFINITY);
    }

    /// A run in which every place says what this one says, `factor` times the truth.
    fn run(factor: f64) -> Vec<Reading> {
        let reading = Reading {
            known: KNOWN,
            allocated: told(1_000.0 * factor),
            live: told(500.0 * factor),
        };
        vec![reading; SIZES.len() * Part::ALL.len()]
    }

    #[test]
    fn a_biased_place_is_far_off_and_an_unbiased_one_is_not() {
        let places = SIZES.len() * Part::ALL.len();
        assert!(far_off(&[run(0.5), run(1.5)], 4_096).is_empty());
        // Either side of each place.
        assert_eq!(far_off(&[run(1.9), run(2.1)], 4_096).len(), 2 * places);
        assert!(far_off(&[], 4_096).is_empty());
    }

    #[test]
    fn only_what_is_off_again_stays_off() {
        let off = |case, size| Error {
            case,
            known: Known { size, ..KNOWN },
            worst: 4.0,
        };
        let before = [off(LIVE_ERRORS, 8), off(ALLOCATED_ERRORS, 24)];
        let again = vec![off(LIVE_ERRORS, 8), off(LIVE_ERRORS, 24)];
        let stays = both(&before, again);
        assert_eq!(stays.len(), 1);
        let text = "mean error in standard errors; live, 8 B, half: 4.00";
        assert_eq!(stays[0].to_string(), text);
    }

    #[test]
    fn the_errors_are_in_the_record() {
        let mut results = Results::default();
        note(&[run(0.5)[0], run(1.5)[0]], 4_096, &mut results);
        for case in [ALLOCATED_ERRORS, LIVE_ERRORS] {
            let row = results.rows.iter().find(|row| row.case == case);
            assert_eq!(row.unwrap().figure.value, 0.0);
        }
    }
}
