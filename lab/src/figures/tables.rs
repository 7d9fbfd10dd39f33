//! Figures for people, and for programs.

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::{Row, Unit};
use crate::calloc::tables::duration;
use crate::report;
use crate::stats::quantile;

/// One table a case: a line a figure, a column an allocator, the median of the rounds.
pub fn by_case(rows: &[Row]) -> String {
    let mut text = String::new();
    for case in distinct(rows, |row| row.case) {
        let of_case: Vec<&Row> = rows.iter().filter(|row| row.case == case).collect();
        text.push_str(&format!("\n{case}\n{}\n", table(&of_case)));
    }
    text
}

/// What `key` gives, each once, in the order of first appearance.
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
    let peers = distinct(rows, |row| row.peer);
    let mut header = vec!["MB (10⁶ bytes), counts, times"];
    header.extend(&peers);
    let mut table = report::table(&header);
    let columns = table.column_iter_mut().skip(1);
    columns.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for (name, unit) in distinct(rows, |row| (&row.figure.name, row.figure.unit)) {
        let cell = |peer: &&str| match median(rows, peer, name) {
            Some(value) => shown(value, unit),
            None => "–".into(),
        };
        table.add_row(std::iter::once(name.clone()).chain(peers.iter().map(cell)));
    }
    table
}

fn median(rows: &[&Row], peer: &str, name: &str) -> Option<f64> {
    let of_cell = rows
        .iter()
        .filter(|row| row.peer == peer && row.figure.name == name);
    let values: Vec<f64> = of_cell.map(|row| row.figure.value).collect();
    (!values.is_empty()).then(|| quantile(&values, 0.5))
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{:.1}", value / 1e6),
        Unit::Count => format!("{value:.0}"),
        Unit::Nanoseconds => duration(value),
    }
}

/// The figures for programs.
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
        let row = |case, peer, round, figure| Row {
            case,
            peer,
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
        assert!(line("│ kept").contains("2.0") && line("│ kept").contains('–'));
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
