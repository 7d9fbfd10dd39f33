//! Neap among the allocators of a case, the tables and the picture of the case book.

use super::allocators::{Allocator, GLIBC, NEAP};
use super::figures::{
    AT_REST, CHECK, COURSE, CPU, Course, END, FINE, IDLE_CPU, LIVE, OUTCOME, PEAK, SAID, SOON, TIME,
};
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, svg};
use crate::engine::record::{Figure, Record, Row, distinct};
use crate::engine::table::{Column, section};
use crate::stats::Spread;
use crate::status::{self, PURGED, REGRETTED};

/// The figures of Neap's place in a case.
const RANK: &str = "rank at the end";
const AMONG: &str = "allocators";
const LOWEST: &str = "lowest other";
const OVER_END: &str = "at the end over the best other";
const OVER_PEAK: &str = "peak over the best other";
const OVER_TIME: &str = "time over the best other";
const OVER_CPU: &str = "processor time over the best other";
const PART: &str = "regretted of purged";

/// Neap's place in a case, against the allocators whose runs went well; nothing if Neap has no good
/// run of it.
fn standing(record: &Record, case: &str) -> Vec<Figure> {
    let Some(own) = good(record, case, NEAP, END) else {
        return Vec::new();
    };
    let peers = record.peers().into_iter().filter(|peer| *peer != NEAP);
    let ends = peers.filter_map(|peer| Some((peer, good(record, case, peer, END)?)));
    let ends: Vec<(&str, f64)> = ends.collect();
    let over = |figure: &str| {
        let others = ends.iter();
        let others = others.filter_map(|(peer, _)| good(record, case, peer, figure));
        let least = others.min_by(f64::total_cmp).filter(|least| *least > 0.0)?;
        Some(good(record, case, NEAP, figure)? / least)
    };
    let less = ends.iter().filter(|(_, end)| *end < own).count();
    let mut figures = vec![
        Figure::count(RANK, less as u64 + 1),
        Figure::count(AMONG, ends.len() as u64 + 1),
        Figure::number(OVER_END, over(END).unwrap_or(1.0)),
    ];
    let lowest = ends.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    figures.extend(lowest.map(|(peer, _)| Figure::text(LOWEST, *peer)));
    let ratios = [
        (OVER_PEAK, over(PEAK)),
        (OVER_TIME, over(TIME)),
        (OVER_CPU, over(CPU)),
        (PART, regretted(record, case)),
    ];
    let ratios = ratios.into_iter();
    figures.extend(ratios.filter_map(|(name, ratio)| Some(Figure::number(name, ratio?))));
    figures
}

/// The part of what Neap gave back to the kernel that it regretted.
pub fn regretted(record: &Record, case: &str) -> Option<f64> {
    let own = |figure| good(record, case, NEAP, figure);
    Some(status::share(own(PURGED)?, own(REGRETTED)?))
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

/// The key of a case's title in the head of a record.
pub fn title_key(case: &str) -> String {
    format!("case {case}")
}

fn title<'a>(record: &'a Record, case: &'a str) -> &'a str {
    record.said(&title_key(case)).unwrap_or(case)
}

/// Every table: one a case, two over all.
pub fn tables(record: &Record) -> String {
    let cases = record.cases();
    let each: String = cases.iter().map(|case| of_case(record, case)).collect();
    each + &over_all(record, &cases) + &standings(record, &cases) + &faults(record)
}

/// What is shown of a case: a figure, or whether it went well.
const COLUMNS: [Column<&str, &str>; 11] = [
    Column("peak", PEAK),
    Column("at rest", AT_REST),
    Column("2 s after", SOON),
    Column("at the end", END),
    Column("live", LIVE),
    Column("time s", TIME),
    Column("processor s", CPU),
    Column("at rest s", IDLE_CPU),
    Column("purged", PURGED),
    Column("regretted", REGRETTED),
    Column("outcome", OUTCOME),
];

fn of_case(record: &Record, case: &str) -> String {
    let runs = record.runs().filter(|run| run.case() == case);
    let peers: Vec<&str> = distinct(runs.map(|run| run.peer()));
    let heading = format!("{case}: {} (memory in MB)", title(record, case));
    let cell = |peer: &&str, Column(_, figure): &Column<&str, &str>| match *figure {
        OUTCOME => Some(fault(record, case, peer).unwrap_or(FINE.into())),
        TIME | CPU | IDLE_CPU => Some(format!("{:.2}", good(record, case, peer, figure)?)),
        _ => Some(megabytes(good(record, case, peer, figure)?)),
    };
    section(&heading, "allocator", (&peers, &COLUMNS), cell)
}

/// What every allocator holds at the end of every case.
fn over_all(record: &Record, cases: &[&str]) -> String {
    let heading = "Memory at the end, MB (*: the least)";
    section(heading, "case", (cases, &record.peers()), |case, peer| {
        let Some(end) = good(record, case, peer, END) else {
            return fault(record, case, peer).map(|_| "failed".into());
        };
        let ends = record.peers().into_iter();
        let ends = ends.filter_map(|peer| good(record, case, peer, END));
        let is_least = ends.fold(f64::INFINITY, f64::min) >= end;
        Some(megabytes(end) + if is_least { "*" } else { "" })
    })
}

const STANDINGS: [Column<&str, &str>; 7] = [
    Column("rank", RANK),
    Column("at the end / lowest", OVER_END),
    Column("lowest other", LOWEST),
    Column("peak / lowest", OVER_PEAK),
    Column("time / best", OVER_TIME),
    Column("processor / best", OVER_CPU),
    Column("regretted %", PART),
];

fn standings(record: &Record, cases: &[&str]) -> String {
    let heading = "Neap against the best of the others, and its rank in memory at the end";
    section(
        heading,
        "case",
        (cases, &STANDINGS),
        |case, Column(_, name)| {
            let standing = standing(record, case);
            let figure = |name| standing.iter().find(|figure| figure.name == name);
            let number = |name| figure(name)?.as_number();
            match *name {
                RANK => Some(format!("{} of {}", number(RANK)?, number(AMONG)?)),
                LOWEST => Some(figure(LOWEST)?.as_text()?.to_string()),
                PART => Some(format!("{:.2}", 100.0 * number(PART)?)),
                ratio => Some(format!("{:.2}", number(ratio)?)),
            }
        },
    )
}

/// Every run that did not go well, with what its programs said.
fn faults(record: &Record) -> String {
    let line = |run: crate::engine::record::Run| {
        let outcome = run.text(OUTCOME).filter(|outcome| *outcome != FINE)?;
        let said = run
            .text(SAID)
            .map_or(String::new(), |said| format!(": {said}"));
        Some(format!(
            "{} under {}: {outcome}{said}\n",
            run.case(),
            run.peer()
        ))
    };
    let lines: Vec<String> = distinct(record.runs().filter_map(line));
    if lines.is_empty() {
        String::new()
    } else {
        format!("\nRuns that did not go well\n{}", lines.concat())
    }
}

fn megabytes(bytes: f64) -> String {
    let value = bytes / 1e6;
    match value {
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// What follows from a record.
pub fn derived(record: &Record) -> Vec<Row> {
    let mut derived = Record::default();
    for case in record.cases() {
        derived.push(case, NEAP, 0, standing(record, case));
    }
    derived.rows
}

/// A picture of this size a case: the memory over time, a line an allocator.
pub fn picture(record: &Record, across: usize, size: (f64, f64)) -> String {
    let title =
        "Resident memory in MB over seconds; from the vertical line on, the program is idle";
    let panels = record.cases().into_iter().map(|case| panel(record, case));
    let panels: Vec<Panel> = panels.collect();
    svg(&[title], Layout(across, size, (44.0, 44.0)), &panels)
}

/// The courses end together: each is moved so that every load is over at the same time.
fn panel(record: &Record, case: &str) -> Panel {
    let of_case = record.runs().filter(|run| run.case() == case);
    let runs = of_case.filter_map(|run| Some((run.peer(), Course::parse(run.text(COURSE)?)?)));
    let mut runs: Vec<_> = runs.collect();
    let rests = runs.iter().filter_map(|(_, course)| course.rest);
    let rest = rests.fold(0.0, f64::max);
    for (_, course) in &mut runs {
        let late = course.rest.map_or(0.0, |own| rest - own);
        course.points.iter_mut().for_each(|point| point.0 += late);
    }
    let points = || runs.iter().flat_map(|(_, course)| course.points.iter());
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
    let series = |(peer, course): &(&str, Course)| {
        let points = course.points.iter().map(|&(x, y)| Point::at(x, y));
        Series::new(peer, Allocator::stroke(peer), Draw::Line, points.collect())
    };
    let number = |value: f64| format!("{value:.0}");
    Panel {
        title: title(record, case).to_string(),
        x: Axis::linear(most(|point| point.0), number),
        y: Axis::linear(1.05 * most(|point| point.1), number),
        marks: vec![(rest, String::new())],
        series: runs.iter().map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::Unit;
    use crate::engine::table::MISSING;

    mod standing {
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
            let expected = vec![
                Figure::count(RANK, 2),
                Figure::count(AMONG, 3),
                Figure::number(OVER_END, 2.0),
                Figure::text(LOWEST, "jemalloc"),
                Figure::number(OVER_PEAK, 2.0),
                Figure::number(OVER_CPU, 1.5),
                Figure::number(PART, 0.015),
            ];
            assert_eq!(super::super::standing(&record, "few"), expected);
            assert_eq!(super::super::standing(&record, "many"), []);
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

    fn run(end: f64, outcome: &str) -> Vec<Figure> {
        vec![
            Figure::bytes(PEAK, 500e6),
            Figure::bytes(END, end),
            Figure::new(CPU, Unit::Seconds, 2.5),
            Figure::text(OUTCOME, outcome),
            Figure::text(SAID, "terminate called"),
            Figure::text(COURSE, "1.50 0.00:3.5 1.50:500.0 2.00:8.0"),
        ]
    }

    fn record() -> Record {
        let head = vec![(title_key("few"), "A few & small".into())];
        let mut record = Record { head, rows: vec![] };
        record.push("few", "neap", 0, run(10e6, FINE));
        record.push("few", "glibc", 0, run(400e6, FINE));
        record.push(
            "few",
            "snmalloc",
            0,
            run(1e6, "subject ended early: signal 6"),
        );
        record
    }

    #[test]
    fn a_case_has_a_table_and_all_cases_have_two() {
        let text = tables(&record());
        for part in [
            "few: A few & small (memory in MB)",
            "10.0*",
            "1 of 2",
            "0.03",
            "failed",
            "few under snmalloc: subject ended early: signal 6: terminate called",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let row = text
            .lines()
            .find(|line| line.contains("│ snmalloc"))
            .unwrap();
        assert!(row.contains("signal 6") && row.contains(MISSING), "{row}");
        assert_eq!(derived(&record()).len(), 6);
    }

    #[test]
    fn a_case_is_a_panel_with_a_line_an_allocator() {
        let picture = picture(&record(), 4, (230.0, 140.0));
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert!(picture.contains(">A few &amp; small</text>") && !picture.contains("NaN"));
    }
}
