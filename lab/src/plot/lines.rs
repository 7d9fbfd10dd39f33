//! Lines over two logarithmic axes: one per peer, with a whisker for the spread of its rounds.

use std::ops::RangeInclusive;

use super::{COLOURS, push, text};
use crate::peers;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 640.0;
const UPPER: f64 = 40.0;
const LOWER: f64 = 400.0;

/// One measured point; all numbers are above zero.
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The least and the most of the rounds.
    pub range: (f64, f64),
}

/// The points of one peer, sorted by `x`.
pub struct Line<'a> {
    pub peer: &'a str,
    pub points: Vec<Point>,
}

/// What to draw.
pub struct Picture<'a> {
    pub title: &'a str,
    /// The axes' titles.
    pub x: &'a str,
    pub y: &'a str,
    pub lines: Vec<Line<'a>>,
}

/// A logarithmic axis of whole decades.
struct Axis {
    decades: (i32, i32),
    from: f64,
    to: f64,
}

impl Axis {
    /// The fewest decades that hold all `values`, at least one.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let logs: Vec<f64> = values.map(f64::log10).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let decades = match low.is_finite() && high.is_finite() {
            true => (
                low.floor() as i32,
                (high.ceil() as i32).max(low.floor() as i32 + 1),
            ),
            false => (0, 1),
        };
        Axis { decades, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        self.from + (self.to - self.from) * (value.log10() - low) / (high - low)
    }

    fn ticks(&self) -> RangeInclusive<i32> {
        self.decades.0..=self.decades.1
    }
}

/// An SVG document.
pub fn svg(picture: &Picture) -> String {
    let points = || picture.lines.iter().flat_map(|line| &line.points);
    let x = Axis::over(points().map(|p| p.x), LEFT, RIGHT);
    let heights = points().flat_map(|p| [p.y, p.range.0, p.range.1]);
    let y = Axis::over(heights, LOWER, UPPER);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(
        &mut out,
        (LEFT + RIGHT) / 2.0,
        22.0,
        "middle",
        picture.title,
    );
    axes(&mut out, picture, &x, &y);
    for line in &picture.lines {
        curve(&mut out, line, &x, &y);
    }
    legend(&mut out, picture);
    out.push_str("</svg>\n");
    out
}

fn axes(out: &mut String, picture: &Picture, x: &Axis, y: &Axis) {
    for power in x.ticks() {
        let at = x.place(10_f64.powi(power));
        grid(out, format_args!("M{at:.1} {UPPER}V{LOWER}"));
        text(out, at, LOWER + 16.0, "middle", &decade(power));
    }
    for power in y.ticks() {
        let at = y.place(10_f64.powi(power));
        grid(out, format_args!("M{LEFT} {at:.1}H{RIGHT}"));
        text(out, LEFT - 6.0, at + 4.0, "end", &decade(power));
    }
    text(out, (LEFT + RIGHT) / 2.0, LOWER + 38.0, "middle", picture.x);
    text(out, LEFT, UPPER - 8.0, "middle", picture.y);
}

fn grid(out: &mut String, path: std::fmt::Arguments) {
    push(out, format_args!("<path d=\"{path}\" stroke=\"#ddd\"/>"));
}

fn decade(power: i32) -> String {
    let places = usize::try_from(-power).unwrap_or(0);
    format!("{:.places$}", 10_f64.powi(power))
}

fn colour(peer: &str) -> &'static str {
    let place = peers::ALL.iter().position(|p| p.name == peer);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}

fn curve(out: &mut String, line: &Line, x: &Axis, y: &Axis) {
    let colour = colour(line.peer);
    let corners: Vec<String> = line
        .points
        .iter()
        .map(|p| format!("{:.1},{:.1}", x.place(p.x), y.place(p.y)))
        .collect();
    push(
        out,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            corners.join(" ")
        ),
    );
    for point in &line.points {
        mark(out, point, colour, x, y);
    }
}

fn mark(out: &mut String, point: &Point, colour: &str, x: &Axis, y: &Axis) {
    let (at, low, high) = (
        x.place(point.x),
        y.place(point.range.0),
        y.place(point.range.1),
    );
    push(
        out,
        format_args!("<path d=\"M{at:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/>"),
    );
    let height = y.place(point.y);
    push(
        out,
        format_args!("<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
    );
}

fn legend(out: &mut String, picture: &Picture) {
    for (place, line) in picture.lines.iter().enumerate() {
        let y = UPPER + 10.0 + 18.0 * place as f64;
        let (x, colour) = (RIGHT + 18.0, colour(line.peer));
        push(
            out,
            format_args!(
                "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>",
                y - 5.0
            ),
        );
        text(out, x + 18.0, y, "start", line.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(lines: Vec<Line<'_>>) -> Picture<'_> {
        Picture {
            title: "title",
            x: "across",
            y: "up",
            lines,
        }
    }

    #[test]
    fn an_axis_spans_whole_decades_and_places_them_evenly() {
        let axis = Axis::over([2.0, 700.0].into_iter(), 0.0, 300.0);
        assert_eq!(axis.decades, (0, 3));
        assert!((axis.place(10.0) - 100.0).abs() < 1e-9);
        let one = Axis::over([1.0].into_iter(), 0.0, 10.0);
        assert_eq!(one.decades, (0, 1));
        assert_eq!(Axis::over(std::iter::empty(), 0.0, 1.0).decades, (0, 1));
    }

    #[test]
    fn decades_are_plain_numbers() {
        assert_eq!([-2, -1, 0, 3].map(decade), ["0.01", "0.1", "1", "1000"]);
    }

    #[test]
    fn a_picture_has_a_line_a_peer_and_a_dot_a_point() {
        let point = |x, y: f64| Point {
            x,
            y,
            range: (y / 2.0, y * 2.0),
        };
        let line = |peer, y| Line {
            peer,
            points: vec![point(1.0, y), point(100.0, y / 9.0)],
        };
        let out = svg(&picture(vec![line("neap", 300.0), line("glibc", 200.0)]));
        assert_eq!(out.matches("<polyline").count(), 2);
        assert_eq!(out.matches("<circle").count(), 4);
        assert!(out.starts_with("<svg") && out.ends_with("</svg>\n"));
        for words in [">glibc</text>", ">across</text>", ">1000</text>"] {
            assert!(out.contains(words), "no {words}");
        }
        assert!(!out.contains("NaN") && !svg(&picture(vec![])).contains("NaN"));
    }
}
