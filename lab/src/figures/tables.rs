//! Figures as tables and as JSON.

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::{Row, Unit};
use crate::calloc::tables::duration;
use crate::report;
use crate::stats::quantile;

/// One table per case, with a line per figure and a column per allocator. A cell is the median of
/// the rounds; with three or more rounds, with their quartiles.
pub fn by_case(rows: &[Row]) -> String {
    let mut text = String::new();
    for case in distinct(rows, |row| &row.case) {
        let of_case: Vec<&Row> = rows.iter().filter(|row| row.case == *case).collect();
        text.push_str(&format!("\n{case}\n{}\n", table(&of_case)));
    }
    text
}

/// The distinct values of `key`, in order of first appearance.
fn distinct<'r, R, K: PartialEq>(rows: &'r [R], key: impl Fn(&'r R) -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for key in rows.iter().map(key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn table(rows: &[&Row]) -> Table {
    let peers = distinct(rows, |row| &row.peer);
    let mut header = vec![first_heading(rows)];
    header.extend(peers.iter().map(|peer| peer.as_str()));
    let mut table = report::table(&header);
    let columns = table.column_iter_mut().skip(1);
    columns.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for (name, unit) in distinct(rows, |row| (&row.figure.name, row.figure.unit)) {
        let cell = |peer: &&String| cell(&values(rows, peer, name), unit);
        table.add_row(std::iter::once(name.clone()).chain(peers.iter().map(cell)));
    }
    table
}

/// The heading of the first column. Only bytes of processes are shown in millions, without a unit
/// in their cells.
fn first_heading(rows: &[&Row]) -> &'static str {
    match rows.iter().any(|row| row.figure.unit == Unit::Bytes) {
        true => "MB (10⁶ bytes), counts, times",
        false => "",
    }
}

fn values(rows: &[&Row], peer: &str, name: &str) -> Vec<f64> {
    let is_it = |row: &&&Row| row.peer == peer && row.figure.name == name;
    rows.iter()
        .filter(is_it)
        .map(|row| row.figure.value)
        .collect()
}

fn cell(values: &[f64], unit: Unit) -> String {
    if values.is_empty() {
        return "–".into();
    }
    let at = |q| shown(quantile(values, q), unit);
    let (low, median, high) = (at(0.25), at(0.5), at(0.75));
    match values.len() >= LEAST_FOR_QUARTILES && low != high {
        true => format!("{median} ({low}–{high})"),
        false => median,
    }
}

/// With fewer values, quartiles are not shown.
const LEAST_FOR_QUARTILES: usize = 3;

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{:.1}", value / 1e6),
        Unit::BlockBytes => short(value, "B"),
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::Number => format!("{value:.2}"),
        Unit::Count => format!("{value:.0}"),
        Unit::Nanoseconds if value < SHORT => format!("{value:.1} ns"),
        Unit::Nanoseconds => duration(value),
    }
}

/// Times below this many nanoseconds are of single operations and get a decimal.
const SHORT: f64 = 100.0;

/// Whole numbers without decimals.
fn short(value: f64, unit: &str) -> String {
    match value.fract() == 0.0 {
        true => format!("{value:.0} {unit}"),
        false => format!("{value:.2} {unit}"),
    }
}

/// The figures as JSON.
pub fn json(head: &[(String, String)], rows: &[Row]) -> Value {
    let head: serde_json::Map<_, _> = head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    json!({ "head": head, "figures": rows.iter().map(json_row).collect::<Vec<_>>() })
}

fn json_row(row: &Row) -> Value {
    json!({
        "case": row.case,
        "peer": row.peer,
        "round": row.round,
        "figure": row.figure.name,
        "unit": row.figure.unit.name(),
        "value": row.figure.value,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Figure;
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |case: &str, peer: &str, round, figure| Row {
            case: case.into(),
            peer: peer.into(),
            round,
            figure,
        };
        vec![
            row("own", "neap", 0, Figure::bytes("kept", 1_000_000.0)),
            row("own", "neap", 1, Figure::bytes("kept", 3_000_000.0)),
            row("own", "neap", 2, Figure::bytes("kept", 2_000_000.0)),
            row("own", "glibc", 0, Figure::count("tasks", 1)),
            row("large", "glibc", 0, Figure::nanoseconds("time", 1_234.0)),
        ]
    }

    #[test]
    fn a_case_is_a_table_and_a_cell_the_median_of_its_rounds() {
        let text = by_case(&rows());
        assert!(
            text.contains("\nown\n") && text.contains("\nlarge\n"),
            "{text}"
        );
        let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap();
        assert!(line("│ kept").contains("2.0 (1.5–2.5)") && line("│ kept").contains('–'));
        assert!(line("│ tasks").contains(" 1 "));
        assert!(line("│ time").contains("1.23 µs"));
    }

    #[test]
    fn programs_get_every_figure() {
        let json = json(&[("date".into(), "today".into())], &rows());
        assert_eq!(json["head"]["date"], "today");
        assert_eq!(json["figures"].as_array().unwrap().len(), 5);
        assert_eq!(json["figures"][1]["value"], 3_000_000.0);
        assert_eq!(json["figures"][3]["unit"], "count");
    }
}
