//! The figures of the experiment, and its table.

use super::chance::samples;
use crate::engine::record::Record;
use crate::engine::table::{duration, section};
use std::time::Duration;

/// What is planted.
pub const ERROR: &str = "planted";
/// The allocations of a request that can be guarded.
pub const CANDIDATES: &str = "guardable allocations a request";
/// The time of a request.
pub const TIME: &str = "time of a request";
/// The computed probability that the error is found.
pub const CHANCE: &str = "computed";
/// The request at which the report came; absent if none came.
pub const FOUND: &str = "request of the report";
/// The requests without the error, and the reports that came of them.
pub const SOUND: &str = "requests without the error";
pub const FALSE: &str = "reports without the error";
/// The first line of the report.
pub const LINE: &str = "report";

/// The keys of the head.
pub const REQUESTS: &str = "requests";
pub const INTERVAL: &str = "interval in ms";

const COLUMNS: [&str; 8] = [
    "planted",
    "k",
    "t",
    "samples",
    "computed",
    "found",
    "at request",
    "without the error",
];

/// A row for each program.
pub fn table(record: &Record) -> String {
    let said = |key| record.said(key).and_then(|text| text.parse::<f64>().ok());
    let (requests, interval) = (said(REQUESTS).unwrap_or(0.0), said(INTERVAL).unwrap_or(1.0));
    let heading = format!(
        "Errors found in {requests:.0} requests, one sample each {interval:.0} ms; k: allocations \
         of a request that can be guarded; t: time of a request"
    );
    section(
        &heading,
        "program",
        (&record.cases(), &COLUMNS),
        |case, column| {
            let median = |figure| record.median(case, "neap", figure);
            let rounds = |figure| record.rounds(case, "neap", figure);
            let all = rounds(TIME).len();
            match *column {
                "planted" => record.text(case, "neap", ERROR).map(str::to_string),
                "k" => Some(format!("{:.1}", median(CANDIDATES)?)),
                "t" => Some(duration(median(TIME)?)),
                "samples" => {
                    let time = Duration::from_secs_f64(requests * median(TIME)? / 1e9);
                    let interval = Duration::from_secs_f64(interval / 1e3);
                    Some(format!("{:.0}", samples(time, interval)))
                }
                "computed" => Some(percent(median(CHANCE)?)),
                "found" => Some(format!("{} of {all}", rounds(FOUND).len())),
                "at request" => median(FOUND).map(|request| format!("{request:.0}")),
                _ => {
                    let sum = |figure| rounds(figure).iter().map(|(_, value)| value).sum::<f64>();
                    Some(format!("{:.0} of {:.0}", sum(FALSE), sum(SOUND)))
                }
            }
        },
    )
}

/// A probability. One that is nearly 1 shows how nearly.
fn percent(chance: f64) -> String {
    match 1.0 - chance {
        ..1e-6 => "> 99.9999 %".to_string(),
        ..1e-3 => format!("{:.4} %", 100.0 * chance),
        _ => format!("{:.1} %", 100.0 * chance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::Figure;
    use crate::engine::record::tests::record;

    #[test]
    fn a_program_has_a_row_with_its_chance_and_its_reports() {
        let round = |found: Option<u64>| {
            let mut figures = vec![
                Figure::text(ERROR, "read after free"),
                Figure::number(CANDIDATES, 28.0),
                Figure::nanoseconds(TIME, 1e6),
                Figure::share(CHANCE, 0.9876),
                Figure::count(SOUND, 10_000),
                Figure::count(FALSE, 0),
            ];
            figures.extend(found.map(|request| Figure::count(FOUND, request)));
            figures
        };
        let mut record = record([
            ("redis", "neap", 0, round(Some(100))),
            ("redis", "neap", 1, round(Some(300))),
            ("redis", "neap", 2, round(None)),
        ]);
        record.head = vec![
            (REQUESTS.into(), "10000".into()),
            (INTERVAL.into(), "20".into()),
        ];
        let text = table(&record);
        let row = text.lines().find(|line| line.contains("redis")).unwrap();
        for part in [
            "read after free",
            "28.0",
            "1.00 ms",
            " 500 ",
            "98.8 %",
            "2 of 3",
            " 200 ",
            "0 of 30000",
        ] {
            assert!(row.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn a_probability_of_nearly_one_shows_how_nearly() {
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.99999), "99.9990 %");
        assert_eq!(percent(1.0), "> 99.9999 %");
    }
}
