//! The campaign as a picture: one row per workload, one dot per peer, ratios on a log scale.

pub mod lines;

use std::fmt::Write as _;

use crate::stats::Comparison;
use crate::summary::{Metric, Summary};
use crate::workloads::Measure;

const ROW: f64 = 22.0;
const NAMES: f64 = 130.0;
const PANEL: f64 = 400.0;
const GAP: f64 = 30.0;
const TOP: f64 = 70.0;
/// Ratios beyond these limits are drawn at the edge.
const RANGE: (f64, f64) = (0.25, 8.0);
const TICKS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
/// Okabe and Ito's palette, distinguishable with every kind of colour vision.
pub const COLOURS: [&str; 9] = [
    "#000000", "#999999", "#0072b2", "#56b4e9", "#d55e00", "#009e73", "#f0e442", "#e69f00",
    "#cc79a7",
];

/// An SVG document of the ratios to `base`: time on the left, peak RSS on the right. Hollow dots
/// are not separable from the base; the whisker spans the quartiles.
pub fn svg(summary: &Summary, base: &str) -> String {
    let rows = summary.workloads(Measure::Time);
    let (width, height) = (
        NAMES + 2.0 * PANEL + 2.0 * GAP,
        TOP + ROW * rows.len() as f64 + 30.0,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    legend(&mut out, summary, base);
    for (row, name) in rows.iter().enumerate() {
        text(&mut out, NAMES - 8.0, middle(row) + 4.0, "end", name);
    }
    for (panel, metric) in [(0, Metric::Time), (1, Metric::PeakRss)] {
        let left = NAMES + f64::from(panel) * (PANEL + GAP);
        axis(&mut out, left, rows.len(), metric, base);
        for (row, name) in rows.iter().enumerate() {
            dots(&mut out, summary, name, base, metric, (left, middle(row)));
        }
    }
    out.push_str("</svg>\n");
    out
}

fn middle(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}

/// The position of a ratio within a panel.
fn place(ratio: f64) -> f64 {
    let (low, high) = RANGE;
    PANEL * (ratio.clamp(low, high) / low).ln() / (high / low).ln()
}

/// Adds a line.
pub fn push(out: &mut String, element: std::fmt::Arguments) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{element}");
}

/// Adds text at a position; `anchor` is SVG's.
pub fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    push(
        out,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"),
    );
}

/// The compared peers, each with its colour.
fn coloured<'a>(summary: &Summary<'a>, base: &str) -> Vec<(&'a str, &'static str)> {
    let peers = summary.peers().into_iter();
    let colour = |name| {
        crate::peers::ALL
            .iter()
            .position(|p| p.name == name)
            .unwrap_or(0)
    };
    peers
        .filter(|p| *p != base)
        .map(|p| (p, COLOURS[colour(p) % COLOURS.len()]))
        .collect()
}

fn legend(out: &mut String, summary: &Summary, base: &str) {
    for (place, (peer, colour)) in coloured(summary, base).into_iter().enumerate() {
        let x = NAMES + 90.0 * place as f64;
        push(
            out,
            format_args!("<circle cx=\"{x:.1}\" cy=\"16\" r=\"4.5\" fill=\"{colour}\"/>"),
        );
        text(out, x + 8.0, 20.0, "start", peer);
    }
}

fn axis(out: &mut String, left: f64, rows: usize, metric: Metric, base: &str) {
    let what = match metric {
        Metric::Time => "time",
        _ => "peak RSS",
    };
    let title = format!("{what}, {base} = 1 (left is better; hollow: not separable)");
    text(out, left + PANEL / 2.0, 42.0, "middle", &title);
    let bottom = TOP + ROW * rows as f64;
    for tick in TICKS {
        let x = left + place(tick);
        let stroke = if tick == 1.0 { "#666" } else { "#ddd" };
        push(
            out,
            format_args!("<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"{stroke}\"/>"),
        );
        text(out, x, TOP - 6.0, "middle", &tick.to_string());
    }
}

fn dots(
    out: &mut String,
    summary: &Summary,
    workload: &str,
    base: &str,
    metric: Metric,
    (left, y): (f64, f64),
) {
    for (peer, colour) in coloured(summary, base) {
        if let Some(comparison) = summary.compare(workload, peer, base, metric) {
            dot(out, &comparison, colour, (left, y));
        }
    }
}

fn dot(out: &mut String, comparison: &Comparison, colour: &str, (left, y): (f64, f64)) {
    let (low, high) = comparison.quartiles;
    let (from, to) = (left + place(low), left + place(high));
    push(
        out,
        format_args!("<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"{colour}\"/>"),
    );
    let fill = if comparison.separable() {
        colour
    } else {
        "white"
    };
    let x = left + place(comparison.median);
    push(
        out,
        format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{fill}\" stroke=\"{colour}\"/>"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Row, Value};
    use crate::run::Sample;

    #[test]
    fn one_is_between_a_half_and_two_and_the_edges_hold() {
        assert!(place(0.5) < place(1.0) && place(1.0) < place(2.0));
        assert_eq!((place(0.01), place(1_000.0)), (0.0, PANEL));
    }

    #[test]
    fn the_picture_has_a_dot_a_peer_and_panel() {
        let row = |peer: &str, ns_per_op| Row {
            name: "fifo".into(),
            peer: peer.into(),
            value: Value::Timed {
                round: 0,
                sample: Sample {
                    ns_per_op,
                    peak_rss_kib: 9,
                    faults: (1, 0),
                    bytes_per_block: None,
                },
            },
        };
        let record = Record {
            head: vec![],
            rows: vec![row("glibc", 2.0), row("jemalloc", 3.0)],
        };
        let picture = svg(&Summary::of(&record), "glibc");
        assert_eq!(
            picture.matches("<circle").count(),
            3,
            "one in the legend, one a panel"
        );
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains(">fifo</text>"));
    }
}
