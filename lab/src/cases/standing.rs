//! Neap among the allocators of a case.

use super::allocators::{GLIBC, NEAP};
use super::figures::{CHECK, CPU, END, FINE, OUTCOME, PEAK, TIME};
use crate::engine::record::Figure;
use crate::engine::record::{Record, Row, distinct};
use crate::purges::{self, PURGED, REGRETTED};
use crate::stats::Spread;

/// Neap's place in a case, against the allocators whose runs went well.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// How many hold less at the end, plus one.
    pub rank: usize,
    /// Among how many.
    pub of: usize,
    /// The other that holds least at the end, and how much.
    pub lowest: Option<(String, f64)>,
    /// Neap's figures, each over the best of the others.
    pub end: f64,
    pub peak: Option<f64>,
    pub time: Option<f64>,
    pub cpu: Option<f64>,
    /// The part of what Neap gave back to the kernel that it regretted.
    pub regretted: Option<f64>,
}

impl Standing {
    /// `None` if Neap has no good run of the case.
    pub fn of(record: &Record, case: &str) -> Option<Standing> {
        let own = good(record, case, NEAP, END)?;
        let peers = record.peers().into_iter().filter(|peer| *peer != NEAP);
        let others: Vec<&str> = peers
            .filter(|peer| good(record, case, peer, END).is_some())
            .collect();
        let best = |figure: &str| {
            let found = others.iter().filter_map(|peer| {
                let value = good(record, case, peer, figure)?;
                Some((peer.to_string(), value))
            });
            found.min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let over = |figure: &str| {
            let (_, least) = best(figure)?;
            (least > 0.0).then_some(good(record, case, NEAP, figure)? / least)
        };
        let less = |peer: &&&str| good(record, case, peer, END).is_some_and(|end| end < own);
        Some(Standing {
            rank: others.iter().filter(less).count() + 1,
            of: others.len() + 1,
            lowest: best(END),
            end: over(END).unwrap_or(1.0),
            peak: over(PEAK),
            time: over(TIME),
            cpu: over(CPU),
            regretted: regretted(record, case),
        })
    }

    /// The same as figures.
    pub fn rows(record: &Record, case: &str) -> Vec<Row> {
        let Some(standing) = Standing::of(record, case) else {
            return Vec::new();
        };
        let ratios = [
            ("peak over the best other", standing.peak),
            ("time over the best other", standing.time),
            ("processor time over the best other", standing.cpu),
            ("regretted of purged", standing.regretted),
        ];
        let ratios = ratios
            .into_iter()
            .filter_map(|(name, ratio)| Some(Figure::number(name, ratio?)));
        let first = [
            Figure::count("rank at the end", standing.rank as u64),
            Figure::number("at the end over the best other", standing.end),
        ];
        let row = |figure| Row {
            case: case.to_string(),
            peer: NEAP.to_string(),
            round: 0,
            figure,
        };
        first.into_iter().chain(ratios).map(row).collect()
    }
}

/// The part of what Neap gave back to the kernel that it regretted.
pub fn regretted(record: &Record, case: &str) -> Option<f64> {
    let own = |figure| good(record, case, NEAP, figure);
    Some(purges::share(own(PURGED)?, own(REGRETTED)?))
}

/// The median of a figure over the runs that went well.
pub fn good(record: &Record, case: &str, peer: &str, figure: &str) -> Option<f64> {
    if has_other_check(record, case, peer) {
        return None;
    }
    let runs = record.runs();
    let runs = runs.filter(|run| run.case() == case && run.peer() == peer);
    let fine = runs.filter(|run| run.text(OUTCOME) == Some(FINE));
    let values: Vec<f64> = fine.filter_map(|run| run.number(figure)).collect();
    Some(Spread::of(&values)?.median)
}

/// Why an allocator has no figures, or not all; `None` if every run went well.
pub fn fault(record: &Record, case: &str, peer: &str) -> Option<String> {
    let runs = record.runs();
    let mut runs = runs.filter(|run| run.case() == case && run.peer() == peer);
    let bad = runs.find_map(|run| run.text(OUTCOME).filter(|outcome| *outcome != FINE));
    let differs = || has_other_check(record, case, peer).then(|| "check differs".to_string());
    bad.map(str::to_string).or_else(differs)
}

/// Whether the digest of the work is another than that of most allocators.
fn has_other_check(record: &Record, case: &str, peer: &str) -> bool {
    let runs: Vec<_> = record.runs().filter(|run| run.case() == case).collect();
    let checks = || runs.iter().filter_map(|run| run.text(CHECK));
    let count = |check: &str| checks().filter(|other| *other == check).count();
    let is_glibcs = |check: &str| {
        let mut of_glibc = runs.iter().filter(|run| run.peer() == GLIBC);
        of_glibc.any(|run| run.text(CHECK) == Some(check))
    };
    // The C library's, of those that are equally frequent.
    let usual = distinct(checks())
        .into_iter()
        .rev()
        .max_by_key(|check| (count(check), is_glibcs(check)));
    let mut own = runs.iter().filter(|run| run.peer() == peer);
    own.any(|run| run.text(OUTCOME) == Some(FINE) && run.text(CHECK) != usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::tests::record;

    fn run(end: f64, cpu: f64, check: &str, outcome: &str) -> Vec<Figure> {
        vec![
            Figure::bytes(END, end),
            Figure::bytes(PEAK, 2.0 * end),
            Figure::number(CPU, cpu),
            Figure::text(CHECK, check),
            Figure::text(OUTCOME, outcome),
            Figure::bytes(PURGED, 200.0),
            Figure::bytes(REGRETTED, 3.0),
        ]
    }

    #[test]
    fn neap_is_compared_with_the_best_whose_runs_went_well() {
        let record = record([
            ("few", "neap", 0, run(20.0, 3.0, "a", FINE)),
            ("few", "glibc", 0, run(40.0, 2.0, "a", FINE)),
            ("few", "jemalloc", 0, run(10.0, 4.0, "a", FINE)),
            ("few", "snmalloc", 0, run(1.0, 1.0, "a", "signal 11")),
            ("few", "tcmalloc", 0, run(1.0, 1.0, "b", FINE)),
            ("many", "glibc", 0, run(1.0, 1.0, "a", FINE)),
        ]);
        let standing = Standing::of(&record, "few").unwrap();
        assert_eq!((standing.rank, standing.of), (2, 3));
        assert_eq!(standing.lowest, Some(("jemalloc".into(), 10.0)));
        assert_eq!((standing.end, standing.peak), (2.0, Some(2.0)));
        assert_eq!((standing.cpu, standing.time), (Some(1.5), None));
        assert_eq!(standing.regretted, Some(0.015));
        assert_eq!(Standing::rows(&record, "few").len(), 5);
        assert_eq!(Standing::of(&record, "many"), None);
        let fault = |peer| fault(&record, "few", peer);
        assert_eq!(fault("snmalloc").as_deref(), Some("signal 11"));
        assert_eq!(fault("tcmalloc").as_deref(), Some("check differs"));
        assert_eq!(fault("neap"), None);
    }

    #[test]
    fn of_two_results_the_c_librarys_is_right_and_none_is_wrong() {
        let without = run(1.0, 1.0, "a", FINE).into_iter();
        let without = without.filter(|figure| figure.name != CHECK).collect();
        let record = record([
            ("few", "neap", 0, run(20.0, 3.0, "b", FINE)),
            ("few", "glibc", 0, run(40.0, 2.0, "a", FINE)),
            ("many", "neap", 0, run(20.0, 3.0, "a", FINE)),
            ("many", "glibc", 0, run(40.0, 2.0, "a", FINE)),
            ("many", "jemalloc", 0, without),
        ]);
        let differs = Some("check differs".to_string());
        assert_eq!(fault(&record, "few", "neap"), differs);
        assert_eq!(fault(&record, "few", "glibc"), None);
        assert_eq!(fault(&record, "many", "jemalloc"), differs);
    }
}
