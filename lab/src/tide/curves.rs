//! The resident size over time: one panel per engine, with the steps marked and live memory dashed.

use super::record::Record;
use super::steps::{Run, Step};
use crate::plot::{push, text};
use crate::work::tide::thousands;

const ACROSS: usize = 4;
const LEFT: f64 = 56.0;
const TOP: f64 = 78.0;
/// The size of a panel, and the distance to the next.
const PANEL: (f64, f64) = (210.0, 130.0);
const GAP: (f64, f64) = (22.0, 58.0);
const CURVE: &str = "#0072b2";
const OURS: &str = "#009e73";

/// The scales that all panels share.
struct Scales {
    seconds: f64,
    mib: f64,
}

/// The lower left corner of a panel.
#[derive(Clone, Copy)]
struct Corner {
    x: f64,
    y: f64,
}

impl Scales {
    fn of(record: &Record, engines: &[&str]) -> Scales {
        let mut scales = Scales {
            seconds: 1.0,
            mib: 1.0,
        };
        for engine in engines {
            for sample in record.samples(engine, Run::Waited) {
                scales.seconds = scales.seconds.max(sample.ms as f64 / 1e3);
                scales.mib = scales.mib.max(sample.kib as f64 / 1_024.0);
            }
        }
        scales.mib *= 1.06;
        scales
    }

    fn x(&self, corner: Corner, ms: u64) -> f64 {
        corner.x + PANEL.0 * (ms as f64 / 1e3 / self.seconds).min(1.0)
    }

    fn y(&self, corner: Corner, kib: u64) -> f64 {
        corner.y - PANEL.1 * (kib as f64 / 1_024.0 / self.mib).min(1.0)
    }
}

/// A distance for four to eight ticks: 1, 2 or 5 times a power of ten.
fn tick(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let fits = |factor: &f64| power * factor * 4.0 <= most;
    let factor = [5.0, 2.0, 1.0].into_iter().find(fits).unwrap_or(1.0);
    power * factor
}

/// An SVG document.
pub fn svg(record: &Record) -> String {
    let engines = record.engines(Run::Waited);
    let scales = Scales::of(record, &engines);
    let rows = engines.len().div_ceil(ACROSS).max(1);
    let columns = engines.len().clamp(3, ACROSS);
    let width = LEFT + columns as f64 * (PANEL.0 + GAP.0);
    let height = TOP + rows as f64 * (PANEL.1 + GAP.1) - 14.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    head(&mut out, record);
    for (place, engine) in engines.iter().enumerate() {
        let corner = Corner {
            x: LEFT + (place % ACROSS) as f64 * (PANEL.0 + GAP.0),
            y: TOP + (place / ACROSS) as f64 * (PANEL.1 + GAP.1) + PANEL.1,
        };
        panel(&mut out, record, engine, &scales, corner);
    }
    out.push_str("</svg>\n");
    out
}

fn head(out: &mut String, record: &Record) {
    let said = |key| record.said(key).unwrap_or("?");
    let (heap, count, wait) = (said("heap MB"), said("coroutines"), said("wait ms"));
    text(
        out,
        LEFT,
        18.0,
        "start",
        "RSS in MB over seconds; dashed: what the program needs",
    );
    let steps = format!(
        "1: allocated {heap} MB and dropped them · 2: created {} coroutines · 3: closed · 4: as 1 · \
         5: as 2 · after each {wait} ms of nothing",
        count.parse().map_or(count.to_string(), thousands)
    );
    text(out, LEFT, 36.0, "start", &steps);
}

fn panel(out: &mut String, record: &Record, engine: &str, scales: &Scales, corner: Corner) {
    grid(out, scales, corner);
    marks(out, record, engine, scales, corner);
    curve(out, record, engine, scales, corner);
    live(out, record, engine, scales, corner);
    push(
        out,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"bold\">{engine}</text>",
            corner.x,
            corner.y - PANEL.1 - 17.0
        ),
    );
}

fn grid(out: &mut String, scales: &Scales, corner: Corner) {
    let (right, top) = (corner.x + PANEL.0, corner.y - PANEL.1);
    let each = |step: f64, most: f64| {
        (0..)
            .map(move |n| f64::from(n) * step)
            .take_while(move |v| *v <= most)
    };
    for mib in each(tick(scales.mib), scales.mib) {
        let y = scales.y(corner, (mib * 1_024.0) as u64);
        line(
            out,
            format_args!("M{:.1} {y:.1}H{right:.1}", corner.x),
            "#ddd",
        );
        if corner.x == LEFT {
            text(out, corner.x - 6.0, y + 4.0, "end", &mib.to_string());
        }
    }
    for seconds in each(tick(scales.seconds), scales.seconds) {
        let x = scales.x(corner, (seconds * 1e3) as u64);
        let tick = format_args!("M{x:.1} {:.1}v4", corner.y);
        line(out, tick, "#999");
        text(out, x, corner.y + 15.0, "middle", &seconds.to_string());
    }
    line(
        out,
        format_args!("M{:.1} {:.1}H{right:.1}V{top:.1}", corner.x, corner.y),
        "#ddd",
    );
}

fn line(out: &mut String, path: std::fmt::Arguments, stroke: &str) {
    push(
        out,
        format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\"/>"),
    );
}

/// A line and a number at the beginning of each step.
fn marks(out: &mut String, record: &Record, engine: &str, scales: &Scales, corner: Corner) {
    for (number, step) in Step::ALL.into_iter().enumerate().skip(1) {
        let Some(seen) = record.step(engine, Run::Waited, step) else {
            continue;
        };
        let x = scales.x(corner, seen.ms.0);
        let top = corner.y - PANEL.1;
        line(
            out,
            format_args!("M{x:.1} {top:.1}V{:.1}", corner.y),
            "#bbb",
        );
        text(out, x, top - 3.0, "middle", &number.to_string());
    }
}

fn curve(out: &mut String, record: &Record, engine: &str, scales: &Scales, corner: Corner) {
    let samples = record.samples(engine, Run::Waited);
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return;
    };
    let points: Vec<String> = samples
        .iter()
        .map(|s| {
            format!(
                "{:.1},{:.1}",
                scales.x(corner, s.ms),
                scales.y(corner, s.kib)
            )
        })
        .collect();
    let (points, colour) = (points.join(" "), colour(engine));
    let (from, to) = (scales.x(corner, first.ms), scales.x(corner, last.ms));
    push(
        out,
        format_args!(
            "<polygon points=\"{from:.1},{y:.1} {points} {to:.1},{y:.1}\" fill=\"{colour}\" \
             fill-opacity=\"0.18\"/>\n<polyline points=\"{points}\" fill=\"none\" \
             stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>",
            y = corner.y
        ),
    );
}

fn colour(engine: &str) -> &'static str {
    match engine.starts_with("neap") {
        true => OURS,
        false => CURVE,
    }
}

/// What the process began with plus what is live, from the end of each step to the next.
fn live(out: &mut String, record: &Record, engine: &str, scales: &Scales, corner: Corner) {
    let seen: Vec<_> = Step::ALL
        .iter()
        .filter_map(|step| record.step(engine, Run::Waited, *step))
        .collect();
    let Some(base) = seen.first().map(|start| start.rss) else {
        return;
    };
    let mut path = String::new();
    let end = record.samples(engine, Run::Waited).last().map(|s| s.ms);
    for (place, step) in seen.iter().enumerate() {
        let next = seen.get(place + 1).map(|next| next.ms.1);
        let until = next.or(end).unwrap_or(step.ms.1).max(step.ms.1);
        let y = scales.y(corner, base + step.done.live_kib);
        let from = scales.x(corner, step.ms.1);
        let letter = if place == 0 { 'M' } else { 'L' };
        path += &format!("{letter}{from:.1} {y:.1}H{:.1}", scales.x(corner, until));
    }
    push(
        out,
        format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"#222\" stroke-dasharray=\"3 3\"/>"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::example;
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!([tick(360.0), tick(12.0), tick(4.2)], [50.0, 2.0, 1.0]);
    }

    #[test]
    fn a_panel_an_engine_with_its_marks() {
        let out = svg(&example());
        assert_eq!(out.matches("<polyline").count(), 2);
        assert_eq!(out.matches("stroke-dasharray").count(), 2);
        for words in [
            ">go</text>",
            ">neap</text>",
            ">5</text>",
            "allocated 100 MB",
        ] {
            assert!(out.contains(words), "no {words}");
        }
        assert!(out.starts_with("<svg") && out.ends_with("</svg>\n"));
        let empty = svg(&Record::default());
        assert!(!out.contains("NaN") && !empty.contains("NaN") && !empty.contains("inf"));
    }
}
