//! Tables: named rows and columns, and a text for each pair of names.

use std::fmt::{self, Display};

use comfy_table::{CellAlignment, Table, presets};

use super::record::{Figure, Unit};
use super::record::{Record, Row, distinct};
use crate::stats::Spread;

/// Shown where nothing was measured.
pub const MISSING: &str = "–";

/// A column: its heading, and what its cells show.
pub struct Column<N, T>(pub N, pub T);

impl<N: Display, T> Display for Column<N, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A table under its title. A row without any cell is left out; nothing is left of a table without
/// rows.
pub fn section<R: Display, C: Display>(
    title: &str,
    corner: &str,
    (rows, columns): (&[R], &[C]),
    cell: impl Fn(&R, &C) -> Option<String>,
) -> String {
    let header: Vec<String> = columns.iter().map(C::to_string).collect();
    let header: Vec<&str> = std::iter::once(corner)
        .chain(header.iter().map(String::as_str))
        .collect();
    let mut table = plain(&header);
    let figures = table.column_iter_mut().skip(1);
    figures.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for row in rows {
        let cells: Vec<_> = columns.iter().map(|column| cell(row, column)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or(MISSING.into()));
            table.add_row(std::iter::once(row.to_string()).chain(cells));
        }
    }
    match table.row_iter().next() {
        Some(_) => format!("\n{title}\n{table}\n"),
        None => String::new(),
    }
}

/// An empty table of texts.
pub fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

/// One table a case, with a row a figure and a column a peer. A cell is the median of the rounds;
/// with three or more rounds, with their quartiles.
pub fn by_case(record: &Record) -> String {
    let table = |case: &str| {
        let rows: Vec<&Row> = record.rows.iter().filter(|row| row.case == case).collect();
        let names = distinct(rows.iter().map(|row| row.figure.name.as_str()));
        let peers = distinct(rows.iter().map(|row| row.peer.as_str()));
        // Only bytes of processes are shown in millions, without a unit in their cells.
        let corner = if rows.iter().any(|row| row.figure.unit == Unit::Bytes) {
            "MB (10⁶ bytes), counts, times"
        } else {
            ""
        };
        section(case, corner, (&names, &peers), |name, peer| {
            let is_it = |row: &&&Row| row.peer == **peer && row.figure.name == **name;
            cell(rows.iter().filter(is_it).map(|row| &row.figure))
        })
    };
    record.cases().into_iter().map(table).collect()
}

/// With fewer rounds, quartiles are not shown.
const LEAST_FOR_QUARTILES: usize = 3;

fn cell<'a>(figures: impl Iterator<Item = &'a Figure>) -> Option<String> {
    let (mut values, mut last) = (Vec::new(), None);
    for figure in figures {
        values.extend(figure.as_number());
        last = Some(figure);
    }
    let last = last?;
    let Some(spread) = Spread::of(&values) else {
        return last.as_text().map(str::to_string);
    };
    let (low, high) = spread.quartiles;
    let [low, median, high] = [low, spread.median, high].map(|value| shown(value, last.unit));
    Some(if spread.rounds >= LEAST_FOR_QUARTILES && low != high {
        format!("{median} ({low}–{high})")
    } else {
        median
    })
}

/// A number in its unit.
fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{:.1}", value / 1e6),
        Unit::Kib => format!("{:.1} MiB", value / 1_024.0),
        Unit::BlockBytes if value.fract() == 0.0 => format!("{value:.0} B"),
        Unit::BlockBytes => format!("{value:.2} B"),
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::Number => format!("{value:.2}"),
        Unit::Count | Unit::Text => format!("{value:.0}"),
        Unit::Nanoseconds if value < SHORT => format!("{value:.1} ns"),
        Unit::Nanoseconds => duration(value),
        Unit::Milliseconds => duration(value * 1e6),
        Unit::Seconds => duration(value * 1e9),
    }
}

/// Times below this many nanoseconds are of single operations and get a decimal.
const SHORT: f64 = 100.0;

/// A time in nanoseconds, with three digits and a unit.
pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", three_digits(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", three_digits(ns / 1e6)),
        ns => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// A number below a thousand with three digits.
pub fn three_digits(value: f64) -> String {
    let places = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn a_case_is_a_table_and_a_cell_the_median_of_its_rounds() {
        let kept = |value| vec![Figure::bytes("kept", value)];
        let text = by_case(&record([
            ("own", "neap", 0, kept(1e6)),
            ("own", "neap", 1, kept(3e6)),
            ("own", "neap", 2, kept(2e6)),
            (
                "own",
                "glibc",
                0,
                vec![Figure::count("tasks", 1), Figure::text("why", "no file")],
            ),
            (
                "large",
                "glibc",
                0,
                vec![Figure::nanoseconds("time", 1_234.0)],
            ),
        ]));
        assert!(
            text.contains("\nown\n") && text.contains("\nlarge\n"),
            "{text}"
        );
        let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap();
        assert!(line("│ kept").contains("2.0 (1.5–2.5)") && line("│ kept").contains(MISSING));
        assert!(line("│ tasks").contains(" 1 ") && line("│ why").contains("no file"));
        assert!(line("│ time").contains("1.23 µs"));
    }

    #[test]
    fn a_row_without_a_cell_is_left_out_and_a_table_without_rows_is_nothing() {
        let only = |row: &&str, _: &&str| (*row == "a").then(|| "1".to_string());
        let text = section("title", "", (&["a", "b"], &["c"]), only);
        assert!(text.starts_with("\ntitle\n") && text.contains("│ a") && !text.contains("│ b"));
        assert_eq!(section("title", "", (&["b"], &["c"]), only), "");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(duration(812.4), "812 ns");
        assert_eq!(duration(4_416_000.0), "4.42 ms");
        assert_eq!(duration(93_000.0), "93.0 µs");
        assert_eq!(duration(2.5e9), "2.50 s");
    }
}
