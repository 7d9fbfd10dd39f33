//! The ledger over time, as stacked areas of SVG, and the numbers behind it for the page's script.
//! While the heap is unknown, only the kernel's and the page heap's counts are drawn, hatched.

use super::bands::{self, BANDS, Cut};
use super::known::{History, Moment};
use super::scale::{HEIGHT, Scale, Tick, WIDTH, nice};
use super::subject::Subject;
use crate::recording::format::{Event, Happening, Told};
use neap_shared::stats::Bytes;
use serde::Serialize;
use std::fmt::Write;

/// Most moments drawn. Of those that share a column, the largest is drawn.
const COLUMNS: usize = 500;

/// The picture.
#[derive(Debug)]
pub struct Timeline {
    /// One area per band, from the bottom up, while the heap is known.
    pub areas: Vec<Area>,
    /// The resident count, to be hatched under the areas; empty if everything is known.
    pub unknown: String,
    /// The resident count as a line: the kernel tells it at every moment.
    pub outline: String,
    /// Horizontal lines with labels.
    pub grid: Vec<Tick>,
    /// Marks on the time axis.
    pub times: Vec<Tick>,
    /// Purges.
    pub purges: Vec<Tick>,
    /// Data for the script.
    pub points: Points,
    /// The resident count at the peak.
    pub peak: u64,
}

/// A band's area.
#[derive(Debug)]
pub struct Area {
    /// The band.
    pub band: &'static bands::Band,
    /// The path's data attribute.
    pub path: String,
    /// Bytes at the peak, if known.
    pub at_peak: Option<u64>,
}

/// The data that the script shows.
#[derive(Debug, Serialize)]
pub struct Points {
    /// Positions in percent of the width.
    pub x: Vec<f64>,
    /// Times in seconds.
    pub t: Vec<f64>,
    /// Resident bytes of the whole process.
    pub rss: Vec<u64>,
    /// Bytes by band, while known.
    pub bands: Vec<Vec<Option<u64>>>,
    /// Slabs and large blocks by the page heap's count, while nothing else is known.
    pub taken: Vec<Option<u64>>,
    /// Index of the largest moment.
    pub peak: usize,
}

/// A moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    t_ms: u64,
    rss: u64,
    /// See [`Points::taken`].
    taken: Option<u64>,
    /// What the process told. Between two moments of the same stretch, everything is known.
    told: Option<(Cut, usize)>,
}

impl Point {
    fn cut(&self) -> Option<&Cut> {
        self.told.as_ref().map(|(cut, _)| cut)
    }

    fn stretch(&self) -> Option<usize> {
        self.told.map(|(_, stretch)| stretch)
    }
}

impl Timeline {
    /// Draws what is known of `subject`; `None` with fewer than two moments.
    pub fn of(subject: &Subject) -> Option<Self> {
        let points = columns(moments(&subject.history()));
        let (first, last) = (points.first()?.t_ms, points.last()?.t_ms);
        if first == last {
            return None;
        }
        let top = points.iter().map(|point| point.rss).max()?.max(1) as f64;
        let scale = Scale {
            first,
            last,
            top: nice(top),
        };
        let peak = (0..points.len()).max_by_key(|index| points[*index].rss)?;
        let outline = outline(&scale, &points);
        Some(Self {
            areas: areas(&scale, &points, peak),
            unknown: match is_known(&points) {
                true => String::new(),
                false => format!("M0 {HEIGHT}L{outline}L{WIDTH} {HEIGHT}Z"),
            },
            outline,
            grid: scale.grid(),
            times: scale.times(),
            purges: purges(&scale, subject),
            points: for_script(&scale, &points, peak),
            peak: points[peak].rss,
        })
    }
}

/// The process's figures, and the counts at moments when no figures hold.
fn moments(history: &History) -> Vec<Point> {
    let mut points = Vec::with_capacity(history.told.len());
    let (mut stretch, mut before) = (0, None);
    for (index, told) in history.told.iter().enumerate() {
        let is_joined = history.is_joined(index);
        points.extend(unknown(history, before, Some(told), is_joined));
        stretch += usize::from(!is_joined);
        let cut = Cut::of(told);
        points.push(Point {
            t_ms: told.at_ms,
            rss: cut.rss,
            taken: None,
            told: Some((cut, stretch)),
        });
        before = Some(told);
    }
    points.extend(unknown(history, before, None, false));
    points
}

/// The counts between two sets of figures, without the known moments. If the two are joined, only
/// those that stand out between them.
fn unknown(
    history: &History,
    before: Option<&Told>,
    after: Option<&Told>,
    is_joined: bool,
) -> Vec<Point> {
    let ends = before.into_iter().chain(after);
    let top = ends.map(|told| told.rss).max().unwrap_or(0);
    let least = match is_joined {
        true => top.saturating_add(top / 20),
        false => 0,
    };
    let point = |moment: &Moment| Point {
        t_ms: moment.t_ms,
        rss: moment.rss,
        taken: moment.spans.map(|spans| spans.taken()),
        told: None,
    };
    let between = history.between(before, after).iter();
    between
        .filter(|moment| moment.rss > least && history.at(moment).get().is_none())
        .map(point)
        .collect()
}

/// Whether the heap is known from the first moment to the last.
fn is_known(points: &[Point]) -> bool {
    let mut stretches = points.iter().map(Point::stretch);
    let first = stretches.next().flatten();
    first.is_some() && stretches.all(|stretch| stretch == first)
}

/// At most [`COLUMNS`] moments: of those that share a column, the one with the highest resident
/// count.
fn columns(points: Vec<Point>) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let (first, last) = (first.t_ms, last.t_ms);
    let span = (last - first).max(1) as f64;
    let column = |point: &Point| ((point.t_ms - first) as f64 / span * COLUMNS as f64) as usize;
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        match kept.last_mut() {
            Some(before) if column(before) == column(&point) => {
                if point.rss > before.rss {
                    *before = point;
                }
            }
            _ => kept.push(point),
        }
    }
    kept
}

/// Bands that are nonzero at some moment.
fn shown(points: &[Point]) -> Vec<usize> {
    let is_there = |index: &usize| {
        let mut cuts = points.iter().filter_map(Point::cut);
        cuts.any(|cut| cut.bytes[*index] > 0)
    };
    (0..BANDS).filter(is_there).collect()
}

fn areas(scale: &Scale, points: &[Point], peak: usize) -> Vec<Area> {
    let told: Vec<(&Point, &Cut)> = points
        .iter()
        .filter_map(|point| Some((point, point.cut()?)))
        .collect();
    let mut below = vec![0.0; told.len()];
    let mut areas = Vec::with_capacity(BANDS);
    for index in shown(points) {
        let above: Vec<f64> = (told.iter().zip(&below))
            .map(|((_, cut), below)| below + cut.bytes[index] as f64)
            .collect();
        let corners: Vec<Corner> = (told.iter().zip(&below).zip(&above))
            .map(|(((point, _), below), above)| (*point, *below, *above))
            .collect();
        let stretches = corners.chunk_by(|one, other| one.0.stretch() == other.0.stretch());
        areas.push(Area {
            band: &bands::ALL[index],
            path: stretches.map(|corners| path(scale, corners)).collect(),
            at_peak: points[peak].cut().map(|cut| cut.bytes[index]),
        });
        below = above;
    }
    areas
}

/// A moment, and a band's lower and upper edge there.
type Corner<'a> = (&'a Point, f64, f64);

/// Along the top, and back along the bottom. A single moment is drawn one column wide.
fn path(scale: &Scale, corners: &[Corner]) -> String {
    let there = corners
        .iter()
        .map(|(point, _, above)| (scale.x(point.t_ms), *above));
    let back = corners
        .iter()
        .rev()
        .map(|(point, below, _)| (scale.x(point.t_ms), *below));
    let mut outline: Vec<(f64, f64)> = there.chain(back).collect();
    if let [(x, above), (_, below)] = outline[..] {
        let (left, right) = (x - HALF_COLUMN, x + HALF_COLUMN);
        outline = vec![(left, above), (right, above), (right, below), (left, below)];
    }
    let mut path = String::new();
    for (index, (x, bytes)) in outline.into_iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        // Writing to a string does not fail.
        let _ = write!(path, "{letter}{x:.1} {:.1}", scale.y(bytes));
    }
    path.push('Z');
    path
}

/// Half a column's width, in the picture's units.
const HALF_COLUMN: f64 = WIDTH / COLUMNS as f64 / 2.0;

/// The points of a line along the resident count.
fn outline(scale: &Scale, points: &[Point]) -> String {
    let corner = |point: &Point| {
        let (x, y) = (scale.x(point.t_ms), scale.y(point.rss as f64));
        format!("{x:.1} {y:.1}")
    };
    points.iter().map(corner).collect::<Vec<_>>().join(" ")
}

fn purges(scale: &Scale, subject: &Subject) -> Vec<Tick> {
    let purge = |event: &&Event| match event.what {
        Happening::Purge { bytes } if bytes >= 1 << 20 => {
            let at = scale.x(event.t_ms);
            Some(Tick {
                at,
                percent: at / WIDTH * 100.0,
                text: format!("{} given back", Bytes(bytes)),
            })
        }
        _ => None,
    };
    subject
        .events
        .iter()
        .filter_map(purge)
        .take(COLUMNS)
        .collect()
}

fn for_script(scale: &Scale, points: &[Point], peak: usize) -> Points {
    let band = |index: usize| {
        let bytes = |point: &Point| point.cut().map(|cut| cut.bytes[index]);
        points.iter().map(bytes).collect()
    };
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    Points {
        x: points
            .iter()
            .map(|point| rounded(scale.x(point.t_ms) / WIDTH * 100.0))
            .collect(),
        t: points.iter().map(|point| point.t_ms as f64 / 1e3).collect(),
        rss: points.iter().map(|point| point.rss).collect(),
        bands: shown(points).into_iter().map(band).collect(),
        taken: points.iter().map(|point| point.taken).collect(),
        peak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::format::Sample;
    use crate::report::material::Material;

    fn samples(times: &[(u64, u64)]) -> Vec<Sample> {
        let sample = |(t_ms, rss): &(u64, u64)| Sample {
            t_ms: *t_ms,
            rss: *rss,
            ..Sample::default()
        };
        times.iter().map(sample).collect()
    }

    fn subject(samples: &[Sample]) -> Timeline {
        let material = Material::default();
        let mut subject = Subject::choose(&material);
        subject.samples = samples.iter().collect();
        Timeline::of(&subject).unwrap()
    }

    #[test]
    fn the_peak_survives_that_columns_are_shared() {
        let many: Vec<_> = (0..100_000_u64)
            .map(|time| (time, if time == 31_234 { 900 << 20 } else { 1 << 20 }))
            .collect();
        let samples = samples(&many);
        let timeline = subject(&samples);
        assert!(timeline.points.t.len() <= COLUMNS + 1);
        assert_eq!(timeline.points.rss[timeline.points.peak], 900 << 20);
        assert_eq!(timeline.points.t[timeline.points.peak], 31.234);
    }

    #[test]
    fn times_and_bytes_that_make_no_sense_are_survived() {
        let samples = samples(&[(0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)]);
        let timeline = subject(&samples);
        assert!(timeline.areas.iter().all(|area| !area.path.contains("NaN")));
    }

    #[test]
    fn what_is_not_known_is_hatched_and_has_no_bands() {
        use crate::recording::format::{Heap, Spans};
        let ledger = neap_shared::ledger::Ledger {
            requested: 1 << 20,
            resident: 1 << 20,
            ..Default::default()
        };
        let tick = |tick: u64| Sample {
            t_ms: tick * 100,
            rss: if tick < 10 { 2 << 20 } else { 90 << 20 },
            spans: Some(Spans {
                slabs: if tick < 10 { 1 << 20 } else { 88 << 20 },
                ..Spans::default()
            }),
            ..Sample::default()
        };
        let telling = |at: u64, age_ms| {
            let heap = Heap {
                age_ms,
                rss: 2 << 20,
                ledger,
                ..Heap::default()
            };
            tick(at).with(heap)
        };
        // Figures at every tick for a second, then never again.
        let samples: Vec<_> = (0..30_u64)
            .map(|at| telling(at, at.saturating_sub(9) * 100))
            .collect();
        let timeline = subject(&samples);
        let points = &timeline.points;
        let known = points.bands[0].iter().filter(|bytes| bytes.is_some());
        assert_eq!((known.count(), points.t.len()), (10, 30));
        assert_eq!(points.taken[20], Some(88 << 20));
        assert_eq!(points.rss[20], 90 << 20);
        assert!(!timeline.unknown.is_empty());
        assert_eq!(timeline.areas[0].at_peak, None);
        let told = subject(&samples[..10]);
        assert!(told.unknown.is_empty() && told.areas[0].at_peak.is_some());
    }

    #[test]
    fn axes_are_labelled() {
        let samples = samples(&[(0, 100 << 20), (10_000, 10 << 20)]);
        let timeline = subject(&samples);
        let texts: Vec<_> = timeline
            .times
            .iter()
            .map(|tick| tick.text.as_str())
            .collect();
        assert_eq!(texts, ["0 s", "5 s", "10 s"]);
        assert_eq!(timeline.grid[3].text, "112.0 MiB");
    }
}
