//! The table, the JSON and the picture of a campaign.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use super::campaign::Run;
use super::cell::{Buffers, End, Sample};
use crate::peers;
use crate::plot::lines::{Line, Picture, Point};
use crate::stats::quantile;

/// The rounds of one allocator with one chunk size and one kind of buffer.
struct Cell<'a> {
    samples: Vec<&'a Sample>,
}

impl<'a> Cell<'a> {
    /// `None` if no round of it succeeded.
    fn of(runs: &'a [Run], peer: &str, chunk_mb: u64, buffers: Buffers) -> Option<Cell<'a>> {
        let of_cell =
            |run: &&Run| run.peer == peer && run.chunk_mb == chunk_mb && run.buffers == buffers;
        let samples: Vec<&Sample> = runs.iter().filter(of_cell).map(|r| &r.sample).collect();
        (!samples.is_empty()).then_some(Cell { samples })
    }

    /// The `q`-quantile of the rates, in MB per second.
    fn rate(&self, q: f64) -> f64 {
        let rates: Vec<f64> = self.samples.iter().map(|s| s.rate()).collect();
        quantile(&rates, q)
    }

    /// The upper bound of a median rate of 0.
    fn bound(&self) -> f64 {
        let bounds = self.samples.iter().map(|s| s.bound());
        bounds.fold(0.0, f64::max)
    }

    fn ran_out_of_time(&self) -> bool {
        self.samples.iter().any(|s| s.end == End::TimeUp)
    }

    /// The median, and for several rounds also the least and the most.
    fn text(&self) -> String {
        let mark = if self.ran_out_of_time() { "*" } else { "" };
        let median = self.rate(0.5);
        if median == 0.0 {
            return format!("< {}{mark}", number(self.bound()));
        }
        let spread = match self.samples.len() {
            1 => String::new(),
            _ => format!(
                " ({} to {})",
                number(self.rate(0.0)),
                number(self.rate(1.0))
            ),
        };
        format!("{}{mark}{spread}", number(median))
    }
}

/// A rate with significant digits only.
fn number(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        r if r >= 10.0 => format!("{r:.0}"),
        r if r >= 1.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r => format!("{r:.4}"),
    }
}

/// The peers with any run, in the order of the report.
fn peers_of(runs: &[Run]) -> Vec<&'static str> {
    let ran = |name: &&str| runs.iter().any(|run| run.peer == **name);
    peers::ALL
        .iter()
        .map(|peer| peer.name)
        .filter(ran)
        .collect()
}

/// The chunk sizes with any run, ascending.
fn chunks_of(runs: &[Run]) -> Vec<u64> {
    let mut chunks: Vec<u64> = runs.iter().map(|run| run.chunk_mb).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}

/// Every table of a campaign.
pub fn campaign(runs: &[Run]) -> String {
    let (legend, zeroed) = (legend(runs), rates(runs, Buffers::Zeroed));
    let mut text = format!("MB a second, {legend}\n{zeroed}");
    if let Some(shares) = against_control(runs) {
        let unzeroed = rates(runs, Buffers::Unzeroed);
        text.push_str(&format!(
            "\n\nThe same with buffers that are not zeroed\n{unzeroed}\n\n\
             What the zeros leave of that\n{shares}"
        ));
    }
    text
}

/// MB per second with those buffers: one row per allocator, one column per chunk size, and the part
/// of the smallest chunk's rate that remains with the largest.
fn rates(runs: &[Run], buffers: Buffers) -> String {
    let chunks = chunks_of(runs);
    let rate = |peer: &str, mb| Some(Cell::of(runs, peer, mb, buffers)?.text());
    let mut columns = chunk_columns(runs, &chunks, &rate);
    let remainders = peers_of(runs).into_iter();
    let remainder = |peer| remainder(runs, peer, &chunks, buffers);
    columns.push(Column {
        title: "last / first".into(),
        texts: remainders.map(remainder).collect(),
    });
    peer_table(runs, &columns)
}

/// The rate with zeroing as a fraction of the rate without; `None` if the control was not run.
fn against_control(runs: &[Run]) -> Option<String> {
    if !runs.iter().any(|run| run.buffers == Buffers::Unzeroed) {
        return None;
    }
    let rate = |peer: &str, mb, buffers| Some(Cell::of(runs, peer, mb, buffers)?.rate(0.5));
    let share = |peer: &str, mb| {
        let control = rate(peer, mb, Buffers::Unzeroed)?;
        Some(percent(rate(peer, mb, Buffers::Zeroed)?, control))
    };
    let columns = chunk_columns(runs, &chunks_of(runs), &share);
    Some(peer_table(runs, &columns))
}

/// A column of a table: a text for each peer.
struct Column {
    title: String,
    texts: Vec<String>,
}

fn chunk_columns(
    runs: &[Run],
    chunks: &[u64],
    text: &dyn Fn(&str, u64) -> Option<String>,
) -> Vec<Column> {
    let texts = |mb| {
        let peers = peers_of(runs).into_iter();
        peers.map(move |peer| text(peer, mb).unwrap_or_else(|| "–".into()))
    };
    let column = |&mb: &u64| Column {
        title: format!("{mb} MB chunks"),
        texts: texts(mb).collect(),
    };
    chunks.iter().map(column).collect()
}

fn peer_table(runs: &[Run], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let titles = columns.iter().map(|column| column.title.as_str());
    table.set_header(std::iter::once("allocator").chain(titles));
    for (place, peer) in peers_of(runs).into_iter().enumerate() {
        let texts = columns.iter().map(|column| column.texts[place].as_str());
        table.add_row(std::iter::once(peer).chain(texts));
    }
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

fn remainder(runs: &[Run], peer: &str, chunks: &[u64], buffers: Buffers) -> String {
    let rate = |mb: Option<&u64>| Some(Cell::of(runs, peer, *mb?, buffers)?.rate(0.5));
    match (rate(chunks.first()), rate(chunks.last())) {
        (Some(first), Some(last)) => percent(last, first),
        _ => "–".into(),
    }
}

fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "–".into(),
    }
}

/// The meaning of the table's marks.
fn legend(runs: &[Run]) -> &'static str {
    match runs.iter().any(|run| run.sample.end == End::TimeUp) {
        true => "medians (least to most); *: stopped when its time was up, with what had come",
        false => "medians (least to most)",
    }
}

/// The campaign as JSON.
pub fn json(head: &[(String, String)], runs: &[Run]) -> serde_json::Value {
    let head: serde_json::Map<_, _> = head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut cells = Vec::new();
    for chunk_mb in chunks_of(runs) {
        for peer in peers_of(runs) {
            let kinds = [Buffers::Zeroed, Buffers::Unzeroed];
            cells.extend(
                kinds
                    .iter()
                    .filter_map(|&b| json_cell(runs, peer, chunk_mb, b)),
            );
        }
    }
    json!({ "head": head, "cells": cells })
}

fn json_cell(
    runs: &[Run],
    peer: &str,
    chunk_mb: u64,
    buffers: Buffers,
) -> Option<serde_json::Value> {
    let cell = Cell::of(runs, peer, chunk_mb, buffers)?;
    Some(
        json!({ "chunk_mb": chunk_mb, "peer": peer, "buffers": buffers.name(),
            "rounds": cell.samples.len(), "mb_per_s": cell.rate(0.5), "least": cell.rate(0.0),
            "most": cell.rate(1.0), "out_of_time": cell.ran_out_of_time() }),
    )
}

/// MB per second with zeroed buffers against the chunk, one line per allocator.
pub fn picture(runs: &[Run]) -> Picture<'static> {
    let line = |peer: &'static str| {
        let point = |mb| {
            let cell = Cell::of(runs, peer, mb, Buffers::Zeroed)?;
            // A logarithmic axis has no 0, so its upper bound is drawn instead.
            let value = |q| match cell.rate(q) {
                0.0 => cell.bound(),
                rate => rate,
            };
            Some(Point {
                x: mb as f64,
                y: value(0.5),
                range: (value(0.0), value(1.0)),
            })
        };
        Line {
            peer,
            points: chunks_of(runs).into_iter().filter_map(point).collect(),
        }
    };
    Picture {
        title: "HTTPS download through requests and pyOpenSSL",
        x: "chunk size in MB, and size of the buffer of every 16 KiB read",
        y: "MB a second",
        lines: peers_of(runs).into_iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(peer: &str, chunk_mb: u64, round: u32, megabytes: u64, end: End) -> Run {
        let sample = Sample {
            bytes: megabytes << 20,
            seconds: 2.0,
            end,
            reads: 1,
            peak_rss_kib: 1,
            minor_faults: 1,
        };
        Run {
            chunk_mb,
            peer: peer.into(),
            buffers: Buffers::Zeroed,
            round,
            sample,
        }
    }

    fn runs() -> Vec<Run> {
        let mut runs = Vec::new();
        for (round, megabytes) in [(0, 600), (1, 400), (2, 440)] {
            runs.push(run("jemalloc", 1, round, megabytes, End::Whole));
            runs.push(run("jemalloc", 1_000, round, megabytes / 2, End::Whole));
            runs.push(run("mimalloc2", 1, round, megabytes, End::Whole));
            runs.push(run("mimalloc2", 1_000, round, 0, End::TimeUp));
        }
        runs
    }

    #[test]
    fn the_table_has_medians_and_spreads_and_says_what_is_below_its_limit() {
        let text = rates(&runs(), Buffers::Zeroed);
        let row = |name| text.lines().find(|line| line.contains(name)).unwrap();
        for part in ["220 (200 to 300)", "110 (100 to 150)", "50.0 %"] {
            assert!(row("jemalloc").contains(part), "no {part:?} in {text}");
        }
        // One record of 16 KiB in two seconds would be 0.0078 MB/s.
        for part in ["220 (200 to 300)", "< 0.0078*", "0.0 %"] {
            assert!(row("mimalloc2").contains(part), "no {part:?} in {text}");
        }
        assert!(text.find("mimalloc2") < text.find("jemalloc"), "{text}");
        assert!(legend(&runs()).contains("its time was up"));
        assert!(!legend(&runs()[..2]).contains("its time was up"));
    }

    #[test]
    fn a_cell_without_a_run_is_a_dash() {
        let runs = [
            run("glibc", 1, 0, 7, End::Whole),
            run("neap", 10, 0, 7, End::Whole),
        ];
        let text = rates(&runs, Buffers::Zeroed);
        assert_eq!(text.matches('–').count(), 4, "{text}");
        assert!(text.contains("3.5"), "{text}");
    }

    #[test]
    fn the_control_shows_what_zeros_leave_of_the_rate() {
        assert_eq!(against_control(&runs()), None);
        let mut both = runs();
        both.push(Run {
            buffers: Buffers::Unzeroed,
            ..run("jemalloc", 1_000, 0, 440, End::Whole)
        });
        let text = against_control(&both).unwrap();
        let row = text.lines().find(|line| line.contains("jemalloc")).unwrap();
        assert!(row.contains("50.0 %") && row.contains('–'), "{text}");
    }

    #[test]
    fn rates_are_told_with_sensible_precision() {
        let told = [309.4, 18.2, 1.11, 0.123, 0.0132, 0.0].map(number);
        assert_eq!(told, ["309", "18", "1.1", "0.12", "0.0132", "0"]);
    }

    #[test]
    fn the_json_has_a_cell_a_peer_and_chunk() {
        let head = [("date".to_string(), "today".to_string())];
        let json = json(&head, &runs());
        assert_eq!(json["head"]["date"], "today");
        assert_eq!(json["cells"].as_array().unwrap().len(), 4);
        assert_eq!(json["cells"][0]["mb_per_s"], 220.0);
        assert_eq!(json["cells"][2]["out_of_time"], true);
    }

    #[test]
    fn the_picture_has_a_line_a_peer_and_the_bound_for_nothing() {
        let runs = runs();
        let picture = picture(&runs);
        assert_eq!(picture.lines.len(), 2);
        let slow = &picture.lines[0];
        assert_eq!((slow.peer, slow.points[0].y), ("mimalloc2", 220.0));
        assert_eq!(slow.points[1].y, 0.0078125);
        assert_eq!(slow.points[0].range, (200.0, 300.0));
    }
}
