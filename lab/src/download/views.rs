//! The tables and the picture: an allocator's rates against the chunk size.

use super::{Buffers, Chunk, END, MIB, RATE, TIME, TIME_UP};
use crate::engine::campaign::Named as _;
use crate::engine::plot::{Axis, Draw, Panel, Plot, Point, Series, Stroke};
use crate::engine::record::{Record, Run};
use crate::engine::table::{Column, MISSING, section};
use crate::stats::quantile;

/// Most bytes that one TLS read returns.
const RECORD: u64 = 16 << 10;

/// An upper bound of the rate if nothing arrived: not even one record within the time.
fn bound(seconds: f64) -> f64 {
    RECORD as f64 / MIB as f64 / seconds
}

fn is_timed_out(run: &Run) -> bool {
    run.text(END) == Some(TIME_UP)
}

/// The rounds of one allocator with one chunk size and one kind of buffers.
struct Cell {
    rates: Vec<f64>,
    /// The upper bound of a rate of 0.
    bound: f64,
    ran_out_of_time: bool,
}

impl Cell {
    /// `None` if no round of it succeeded.
    fn of(record: &Record, peer: &str, chunk: Chunk) -> Option<Cell> {
        let case = chunk.name();
        let is_it = |run: &Run| run.case() == case && run.peer() == peer;
        let runs: Vec<Run> = record.runs().filter(is_it).collect();
        let of_all = |figure| runs.iter().filter_map(move |run| run.number(figure));
        (!runs.is_empty()).then(|| Cell {
            rates: of_all(RATE).collect(),
            bound: of_all(TIME).map(bound).fold(0.0, f64::max),
            ran_out_of_time: runs.iter().any(is_timed_out),
        })
    }

    /// The `q`-quantile of the rates, in MiB per second.
    fn rate(&self, q: f64) -> f64 {
        quantile(&self.rates, q)
    }

    /// The median, and for several rounds also the least and the most.
    fn text(&self) -> String {
        let mark = if self.ran_out_of_time { "*" } else { "" };
        let [least, median, most] = [0.0, 0.5, 1.0].map(|q| self.rate(q));
        if median == 0.0 {
            return format!("< {}{mark}", number(self.bound));
        }
        let spread = match self.rates.len() {
            1 => String::new(),
            _ => format!(" ({} to {})", number(least), number(most)),
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

/// The chunk sizes of a record with those buffers, ascending.
fn sizes(record: &Record, buffers: Buffers) -> Vec<u64> {
    let chunks = record.cases().into_iter().filter_map(Chunk::find);
    let sizes = chunks
        .filter(|chunk| chunk.buffers == buffers)
        .map(|chunk| chunk.mb);
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable();
    sizes
}

/// Every table.
pub fn tables(record: &Record) -> String {
    let legend = if record.runs().any(|run| is_timed_out(&run)) {
        "medians (least to most); *: stopped when its time was up, with what had come"
    } else {
        "medians (least to most)"
    };
    rates(record, &format!("MiB a second, {legend}"), Buffers::Zeroed)
        + &rates(
            record,
            "The same with buffers that are not zeroed",
            Buffers::Unzeroed,
        )
        + &shares(record)
}

/// A column for each of the chunk sizes.
fn columns(sizes: &[u64]) -> Vec<Column<String, Option<u64>>> {
    let column = |mb: &u64| Column(format!("{mb} MiB chunks"), Some(*mb));
    sizes.iter().map(column).collect()
}

/// MiB per second with those buffers: one row per allocator, one column per chunk size, and the
/// part of the smallest chunk's rate that remains with the largest.
fn rates(record: &Record, title: &str, buffers: Buffers) -> String {
    let (peers, sizes) = (record.peers(), sizes(record, buffers));
    let mut columns = columns(&sizes);
    columns.push(Column("last / first".into(), None));
    let cell = |peer: &str, mb| Cell::of(record, peer, Chunk { mb, buffers });
    section(title, "allocator", (&peers, &columns), |peer, column| {
        if let Some(mb) = column.1 {
            return Some(cell(peer, mb)?.text());
        }
        let ends = [*sizes.last()?, *sizes.first()?].map(|mb| Some(cell(peer, mb)?.rate(0.5)));
        Some(percent(ends[0]?, ends[1]?))
    })
}

/// The rate with zeroing as a fraction of the rate without.
fn shares(record: &Record) -> String {
    let (peers, columns) = (record.peers(), columns(&sizes(record, Buffers::Unzeroed)));
    let title = "What the zeros leave of that";
    section(title, "allocator", (&peers, &columns), |peer, column| {
        let mb = column.1?;
        let rate = |buffers| Some(Cell::of(record, peer, Chunk { mb, buffers })?.rate(0.5));
        Some(percent(rate(Buffers::Zeroed)?, rate(Buffers::Unzeroed)?))
    })
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.1} %", 100.0 * part / whole)
    } else {
        MISSING.into()
    }
}

/// MiB per second with zeroed buffers against the chunk, one line per allocator.
pub fn picture(record: &Record) -> String {
    let buffers = Buffers::Zeroed;
    let sizes = sizes(record, buffers);
    let points = |peer: &str| -> Vec<Point> {
        let point = |&mb: &u64| {
            let cell = Cell::of(record, peer, Chunk { mb, buffers })?;
            // A logarithmic axis has no 0, so its upper bound is drawn instead.
            let rate = |q| match cell.rate(q) {
                0.0 => cell.bound,
                rate => rate,
            };
            let y_spread = Some((rate(0.0), rate(1.0)));
            Some(Point {
                y_spread,
                ..Point::at(mb as f64, rate(0.5))
            })
        };
        sizes.iter().filter_map(point).collect()
    };
    let series = |peer: &str| Series {
        name: peer.into(),
        stroke: Stroke::of_peer(peer),
        draw: Draw::Dotted,
        points: points(peer),
    };
    let series: Vec<Series> = record.peers().into_iter().map(series).collect();
    let ends = |point: &Point| {
        point
            .y_spread
            .map_or([point.y; 2], |(low, high)| [low, high])
    };
    let heights = series
        .iter()
        .flat_map(|series| series.points.iter().flat_map(ends));
    let panel = Panel {
        title: "MiB a second against the chunk in MiB, the buffer of every 16 KiB read".into(),
        x: Axis::decades(sizes.iter().map(|&mb| mb as f64), |mb| mb.to_string()),
        y: Axis::decades(heights, |rate| {
            number(rate).trim_end_matches('0').to_string()
        }),
        marks: vec![],
        series,
    };
    let title = vec!["HTTPS download through requests and pyOpenSSL".into()];
    let (size, left) = ((640.0, 360.0), (60.0, 20.0));
    Plot {
        title,
        across: 1,
        panel: size,
        left,
        panels: vec![panel],
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::super::figures;
    use super::*;

    fn run(record: &mut Record, (peer, case): (&str, &str), round: u32, megabytes: u64) {
        let end = if megabytes == 0 { TIME_UP } else { "body" };
        let report = format!(
            "received={}\nseconds=2\nend={end}\nreads=1\npeak_rss_kib=1\nminor_faults=1\n",
            megabytes << 20
        );
        record.push(case, peer, round, figures(&report).unwrap());
    }

    fn record() -> Record {
        let mut record = Record::default();
        for (round, megabytes) in [(0, 600), (1, 400), (2, 440)] {
            run(&mut record, ("mimalloc2", "1 MB zeroed"), round, megabytes);
            run(&mut record, ("mimalloc2", "1000 MB zeroed"), round, 0);
            run(&mut record, ("jemalloc", "1 MB zeroed"), round, megabytes);
            run(
                &mut record,
                ("jemalloc", "1000 MB zeroed"),
                round,
                megabytes / 2,
            );
        }
        record
    }

    #[test]
    fn the_table_has_medians_and_spreads_and_says_what_is_below_its_limit() {
        let text = tables(&record());
        let row = |name| text.lines().find(|line| line.contains(name)).unwrap();
        for part in ["220 (200 to 300)", "110 (100 to 150)", "50.0 %"] {
            assert!(row("jemalloc").contains(part), "no {part:?} in {text}");
        }
        // One record of 16 KiB in two seconds would be 0.0078 MiB/s.
        for part in ["220 (200 to 300)", "< 0.0078*", "0.0 %"] {
            assert!(row("mimalloc2").contains(part), "no {part:?} in {text}");
        }
        assert!(text.contains("its time was up") && !text.contains("What the zeros leave"));
    }

    #[test]
    fn the_control_shows_what_zeros_leave_of_the_rate_and_a_missing_run_is_a_dash() {
        let mut record = record();
        run(&mut record, ("jemalloc", "1000 MB unzeroed"), 0, 440);
        run(&mut record, ("glibc", "1 MB unzeroed"), 0, 7);
        let text = shares(&record);
        let row = text.lines().find(|line| line.contains("jemalloc")).unwrap();
        assert!(row.contains("50.0 %") && row.contains(MISSING), "{text}");
        assert!(rates(&record, "", Buffers::Unzeroed).contains("3.5"));
    }

    #[test]
    fn rates_are_told_with_sensible_precision() {
        let told = [309.4, 18.2, 1.11, 0.123, 0.0132, 0.0].map(number);
        assert_eq!(told, ["309", "18", "1.1", "0.12", "0.0132", "0"]);
    }

    #[test]
    fn the_picture_has_a_line_a_peer_and_the_bound_for_nothing() {
        let picture = picture(&record());
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(picture.contains(">mimalloc2</text>") && !picture.contains("NaN"));
    }
}
