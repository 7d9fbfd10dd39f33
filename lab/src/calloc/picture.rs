//! The campaign as a picture: one panel per pattern, one line per allocator, both axes logarithmic.

use std::fmt::Write as _;

use super::cells::{self, Size};
use super::summary::Summary;
use super::tables::duration;
use crate::plot::COLOURS;
use crate::work::calloc::Touch;

const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
const PANEL: (f64, f64) = (400.0, 300.0);
const GAP: (f64, f64) = (70.0, 70.0);

/// The ranges of the axes: bytes, and nanoseconds.
struct Axes {
    bytes: (f64, f64),
    ns: (f64, f64),
}

/// A panel's upper left corner.
type Corner = (f64, f64);

/// An SVG document of nanoseconds per pair against the size.
pub fn svg(summary: &Summary) -> String {
    let touches = summary.touches();
    let rows = touches.len().div_ceil(2);
    let width = LEFT + 2.0 * (PANEL.0 + GAP.0);
    let height = TOP + rows as f64 * (PANEL.1 + GAP.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    legend(&mut out, summary);
    if let Some(axes) = Axes::of(summary) {
        for (place, &touch) in touches.iter().enumerate() {
            let column = (place % 2) as f64;
            let row = (place / 2) as f64;
            let corner = (
                LEFT + column * (PANEL.0 + GAP.0),
                TOP + row * (PANEL.1 + GAP.1),
            );
            panel(&mut out, summary, touch, &axes, corner);
        }
    }
    out.push_str("</svg>\n");
    out
}

impl Axes {
    /// `None` without a measured time.
    fn of(summary: &Summary) -> Option<Axes> {
        let (sizes, peers) = (summary.sizes(), summary.peers());
        let mut times = Vec::new();
        for touch in summary.touches() {
            for size in &sizes {
                let ns = |peer: &&str| summary.cell(size.name, touch, peer).ns;
                times.extend(peers.iter().filter_map(ns).map(|ns| ns.value));
            }
        }
        let least = times.iter().copied().reduce(f64::min)?;
        let most = times.iter().copied().reduce(f64::max)?;
        let bytes = (sizes.first()?.bytes as f64, sizes.last()?.bytes as f64);
        // Whole decades, and at least one.
        let ns = (
            10f64.powf(least.log10().floor()),
            10f64.powf(most.log10().floor() + 1.0),
        );
        Some(Axes {
            bytes: (bytes.0, bytes.1.max(2.0 * bytes.0)),
            ns,
        })
    }

    fn x(&self, bytes: f64) -> f64 {
        PANEL.0 * share(bytes, self.bytes)
    }

    /// Distance from the top.
    fn y(&self, ns: f64) -> f64 {
        PANEL.1 * (1.0 - share(ns, self.ns))
    }
}

/// The position of a value within a range, 0 to 1, by its logarithm.
fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    (value / low).ln() / (high / low).ln()
}

/// Okabe and Ito's colours; dashed for the second allocator with the same colour.
fn stroke(peer: &str) -> String {
    let place = cells::contenders()
        .position(|known| known == peer)
        .unwrap_or(0);
    let dashes = if place < COLOURS.len() {
        ""
    } else {
        " stroke-dasharray=\"5 3\""
    };
    format!("stroke=\"{}\"{dashes}", COLOURS[place % COLOURS.len()])
}

fn push(out: &mut String, element: std::fmt::Arguments) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{element}");
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    push(
        out,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"),
    );
}

fn legend(out: &mut String, summary: &Summary) {
    for (place, peer) in summary.peers().into_iter().enumerate() {
        let x = LEFT + 82.0 * place as f64;
        let stroke = stroke(peer);
        push(
            out,
            format_args!("<path d=\"M{x:.1} 16h14\" {stroke} stroke-width=\"2\"/>"),
        );
        text(out, (x + 17.0, 20.0), "start", peer);
    }
}

fn panel(out: &mut String, summary: &Summary, touch: Touch, axes: &Axes, corner: Corner) {
    let (left, top) = corner;
    let title = format!("calloc, {}, free: time of a pair", touch.title());
    text(out, (left + PANEL.0 / 2.0, top - 8.0), "middle", &title);
    time_axis(out, axes, corner);
    size_axis(out, axes, &summary.sizes(), corner);
    // The first allocator of the legend is drawn last, on top.
    for peer in summary.peers().into_iter().rev() {
        line(out, summary, (touch, peer), axes, corner);
    }
}

fn time_axis(out: &mut String, axes: &Axes, (left, top): Corner) {
    let mut ns = axes.ns.0;
    while ns <= axes.ns.1 * 1.01 {
        let y = top + axes.y(ns);
        push(
            out,
            format_args!(
                "<path d=\"M{left:.1} {y:.1}h{}\" stroke=\"#ddd\"/>",
                PANEL.0
            ),
        );
        text(
            out,
            (left - 6.0, y + 4.0),
            "end",
            &duration(ns).replace(".00", "").replace(".0", ""),
        );
        ns *= 10.0;
    }
}

fn size_axis(out: &mut String, axes: &Axes, sizes: &[&Size], (left, top): Corner) {
    for size in sizes {
        let x = left + axes.x(size.bytes as f64);
        push(
            out,
            format_args!("<path d=\"M{x:.1} {top:.1}v{}\" stroke=\"#ddd\"/>", PANEL.1),
        );
        text(out, (x, top + PANEL.1 + 14.0), "middle", size.name);
    }
}

fn line(
    out: &mut String,
    summary: &Summary,
    (touch, peer): (Touch, &str),
    axes: &Axes,
    (left, top): Corner,
) {
    let point = |size: &&Size| {
        let ns = summary.cell(size.name, touch, peer).ns?.value;
        Some((left + axes.x(size.bytes as f64), top + axes.y(ns)))
    };
    let points: Vec<(f64, f64)> = summary.sizes().iter().filter_map(point).collect();
    let places: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let stroke = stroke(peer);
    push(
        out,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" {stroke} stroke-width=\"1.6\"/>",
            places.join(" ")
        ),
    );
    for (x, y) in points {
        push(
            out,
            format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"white\" {stroke}/>"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calloc::record::Record;
    use crate::calloc::record::tests::rows;

    #[test]
    fn the_picture_has_a_panel_a_pattern_and_a_line_an_allocator() {
        let mut all = Vec::new();
        for touch in [Touch::None, Touch::All] {
            for size in ["1M", "10M", "100M"] {
                all.extend(rows(size, touch, "glibc", &[2_000.0]));
                all.extend(rows(size, touch, "naive", &[40_000.0]));
            }
        }
        let record = Record {
            head: vec![],
            rows: all,
        };
        let picture = svg(&Summary::of(&record));
        assert_eq!(picture.matches("<polyline").count(), 4);
        assert_eq!(picture.matches("<circle").count(), 12);
        assert!(picture.contains("calloc, all pages touched, free"));
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    }

    #[test]
    fn axes_span_whole_decades_and_both_ends() {
        let record = Record {
            head: vec![],
            rows: rows("1M", Touch::None, "glibc", &[2_000.0]),
        };
        let axes = Axes::of(&Summary::of(&record)).unwrap();
        assert_eq!(axes.ns, (1e3, 1e4));
        assert_eq!((axes.y(1e4), axes.y(1e3)), (0.0, PANEL.1));
        assert_eq!(axes.x(1_048_576.0), 0.0);
        assert!(Axes::of(&Summary::of(&Record::default())).is_none());
    }
}
