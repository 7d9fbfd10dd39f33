//! The prices as tables and as JSON.

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::measure::Price;
use super::record::{Row, Subject};
use super::ways::{CALLS, Size, WAYS, Way};
use crate::calloc::tables::duration;
use crate::report;

/// One of a price's figures, in nanoseconds.
type Figure = fn(&Price) -> f64;

const FIGURES: [(&str, Figure); 2] = [
    ("The median reading", |price| price.ns_median),
    ("The least reading", |price| price.ns_least),
];

/// Every table.
pub fn prices(rows: &[Row], sizes: &[Size]) -> String {
    let mut text = format!("Once, whatever the size\n{}\n", calls(rows));
    for (title, figure) in FIGURES {
        text.push_str(&format!("\n{title}\n{}\n", ways(rows, sizes, figure)));
    }
    text
}

fn calls(rows: &[Row]) -> Table {
    let mut table = table(&["call", "median", "least"]);
    for call in CALLS {
        let cell = |(_, figure): (&str, Figure)| cell(rows, Subject::Call(call), figure);
        let cells = FIGURES.map(cell);
        table.add_row(std::iter::once(call.name().to_string()).chain(cells));
    }
    table
}

fn ways(rows: &[Row], sizes: &[Size], figure: Figure) -> Table {
    let mut header = vec!["way", "populated"];
    header.extend(sizes.iter().map(|size| size.name));
    let mut table = table(&header);
    for way in WAYS {
        let Way { act, holding } = way;
        let cell = |&size: &Size| cell(rows, Subject::Way { way, size }, figure);
        let names = [act.name().to_string(), holding.name().to_string()];
        table.add_row(names.into_iter().chain(sizes.iter().map(cell)));
    }
    table
}

/// A table of names and figures; figures are right-aligned.
fn table(header: &[&str]) -> Table {
    let mut table = report::table(header);
    let names = header.iter().filter(|&&name| name == "populated").count() + 1;
    let columns = table.column_iter_mut().skip(names);
    columns.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn cell(rows: &[Row], subject: Subject, figure: Figure) -> String {
    let row = rows.iter().find(|row| row.subject == subject);
    match row.map(|row| &row.price) {
        None => "–".into(),
        Some(Ok(price)) => duration(figure(price)),
        Some(Err(reason)) => reason.clone(),
    }
}

/// The prices as JSON.
pub fn json(head: &[(String, String)], rows: &[Row]) -> Value {
    let head: serde_json::Map<_, _> = head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let prices: Vec<Value> = rows.iter().map(json_row).collect();
    json!({ "head": head, "prices": prices })
}

fn json_row(row: &Row) -> Value {
    let (name, way) = match row.subject {
        Subject::Call(call) => (call.name(), None),
        Subject::Way { way, size } => (way.act.name(), Some((way, size))),
    };
    let price = row.price.as_ref().ok();
    json!({
        "way": name,
        "populated": way.map(|(way, _)| way.holding.name()),
        "size": way.map(|(_, size)| size.name),
        "bytes": way.map(|(_, size)| size.bytes),
        "ns_median": price.map(|price| price.ns_median),
        "ns_least": price.map(|price| price.ns_least),
        "readings": price.map(|price| price.readings),
        "times": price.map(|price| price.times),
        "pages": price.and_then(|price| price.pages),
        "absent": row.price.as_ref().err(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::ways::{Call, SIZES};
    use super::*;

    fn rows() -> Vec<Row> {
        let price = Price {
            ns_least: 87.0,
            ns_median: 1_234.0,
            readings: 3,
            times: 5,
            pages: Some(16),
        };
        let way = |way, size, price| Row {
            subject: Subject::Way { way, size },
            price,
        };
        vec![
            Row {
                subject: Subject::Call(Call::Status),
                price: Ok(price),
            },
            way(WAYS[3], SIZES[0], Ok(price)),
            way(WAYS[3], SIZES[1], Err("needs Linux 6.7".to_string())),
        ]
    }

    #[test]
    fn a_cell_has_its_figure_or_says_why_not() {
        let text = prices(&rows(), &SIZES[..3]);
        let lines: Vec<&str> = text
            .lines()
            .filter(|l| l.contains("PAGEMAP_SCAN") && l.contains("all"))
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("1.23 µs") && lines[1].contains("87 ns"));
        assert!(
            lines
                .iter()
                .all(|l| l.contains("needs Linux 6.7") && l.contains('–'))
        );
        let status = text.lines().find(|l| l.contains("fstat")).unwrap();
        assert!(status.contains("1.23 µs") && status.contains("87 ns"));
    }

    #[test]
    fn programs_get_every_row() {
        let json = json(&[("date".into(), "today".into())], &rows());
        assert_eq!(json["head"]["date"], "today");
        let prices = json["prices"].as_array().unwrap();
        assert_eq!(prices.len(), 3);
        assert_eq!(prices[0]["size"], Value::Null);
        assert_eq!(
            (&prices[1]["pages"], &prices[1]["bytes"]),
            (&json!(16), &json!(65_536))
        );
        assert_eq!(prices[2]["absent"], "needs Linux 6.7");
        assert_eq!(prices[2]["ns_median"], Value::Null);
    }
}
