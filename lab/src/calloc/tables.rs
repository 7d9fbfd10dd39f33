//! The tables of a campaign: one per pattern and figure, with a row per size and a column per
//! allocator.

use comfy_table::{CellAlignment, Table};
use serde_json::json;

use super::record::Record;
use super::summary::{Median, Summary, Summed};
use crate::report;
use crate::work::calloc::Touch;

/// A figure with a table of its own, and the format of its cells.
struct Figure {
    title: &'static str,
    text: fn(&Summed) -> String,
}

const FIGURES: [Figure; 4] = [
    Figure {
        title: "time of a pair, the median over the rounds ± half the quartiles' distance",
        text: |cell| cell.ns.map_or(MISSING.into(), |ns| with_spread(&ns)),
    },
    Figure {
        title: "page faults of a pair",
        text: |cell| {
            cell.faults
                .map_or(MISSING.into(), |faults| number(faults.value))
        },
    },
    Figure {
        title: "bytes that calloc zeroed by itself",
        text: |cell| told(cell.zeroed, bytes),
    },
    Figure {
        title: "system calls of a pair",
        text: |cell| told(cell.system_calls, number),
    },
];

/// Shown for a cell that was not run.
const MISSING: &str = "–";

/// Every table.
pub fn campaign(record: &Record) -> String {
    let summary = Summary::of(record);
    let mut text = String::from("A pair is calloc, touch and free.\n");
    for touch in summary.touches() {
        for Figure { title, text: cell } in &FIGURES {
            let table = table(&summary, touch, cell);
            text.push_str(&format!("\n{}: {title}\n{table}\n", upper(touch.title())));
        }
    }
    text
}

fn upper(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn table(summary: &Summary, touch: Touch, text: &fn(&Summed) -> String) -> Table {
    let peers = summary.peers();
    let mut header = vec!["size"];
    header.extend(&peers);
    let mut table = report::table(&header);
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    for size in summary.sizes() {
        let cell = |peer: &&str| text(&summary.cell(size.name, touch, peer));
        table.add_row(std::iter::once(size.name.to_string()).chain(peers.iter().map(cell)));
    }
    table
}

/// A figure of the accounting run: missing, unavailable on this machine, or known.
fn told<T>(figure: Option<Option<T>>, text: fn(T) -> String) -> String {
    match figure {
        None => MISSING.into(),
        Some(None) => "unknown".into(),
        Some(Some(value)) => text(value),
    }
}

/// One round has no spread.
fn with_spread(ns: &Median) -> String {
    match ns.rounds {
        1 => duration(ns.value),
        _ => format!("{} ±{:.0}%", duration(ns.value), 100.0 * ns.spread()),
    }
}

/// Three digits and a unit.
pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", three_digits(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", three_digits(ns / 1e6)),
        ns => format!("{} s", three_digits(ns / 1e9)),
    }
}

fn three_digits(value: f64) -> String {
    let places = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.places$}")
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        b if b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b < 10 << 20 => format!("{} KiB", three_digits(b as f64 / 1_024.0)),
        b => format!("{} MiB", three_digits(b as f64 / 1_048_576.0)),
    }
}

fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

/// The campaign as JSON.
pub fn json(record: &Record) -> serde_json::Value {
    let summary = Summary::of(record);
    let head: serde_json::Map<_, _> = record
        .head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut rows = Vec::new();
    for touch in summary.touches() {
        for size in summary.sizes() {
            for peer in summary.peers() {
                let cell = summary.cell(size.name, touch, peer);
                rows.push(json!({
                    "size": size.name, "bytes": size.bytes, "touch": touch.name(), "peer": peer,
                    "touched_pages": touch.pages(size.bytes as usize),
                    "ns_per_pair": cell.ns.map(|ns| json_median(&ns)), "ns_least": cell.ns_least,
                    "faults_per_pair": cell.faults.map(|faults| json_median(&faults)),
                    "zeroed_bytes": cell.zeroed.flatten(),
                    "system_calls_per_pair": cell.system_calls.flatten(),
                }));
            }
        }
    }
    json!({ "head": head, "rows": rows })
}

fn json_median(median: &Median) -> serde_json::Value {
    let (low, high) = median.quartiles;
    json!({ "median": median.value, "quartiles": [low, high], "rounds": median.rounds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calloc::record::tests::rows;

    #[test]
    fn figures_have_units() {
        assert_eq!(duration(812.4), "812 ns");
        assert_eq!(duration(4_416_000.0), "4.42 ms");
        assert_eq!(duration(93_000.0), "93.0 µs");
        assert_eq!(duration(2.5e9), "2.50 s");
        assert_eq!(
            (bytes(0), bytes(65_536), bytes(100 << 20)),
            ("0".into(), "64.0 KiB".into(), "100 MiB".into())
        );
        assert_eq!(
            (number(25_600.0), number(0.02)),
            ("25600".into(), "0.02".into())
        );
    }

    #[test]
    fn what_is_unknown_is_called_so_and_what_was_not_run_is_a_dash() {
        assert_eq!(told(Some(None), bytes), "unknown");
        assert_eq!(told(None, bytes), MISSING);
        assert_eq!(told(Some(Some(0)), bytes), "0");
    }

    #[test]
    fn the_tables_have_every_figure_of_every_pattern() {
        let mut all = rows("1M", Touch::None, "glibc", &[2_000.0, 3_000.0]);
        all.extend(rows("10M", Touch::All, "naive", &[5e6]));
        let record = Record {
            head: vec![],
            rows: all,
        };
        let text = campaign(&record);
        for part in [
            "Nothing touched: time",
            "All pages touched: system calls",
            "2.50 µs ±10%",
            "5.00 ms │",
            "4.00 KiB",
            "1.25",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let json = json(&record);
        assert_eq!(json["rows"].as_array().unwrap().len(), 8);
        assert_eq!(json["rows"][0]["ns_per_pair"]["median"], 2_500.0);
    }
}
