//! The tables, one per pattern and figure with a row per size and a column per allocator, and the
//! picture.

use super::{CALLS, MAJOR, MINOR, TIME, ZEROED};
use super::{SIZES, Size};
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::Record;
use crate::engine::table::{duration, section, three_digits};
use crate::stats::quantile;
use crate::work::calloc::Touch;

/// A figure with a table of its own: its title, and the text of a cell.
type View = (&'static str, fn(&Record, &str, &str) -> Option<String>);

const VIEWS: [View; 4] = [
    (
        "time of a pair, the median over the rounds ± half the quartiles' distance",
        time,
    ),
    ("page faults of a pair", faults),
    (
        "bytes that calloc zeroed by itself",
        |record, case, peer| told(record, (case, peer, ZEROED), bytes),
    ),
    ("system calls of a pair", |record, case, peer| {
        told(record, (case, peer, CALLS), number)
    }),
];

/// The sizes and the patterns of a record.
fn axes(record: &Record) -> (Vec<&'static Size>, Vec<Touch>) {
    let cases = record.cases();
    let has = |size: &Size, touch: Touch| {
        cases
            .iter()
            .any(|case| case.split_once(' ') == Some((size.name, touch.name())))
    };
    let size_is = |size: &&Size| Touch::ALL.iter().any(|touch| has(size, *touch));
    let touch_is = |touch: &Touch| SIZES.iter().any(|size| has(size, *touch));
    (
        SIZES.iter().filter(size_is).collect(),
        Touch::ALL.into_iter().filter(touch_is).collect(),
    )
}

/// Every table.
pub fn tables(record: &Record) -> String {
    let (sizes, touches) = axes(record);
    let (names, peers): (Vec<&str>, _) =
        (sizes.iter().map(|size| size.name).collect(), record.peers());
    let mut text = String::from("A pair is calloc, touch and free.\n");
    for touch in touches {
        for (title, cell) in VIEWS {
            let title = format!("{}: {title}", upper(touch.title()));
            text += &section(&title, "size", (&names, &peers), |size, peer| {
                cell(record, &format!("{size} {}", touch.name()), peer)
            });
        }
    }
    text
}

fn upper(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// One round has no spread.
fn time(record: &Record, case: &str, peer: &str) -> Option<String> {
    let ns = record.spread(case, peer, TIME)?;
    Some(match ns.rounds {
        1 => duration(ns.median),
        _ => format!(
            "{} ±{:.0}%",
            duration(ns.median),
            100.0 * (ns.half() / ns.median)
        ),
    })
}

fn faults(record: &Record, case: &str, peer: &str) -> Option<String> {
    let (minor, major) = (
        record.rounds(case, peer, MINOR),
        record.rounds(case, peer, MAJOR),
    );
    let sums = minor
        .iter()
        .zip(&major)
        .map(|((_, minor), (_, major))| minor + major);
    let sums: Vec<f64> = sums.collect();
    (!sums.is_empty()).then(|| number(quantile(&sums, 0.5)))
}

/// A figure of the accounts, or that it is unknown on this machine.
fn told(
    record: &Record,
    (case, peer, figure): (&str, &str, &str),
    text: fn(f64) -> String,
) -> Option<String> {
    let known = record
        .rounds(case, peer, figure)
        .last()
        .map(|(_, value)| text(*value));
    known.or_else(|| record.text(case, peer, figure).map(str::to_string))
}

fn bytes(bytes: f64) -> String {
    let (kib, mib) = (bytes / 1_024.0, bytes / 1_048_576.0);
    match bytes {
        0.0 => "0".into(),
        _ if mib.fract() == 0.0 => format!("{mib} MiB"),
        _ if mib < 10.0 => format!("{} KiB", three_digits(kib)),
        _ => format!("{} MiB", three_digits(mib)),
    }
}

fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

/// Nanoseconds per pair against the size: a panel a pattern, a line an allocator.
pub fn picture(record: &Record) -> String {
    let ((sizes, touches), peers) = (axes(record), record.peers());
    let points = |touch: Touch, peer: &str| -> Vec<Point> {
        let point = |size: &&Size| {
            let ns = record.median(&format!("{} {}", size.name, touch.name()), peer, TIME)?;
            Some(Point::at(size.bytes as f64, ns))
        };
        sizes.iter().filter_map(point).collect()
    };
    let times = || {
        touches
            .iter()
            .flat_map(|touch| peers.iter().flat_map(|peer| points(*touch, peer)))
    };
    let y = Axis::decades(times().map(|point| point.y), |ns| {
        duration(ns).replace(".00", "").replace(".0", "")
    });
    let ends = (
        sizes.first().map_or(1, |s| s.bytes),
        sizes.last().map_or(2, |s| s.bytes),
    );
    let range = (ends.0 as f64, ends.1.max(2 * ends.0) as f64);
    let ticks = sizes
        .iter()
        .map(|size| (size.bytes as f64, size.name.to_string()))
        .collect();
    let x = Axis::logarithmic(range, ticks);
    let series = |touch, peer: &str| {
        let stroke = Stroke::of_peer(peer);
        Series::new(peer, stroke, Draw::Dotted, points(touch, peer))
    };
    let panel = |touch: &Touch| Panel {
        title: format!("calloc, {}, free: time of a pair", touch.title()),
        x: x.clone(),
        y: y.clone(),
        marks: vec![],
        series: peers.iter().map(|peer| series(*touch, peer)).collect(),
    };
    let panels: Vec<Panel> = touches.iter().map(panel).collect();
    svg(&[], Layout(2, (400.0, 300.0), (60.0, 70.0)), &panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calloc::tests::figures;

    fn record() -> Record {
        let mut record = Record::default();
        for (round, ns) in [(0, 2_000.0), (1, 3_000.0)] {
            record.push("1M none", "glibc", round, figures(ns));
        }
        record.push("10M all", "naive", 0, figures(5e6));
        record
    }

    #[test]
    fn figures_have_units() {
        assert_eq!([0.0, 65_536.0].map(bytes), ["0", "64.0 KiB"]);
        assert_eq!(
            [104_857_600.0, 11.5 * 1_048_576.0].map(bytes),
            ["100 MiB", "11.5 MiB"]
        );
        assert_eq!([25_600.0, 0.02].map(number), ["25600", "0.02"]);
    }

    #[test]
    fn the_tables_have_every_figure_of_every_pattern() {
        let text = tables(&record());
        for part in [
            "Nothing touched: time",
            "All pages touched: system calls",
            "2.50 µs ±10%",
            "5.00 ms │",
            "4.00 KiB",
            "1.25",
            "unknown",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn the_picture_has_a_panel_a_pattern_and_a_line_an_allocator() {
        let picture = picture(&record());
        assert_eq!(picture.matches("<polyline").count(), 4);
        assert_eq!(picture.matches("<circle").count(), 2);
        assert!(picture.contains("calloc, all pages touched, free"));
        assert!(!super::picture(&Record::default()).contains("NaN"));
    }
}
