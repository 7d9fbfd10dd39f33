//! A chart as SVG: panels of lines or dots over two axes.

use std::fmt::{Arguments, Write as _};

use super::record::distinct;
use crate::peers;

/// Okabe and Ito's palette, distinguishable with every kind of colour vision.
const COLOURS: [&str; 9] = [
    "#000000", "#999999", "#0072b2", "#56b4e9", "#d55e00", "#009e73", "#f0e442", "#e69f00",
    "#cc79a7",
];
const GRID: &str = "#ddd";
const MARK: &str = "#888";
const LINE: f64 = 18.0;
/// Room for a panel's title above it, and for its ticks below it.
const AROUND: f64 = 48.0;

/// How a chart's panels lie: how many beside each other, a panel's width and height, the room for
/// names on the left and between two panels.
#[derive(Clone, Copy)]
pub struct Layout(pub usize, pub (f64, f64), pub (f64, f64));

/// A panel.
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// The axes.
    pub x: Axis,
    pub y: Axis,
    /// Vertical lines, with a word each.
    pub marks: Vec<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone)]
pub struct Axis {
    scale: Scale,
    range: (f64, f64),
    ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Axis {
    /// A logarithmic axis over `range`, with these ticks.
    pub fn logarithmic(range: (f64, f64), ticks: Vec<(f64, String)>) -> Axis {
        Axis {
            scale: Scale::Logarithmic,
            range,
            ticks,
        }
    }

    /// A logarithmic axis of the fewest whole decades that hold all `values`, at least one.
    pub fn decades(values: impl Iterator<Item = f64>, name: impl Fn(f64) -> String) -> Axis {
        let logs = || values.map(f64::log10).filter(|log| log.is_finite());
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        logs().for_each(|log| (low, high) = (low.min(log.floor()), high.max(log.ceil())));
        if !low.is_finite() {
            (low, high) = (0.0, 1.0);
        }
        let powers = low as i32..=(high as i32).max(low as i32 + 1);
        let (first, last) = (10_f64.powi(*powers.start()), 10_f64.powi(*powers.end()));
        let ticks = powers
            .map(|power| 10_f64.powi(power))
            .map(|at| (at, name(at)));
        Axis::logarithmic((first, last), ticks.collect())
    }

    /// A linear axis from 0 to `most`, with round ticks.
    pub fn linear(most: f64, name: impl Fn(f64) -> String) -> Axis {
        let step = round_step(most);
        let ticks = (0..)
            .map(|n| f64::from(n) * step)
            .take_while(|at| *at <= most);
        let ticks = ticks.map(|at| (at, name(at))).collect();
        Axis {
            scale: Scale::Linear,
            range: (0.0, most),
            ticks,
        }
    }

    /// An axis with a name a row, the first on top; the middle of row `n` is at `n + 0.5`.
    pub fn names<'a>(names: impl Iterator<Item = &'a str>) -> Axis {
        let ticks = names
            .enumerate()
            .map(|(row, name)| (row as f64 + 0.5, name.to_string()));
        let ticks: Vec<_> = ticks.collect();
        Axis {
            scale: Scale::Linear,
            range: (ticks.len().max(1) as f64, 0.0),
            ticks,
        }
    }

    /// The same axis without names at its ticks.
    pub fn unnamed(mut self) -> Axis {
        self.ticks.iter_mut().for_each(|(_, name)| name.clear());
        self
    }

    /// The position of a value, 0 to 1. What is beyond the range is at its end.
    fn share(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.ln(),
        };
        let (low, high) = (scaled(self.range.0), scaled(self.range.1));
        ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// A distance for four to eight ticks: 1, 2 or 5 times a power of ten.
fn round_step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let fits = |factor: &f64| power * factor * 4.0 <= most;
    power * [5.0, 2.0, 1.0].into_iter().find(fits).unwrap_or(1.0)
}

/// The points of one name.
pub struct Series {
    /// Its name in the legend; empty for none.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// What is drawn.
    pub draw: Draw,
    /// Its points, in order.
    pub points: Vec<Point>,
}

impl Series {
    /// A series.
    pub fn new(name: &str, stroke: Stroke, draw: Draw, points: Vec<Point>) -> Series {
        let name = name.to_string();
        Series {
            name,
            stroke,
            draw,
            points,
        }
    }
}

/// What is drawn of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// A line.
    Line,
    /// A line with a dot at each point.
    Dotted,
    /// A line over a filled area.
    Area,
    /// Dots only.
    Dots,
}

/// A colour, for a line that may be dashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stroke {
    pub colour: &'static str,
    pub is_dashed: bool,
}

impl Stroke {
    /// An unbroken line.
    pub const fn of(colour: &'static str) -> Stroke {
        Stroke {
            colour,
            is_dashed: false,
        }
    }

    /// An allocator's own; dashed for the second one of a colour.
    pub fn of_peer(name: &str) -> Stroke {
        let known = peers::all()
            .map(|peer| peer.name.as_str())
            // In the record of 21 November.
            .chain(["naive", "libmalloc-116"]);
        let place = known
            .into_iter()
            .position(|known| known == name)
            .unwrap_or(0);
        let is_dashed = place >= COLOURS.len();
        Stroke {
            colour: COLOURS[place % COLOURS.len()],
            is_dashed,
        }
    }

    fn attributes(self) -> String {
        let dashes = if self.is_dashed {
            " stroke-dasharray=\"5 3\""
        } else {
            ""
        };
        format!("stroke=\"{}\"{dashes}", self.colour)
    }
}

/// A point, with its spread on either axis.
#[derive(Clone, Copy, Default)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// From where to where it spreads.
    pub x_spread: Option<(f64, f64)>,
    pub y_spread: Option<(f64, f64)>,
    /// Drawn as a circle.
    pub is_hollow: bool,
}

impl Point {
    /// A point without a spread.
    pub fn at(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            ..Point::default()
        }
    }
}

/// A chart as an SVG document. `title` says what it shows, a line each.
pub fn svg(title: &[&str], Layout(across, size, left): Layout, panels: &[Panel]) -> String {
    let across = across.min(panels.len()).max(1);
    let rows = panels.len().div_ceil(across);
    let top = LINE * (title.len() + 2) as f64;
    let width = left.0 + across as f64 * (size.0 + left.1);
    let height = top + rows as f64 * (size.1 + AROUND);
    let mut out = Svg::new((width, height));
    for (place, line) in title.iter().enumerate() {
        out.words((left.0, LINE * (place + 1) as f64), "start", line);
    }
    legend(&mut out, panels, (left.0, LINE * (title.len() + 1) as f64));
    for (place, panel) in panels.iter().enumerate() {
        let left = left.0 + (place % across) as f64 * (size.0 + left.1);
        let bottom = (place / across + 1) as f64 * (size.1 + AROUND) - LINE;
        let (out, corner) = (&mut out, (left, top + bottom));
        Drawing {
            out,
            panel,
            corner,
            size,
        }
        .draw();
    }
    out.finish()
}

/// Every name once, from `x` on.
fn legend(out: &mut Svg, panels: &[Panel], (mut x, y): (f64, f64)) {
    let series = panels.iter().flat_map(|panel| &panel.series);
    let named = series.filter(|series| !series.name.is_empty());
    for (name, stroke) in distinct(named.map(|series| (&series.name, series.stroke))) {
        let (stroke, at) = (stroke.attributes(), y - 4.0);
        out.push(format_args!(
            "<path d=\"M{x:.1} {at:.1}h14\" {stroke} stroke-width=\"3\"/>"
        ));
        out.words((x + 18.0, y), "start", name);
        x += 34.0 + 6.5 * name.len() as f64;
    }
}

/// A panel on its page, at its lower left corner.
struct Drawing<'a> {
    out: &'a mut Svg,
    panel: &'a Panel,
    corner: (f64, f64),
    size: (f64, f64),
}

impl Drawing<'_> {
    fn x(&self, value: f64) -> f64 {
        self.corner.0 + self.size.0 * self.panel.x.share(value)
    }

    fn y(&self, value: f64) -> f64 {
        self.corner.1 - self.size.1 * self.panel.y.share(value)
    }

    fn draw(mut self) {
        let ((left, bottom), (width, height)) = (self.corner, self.size);
        let top = bottom - height;
        self.out
            .words((left, top - 16.0), "start", &self.panel.title);
        for (at, name) in &self.panel.x.ticks {
            let x = self.x(*at);
            self.out
                .line(format_args!("M{x:.1} {top:.1}V{bottom:.1}"), GRID);
            self.out.words((x, bottom + 14.0), "middle", name);
        }
        for (at, name) in &self.panel.y.ticks {
            let y = self.y(*at);
            self.out
                .line(format_args!("M{left:.1} {y:.1}h{width:.1}"), GRID);
            self.out.words((left - 6.0, y + 4.0), "end", name);
        }
        for (at, word) in &self.panel.marks {
            let x = self.x(*at);
            self.out
                .line(format_args!("M{x:.1} {top:.1}V{bottom:.1}"), MARK);
            self.out.words((x, top - 3.0), "middle", word);
        }
        // The first of the legend is drawn last, on top.
        for series in self.panel.series.iter().rev() {
            self.series(series);
        }
    }

    fn series(&mut self, series: &Series) {
        let (colour, stroke) = (series.stroke.colour, series.stroke.attributes());
        let place = |point: &Point| format!("{:.1},{:.1}", self.x(point.x), self.y(point.y));
        let places: Vec<String> = series.points.iter().map(place).collect();
        let places = places.join(" ");
        if let (Draw::Area, [first, .., last]) = (series.draw, &series.points[..]) {
            let (from, to, low) = (self.x(first.x), self.x(last.x), self.corner.1);
            self.out.push(format_args!(
                "<polygon points=\"{from:.1},{low:.1} {places} {to:.1},{low:.1}\" \
                 fill=\"{colour}\" fill-opacity=\"0.18\"/>"
            ));
        }
        if series.draw != Draw::Dots {
            self.out.push(format_args!(
                "<polyline points=\"{places}\" fill=\"none\" {stroke} stroke-width=\"1.6\"/>"
            ));
        }
        if matches!(series.draw, Draw::Dots | Draw::Dotted) {
            series
                .points
                .iter()
                .for_each(|point| self.dot(point, series.stroke));
        }
    }

    fn dot(&mut self, point: &Point, stroke: Stroke) {
        let (x, y, colour) = (self.x(point.x), self.y(point.y), stroke.colour);
        if let Some((low, high)) = point.x_spread {
            let (from, to) = (self.x(low), self.x(high));
            self.out
                .line(format_args!("M{from:.1} {y:.1}H{to:.1}"), colour);
        }
        if let Some((low, high)) = point.y_spread {
            let (from, to) = (self.y(low), self.y(high));
            self.out
                .line(format_args!("M{x:.1} {from:.1}V{to:.1}"), colour);
        }
        let fill = if point.is_hollow { "white" } else { colour };
        self.out.push(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\" stroke=\"{colour}\"/>"
        ));
    }
}

/// A document in the making.
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty page of that size.
    pub fn new((width, height): (f64, f64)) -> Svg {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        Svg { text }
    }

    /// Adds an element.
    pub fn push(&mut self, element: Arguments) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{element}");
    }

    /// Adds words at a position; `anchor` is SVG's.
    pub fn words(&mut self, (x, y): (f64, f64), anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// Adds a line along SVG's `path`.
    pub fn line(&mut self, path: Arguments, stroke: &str) {
        self.push(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\"/>"
        ));
    }

    /// The finished document.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn decades_are_whole_and_evenly_placed() {
        let axis = Axis::decades([2.0, 700.0].into_iter(), |at| at.to_string());
        assert_eq!(axis.range, (1.0, 1_000.0));
        assert!(near(axis.share(10.0), 1.0 / 3.0));
        assert_eq!(axis.ticks.len(), 4);
        for values in [vec![1.0], vec![], vec![0.0]] {
            let axis = Axis::decades(values.into_iter(), |at| at.to_string());
            assert_eq!(axis.range, (1.0, 10.0));
        }
    }

    #[test]
    fn ticks_are_round_and_rows_go_down_and_the_edges_hold() {
        assert_eq!(
            [round_step(360.0), round_step(12.0), round_step(4.2)],
            [50.0, 2.0, 1.0]
        );
        let rows = Axis::names(["a", "b"].into_iter());
        assert_eq!((rows.share(0.5), rows.share(1.5)), (0.75, 0.25));
        let axis = Axis::linear(10.0, |at| at.to_string());
        assert_eq!(
            [-1.0, 0.0, 5.0, 10.0, 99.0].map(|v| axis.share(v)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
        let ratios = Axis::logarithmic((0.25, 8.0), vec![]);
        assert_eq!((ratios.share(0.01), ratios.share(1_000.0)), (0.0, 1.0));
    }

    fn plot(draw: Draw, names: &[&str]) -> String {
        let points = vec![Point::at(1.0, 300.0), Point::at(100.0, 20.0)];
        let series = |name: &&str| Series::new(name, Stroke::of_peer(name), draw, points.clone());
        let axis = || Axis::decades([1.0, 300.0].into_iter(), |at| at.to_string());
        let panel = |title: &str| Panel {
            title: title.into(),
            x: axis(),
            y: axis(),
            marks: vec![(10.0, "here".into())],
            series: names.iter().map(series).collect(),
        };
        svg(&["title"], LAYOUT, &["one", "two", "three"].map(panel))
    }

    const LAYOUT: Layout = Layout(2, (400.0, 300.0), (60.0, 40.0));

    #[test]
    fn a_chart_has_a_line_a_series_and_panel_and_every_name_once() {
        let out = plot(Draw::Dotted, &["neap", "glibc"]);
        assert_eq!(out.matches("<polyline").count(), 2 * 3);
        assert_eq!(out.matches("<circle").count(), 2 * 2 * 3);
        for words in [
            ">glibc</text>",
            ">title</text>",
            ">three</text>",
            ">1000</text>",
            ">here</text>",
        ] {
            assert!(out.contains(words), "no {words}");
        }
        assert_eq!(out.matches(">neap</text>").count(), 1);
        assert!(out.starts_with("<svg") && out.ends_with("</svg>\n") && !out.contains("NaN"));
    }

    #[test]
    fn areas_and_dots_are_drawn_as_such_and_nothing_is_a_chart_too() {
        let areas = plot(Draw::Area, &["neap"]);
        assert_eq!(areas.matches("<polygon").count(), 3);
        let dots = plot(Draw::Dots, &["naive"]);
        assert_eq!(
            (
                dots.matches("<polyline").count(),
                dots.matches("<circle").count()
            ),
            (0, 6)
        );
        assert!(
            dots.contains("stroke-dasharray"),
            "naive has the colour of neap"
        );
        let nothing = svg(&[], LAYOUT, &[]);
        assert!(nothing.ends_with("</svg>\n") && !nothing.contains("NaN"));
    }
}
