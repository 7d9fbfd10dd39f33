//! The tables and the picture of the case book.

use super::allocators::Allocator;
use super::figures::{
    AT_REST, CPU, Course, END, FINE, IDLE_CPU, LIVE, OUTCOME, PEAK, SAID, SOON, TIME,
};
use super::standing::{Standing, fault, good};
use crate::engine::plot::{Axis, Draw, Panel, Plot, Point, Series};
use crate::engine::record::{Record, Row, distinct};
use crate::engine::table::section;
use crate::purges::{PURGED, REGRETTED};

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
const COLUMNS: [(&str, &str); 11] = [
    (PEAK, "peak"),
    (AT_REST, "at rest"),
    (SOON, "2 s after"),
    (END, "at the end"),
    (LIVE, "live"),
    (TIME, "time s"),
    (CPU, "processor s"),
    (IDLE_CPU, "at rest s"),
    (PURGED, "purged"),
    (REGRETTED, "regretted"),
    (OUTCOME, "outcome"),
];

fn of_case(record: &Record, case: &str) -> String {
    let peers: Vec<&str> = distinct(
        record
            .runs()
            .filter(|run| run.case() == case)
            .map(|run| run.peer()),
    );
    let columns = COLUMNS.map(|(_, name)| name);
    let heading = format!("{case}: {} (memory in MB)", title(record, case));
    section(&heading, "allocator", (&peers, &columns), |peer, column| {
        let place = columns.iter().position(|known| known == column)?;
        let (figure, _) = COLUMNS[place];
        match figure {
            OUTCOME => Some(fault(record, case, peer).unwrap_or(FINE.into())),
            TIME | CPU | IDLE_CPU => Some(format!("{:.2}", good(record, case, peer, figure)?)),
            _ => Some(megabytes(good(record, case, peer, figure)?)),
        }
    })
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

const STANDINGS: [&str; 7] = [
    "rank",
    "at the end / lowest",
    "lowest other",
    "peak / lowest",
    "time / best",
    "processor / best",
    "regretted %",
];

fn standings(record: &Record, cases: &[&str]) -> String {
    let heading = "Neap against the best of the others, and its rank in memory at the end";
    section(heading, "case", (cases, &STANDINGS), |case, column| {
        let standing = Standing::of(record, case)?;
        let ratio = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
        match *column {
            "rank" => Some(format!("{} of {}", standing.rank, standing.of)),
            "at the end / lowest" => ratio(Some(standing.end)),
            "lowest other" => standing.lowest.map(|(peer, _)| peer),
            "peak / lowest" => ratio(standing.peak),
            "time / best" => ratio(standing.time),
            "regretted %" => ratio(standing.regretted.map(|part| 100.0 * part)),
            _ => ratio(standing.cpu),
        }
    })
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
    match lines.is_empty() {
        true => String::new(),
        false => format!("\nRuns that did not go well\n{}", lines.concat()),
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
    let cases = record.cases().into_iter();
    cases
        .flat_map(|case| Standing::rows(record, case))
        .collect()
}

/// A small picture a case: the memory over time, a line an allocator.
pub fn picture(record: &Record) -> String {
    let panels = record.cases().into_iter().map(|case| panel(record, case));
    Plot {
        title: vec![
            "Resident memory in MB over seconds; from the vertical line on, the program is idle"
                .into(),
        ],
        across: 4,
        panel: (230.0, 140.0),
        left: (44.0, 44.0),
        panels: panels.collect(),
    }
    .svg()
}

/// The courses end together: each is moved so that every load is over at the same time.
fn panel(record: &Record, case: &str) -> Panel {
    let of_case = record.runs().filter(|run| run.case() == case);
    let runs = of_case.filter_map(|run| Some((run.peer(), Course::of(&run)?)));
    let mut runs: Vec<_> = runs.collect();
    let rests = runs.iter().filter_map(|(_, course)| course.rest);
    let rest = rests.fold(0.0, f64::max);
    for (_, course) in &mut runs {
        let late = course.rest.map_or(0.0, |own| rest - own);
        course.points.iter_mut().for_each(|point| point.0 += late);
    }
    let points = || runs.iter().flat_map(|(_, course)| course.points.iter());
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
    let series = |(peer, course): &(&str, Course)| Series {
        name: peer.to_string(),
        stroke: Allocator::stroke(peer),
        draw: Draw::Line,
        points: course
            .points
            .iter()
            .map(|&(x, y)| Point::at(x, y))
            .collect(),
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
    use super::super::figures::COURSE;
    use super::*;
    use crate::engine::record::{Figure, Unit};
    use crate::engine::table::MISSING;

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
        assert_eq!(derived(&record()).len(), 4);
    }

    #[test]
    fn a_case_is_a_panel_with_a_line_an_allocator() {
        let picture = picture(&record());
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert!(picture.contains(">A few &amp; small</text>") && !picture.contains("NaN"));
    }
}
