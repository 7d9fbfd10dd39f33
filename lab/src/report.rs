//! Tables for people, and progress that also suits a pipe.

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::ProgressBar;
use serde_json::json;

use crate::peers::Ready;
use crate::record::Record;
use crate::stats::Comparison;
use crate::summary::{Counting, Metric, Summary};
use crate::workloads::{self, Measure};

/// Reports a step: in the bar on a terminal, else as a line.
pub fn progress(bar: &ProgressBar, what: &str) {
    if bar.is_hidden() {
        eprintln!("{what}");
    } else {
        bar.set_message(what.to_string());
    }
}

/// The peers, each with its version and file or the reason of its absence.
pub fn peers(found: &[(&'static str, anyhow::Result<Ready>)]) -> Table {
    let mut table = table(&["peer", "version", "library, or why absent"]);
    for (name, ready) in found {
        table.add_row(match ready {
            Ok(ready) => vec![
                name.to_string(),
                ready.version.clone(),
                ready.library.display().to_string(),
            ],
            Err(reason) => vec![name.to_string(), "absent".into(), format!("{reason:#}")],
        });
    }
    table
}

/// Every table of a campaign, against `base`.
pub fn campaign(record: &Record, base: &str) -> String {
    let summary = Summary::of(record);
    let mut text = String::new();
    let mut section = |title: &str, table: Table| {
        if table.row_iter().next().is_some() {
            text.push_str(&format!("\n{title}\n{table}\n"));
        }
    };
    let legend = "median of paired ratios; ~: not separable";
    section(
        &format!("Time, {base} = 1 ({legend})"),
        ratios(&summary, base, Metric::Time),
    );
    section(
        &format!("Peak RSS, {base} = 1 ({legend})"),
        ratios(&summary, base, Metric::PeakRss),
    );
    section(
        "Resident bytes a live block",
        medians(&summary, Measure::Memory, Metric::BytesPerBlock),
    );
    section(
        "Instructions a malloc and free, loop included",
        counted(&summary, Counting::Instructions),
    );
    section(
        "Minor faults a run",
        medians(&summary, Measure::Time, Metric::Faults),
    );
    section(
        "System calls a run",
        counted(&summary, Counting::SystemCalls),
    );
    section("Geometric means over the timed rows", means(&summary, base));
    text
}

/// An empty table in this program's style.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

/// A table with a first column of names and one column per peer.
fn peer_table(summary: &Summary, first: &str) -> Table {
    let mut header = vec![first];
    header.extend(summary.peers());
    let mut table = table(&header);
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    table
}

fn ratios(summary: &Summary, base: &str, metric: Metric) -> Table {
    let mut table = peer_table(summary, "workload");
    for name in summary.workloads(Measure::Time) {
        let cell = |peer: &&str| match *peer == base {
            true => absolute(summary.median(name, base, metric), metric),
            false => Cell::new(verdict(summary.compare(name, peer, base, metric))),
        };
        let mut row = vec![Cell::new(name)];
        row.extend(summary.peers().iter().map(cell));
        table.add_row(row);
    }
    table
}

/// A ratio, marked if it is not significant.
fn verdict(comparison: Option<Comparison>) -> String {
    match comparison {
        None => "–".into(),
        Some(c) if c.separable() => format!("{:.2}", c.median),
        Some(c) => format!("~{:.2}", c.median),
    }
}

/// The base's own number, with its unit.
fn absolute(value: Option<f64>, metric: Metric) -> Cell {
    let text = value.map_or("–".into(), |v| match metric {
        Metric::Time if v >= 1e6 => format!("{:.1} ms", v / 1e6),
        Metric::Time => format!("{v:.1} ns"),
        Metric::PeakRss => format!("{:.1} MiB", v / 1_024.0),
        Metric::BytesPerBlock | Metric::Faults => format!("{v:.1}"),
    });
    Cell::new(text)
}

fn medians(summary: &Summary, measure: Measure, metric: Metric) -> Table {
    let mut table = peer_table(summary, "workload");
    for name in summary.workloads(measure) {
        let cell = |peer: &&str| number(summary.median(name, peer, metric));
        table.add_row(std::iter::once(name.to_string()).chain(summary.peers().iter().map(cell)));
    }
    table
}

fn counted(summary: &Summary, kind: Counting) -> Table {
    let mut table = peer_table(summary, "counted");
    for name in summary.counted(kind) {
        let cell = |peer: &&str| number(summary.count(kind, name, peer));
        table.add_row(std::iter::once(name.to_string()).chain(summary.peers().iter().map(cell)));
    }
    table
}

/// A number with significant digits only.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(v) if v.fract() == 0.0 || v >= 10_000.0 => format!("{v:.0}"),
        Some(v) => format!("{v:.1}"),
    }
}

/// The bases of the geometric means.
fn mean_bases<'a>(summary: &Summary, base: &'a str) -> Vec<&'a str> {
    let jemalloc = summary.peers().contains(&"jemalloc") && base != "jemalloc";
    std::iter::once(base)
        .chain(jemalloc.then_some("jemalloc"))
        .collect()
}

fn means(summary: &Summary, base: &str) -> Table {
    let mut table = peer_table(summary, "against");
    for against in mean_bases(summary, base) {
        for (metric, what) in [(Metric::Time, "time"), (Metric::PeakRss, "peak RSS")] {
            let cell = |peer: &&str| match summary.mean_ratio(peer, against, metric) {
                Some(mean) => format!("{mean:.3}"),
                None => "–".into(),
            };
            let name = format!("{against}, {what}");
            table.add_row(std::iter::once(name).chain(summary.peers().iter().map(cell)));
        }
    }
    table
}

/// The campaign as JSON.
pub fn json(record: &Record, base: &str) -> serde_json::Value {
    let summary = Summary::of(record);
    let head: serde_json::Map<_, _> = record
        .head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut rows = Vec::new();
    for measure in [Measure::Time, Measure::Memory] {
        for name in summary.workloads(measure) {
            rows.extend(
                summary
                    .peers()
                    .iter()
                    .map(|peer| json_row(&summary, name, peer, base)),
            );
        }
    }
    json!({ "head": head, "base": base, "rows": rows, "counts": json_counts(&summary),
        "means": json_means(&summary, base) })
}

fn json_row(summary: &Summary, name: &str, peer: &str, base: &str) -> serde_json::Value {
    let ratio = |metric| {
        summary.compare(name, peer, base, metric).map(|c| {
            json!({ "median": c.median, "quartiles": [c.quartiles.0, c.quartiles.1], "p": c.p,
                "pairs": c.pairs, "separable": c.separable() })
        })
    };
    json!({
        "workload": name,
        "shows": workloads::find(name).map(|w| w.shows),
        "peer": peer,
        "ns_per_op": summary.median(name, peer, Metric::Time),
        "peak_rss_kib": summary.median(name, peer, Metric::PeakRss),
        "minor_faults": summary.median(name, peer, Metric::Faults),
        "bytes_per_block": summary.median(name, peer, Metric::BytesPerBlock),
        "time_ratio": ratio(Metric::Time),
        "peak_rss_ratio": ratio(Metric::PeakRss),
        "bytes_per_block_ratio": ratio(Metric::BytesPerBlock),
    })
}

fn json_counts(summary: &Summary) -> Vec<serde_json::Value> {
    let kinds = [
        (Counting::Instructions, "instructions"),
        (Counting::SystemCalls, "system_calls"),
    ];
    let mut counts = Vec::new();
    for (kind, what) in kinds {
        for name in summary.counted(kind) {
            for peer in summary.peers() {
                let count = summary.count(kind, name, peer);
                counts.push(json!({ "kind": what, "name": name, "peer": peer, "count": count }));
            }
        }
    }
    counts
}

fn json_means(summary: &Summary, base: &str) -> Vec<serde_json::Value> {
    let of = |against: &&str| {
        summary
            .peers()
            .into_iter()
            .map(|peer| {
                json!({ "against": against, "peer": peer,
                "time": summary.mean_ratio(peer, against, Metric::Time),
                "peak_rss": summary.mean_ratio(peer, against, Metric::PeakRss) })
            })
            .collect::<Vec<_>>()
    };
    mean_bases(summary, base).iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_when_it_proves_nothing() {
        let comparison = |p| Comparison {
            median: 0.874,
            quartiles: (0.8, 0.9),
            p,
            pairs: 10,
        };
        assert_eq!(verdict(Some(comparison(0.002))), "0.87");
        assert_eq!(verdict(Some(comparison(0.3))), "~0.87");
        assert_eq!(verdict(None), "–");
    }

    #[test]
    fn an_absent_peer_is_shown_with_the_reason() {
        let found = [("snmalloc", Err(anyhow::anyhow!("no compiler")))];
        let text = peers(&found).to_string();
        assert!(
            text.contains("snmalloc") && text.contains("no compiler"),
            "{text}"
        );
    }
}
