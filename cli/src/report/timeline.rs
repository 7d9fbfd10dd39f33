//! The ledger over time, as stacked areas of SVG between two axes, and the numbers behind it for
//! the page's script. While the heap is unknown, only the kernel's and the page heap's counts are
//! drawn, hatched.

use super::known::{History, Moment, Split};
use super::subject::Subject;
use crate::recording::format::{Event, Happening, Told};
use neap_shared::ledger::Ledger;
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
    /// The moment of the table's figures.
    pub moment: String,
    /// The resident count then.
    pub rss: u64,
}

/// A band's area.
#[derive(Debug)]
pub struct Area {
    /// The band.
    pub band: &'static Band,
    /// The path's data attribute.
    pub path: String,
    /// Bytes at the moment of the table.
    pub bytes: u64,
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
        let history = subject.history();
        let points = columns(moments(&history));
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
        let split = history.peak()?.split;
        let cut = split.map_or_else(Cut::default, |split| Cut::of(&split.told()));
        Some(Self {
            areas: areas(&scale, &points, &cut),
            unknown: if is_known(&points) {
                String::new()
            } else {
                format!("M0 {HEIGHT}L{outline}L{WIDTH} {HEIGHT}Z")
            },
            outline,
            grid: scale.grid(),
            times: scale.times(),
            purges: purges(&scale, subject),
            points: for_script(&scale, &points, peak),
            moment: split.map_or("at the peak".to_owned(), Split::head),
            rss: split.map_or(points[peak].rss, |_| cut.rss),
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
    let least = if is_joined {
        top.saturating_add(top / 20)
    } else {
        0
    };
    let point = |moment: &Moment| Point {
        t_ms: moment.t_ms,
        rss: moment.rss,
        taken: moment.spans.map(|spans| spans.taken()),
        told: None,
    };
    let between = history.between(before, after).iter();
    between
        .filter(|moment| moment.rss > least && history.at(moment).is_none())
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
    (0..BAND_COUNT).filter(is_there).collect()
}

fn areas(scale: &Scale, points: &[Point], at: &Cut) -> Vec<Area> {
    let told = points.iter();
    let told = told.filter_map(|point| Some((point, point.cut()?)));
    let told: Vec<(&Point, &Cut)> = told.collect();
    let mut below = vec![0.0; told.len()];
    let mut areas = Vec::with_capacity(BAND_COUNT);
    for index in shown(points) {
        let above: Vec<f64> = (told.iter().zip(&below))
            .map(|((_, cut), below)| below + cut.bytes[index] as f64)
            .collect();
        let corners: Vec<Corner> = (told.iter().zip(&below).zip(&above))
            .map(|(((point, _), below), above)| (*point, *below, *above))
            .collect();
        let stretches = corners.chunk_by(|one, other| one.0.stretch() == other.0.stretch());
        areas.push(Area {
            band: &BANDS[index],
            path: stretches.map(|corners| path(scale, corners)).collect(),
            bytes: at.bytes[index],
        });
        below = above;
    }
    areas
}

/// A moment, and a band's lower and upper edge there.
type Corner<'a> = (&'a Point, f64, f64);

/// Along the top, and back along the bottom. A single moment is drawn one column wide.
fn path(scale: &Scale, corners: &[Corner]) -> String {
    let (there, back) = (corners.iter(), corners.iter().rev());
    let there = there.map(|(point, _, above)| (scale.x(point.t_ms), *above));
    let back = back.map(|(point, below, _)| (scale.x(point.t_ms), *below));
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
    let events = subject.events.iter();
    events.filter_map(purge).take(COLUMNS).collect()
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

/// How many bands there are.
const BAND_COUNT: usize = 9;
/// Resident memory outside the heap.
const REST: usize = 8;

/// A band's name, CSS colour and meaning.
#[derive(Debug)]
pub struct Band {
    /// Also the class of its elements on the page.
    pub key: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// One sentence without its full stop.
    pub meaning: &'static str,
}

/// From the bottom up.
#[rustfmt::skip]
const BANDS: [Band; BAND_COUNT] = [
    band("used", "In use", "blocks that the program holds and has touched"),
    band("rounding", "Rounding", "what size classes add to what was asked for"),
    band("slabs", "Free in slabs", "free blocks, and ends where none fits, between blocks in use"),
    band("magazines", "Magazines", "free blocks that threads keep at hand"),
    band("free", "Free pages", "free memory that was used before and is not yet given back"),
    band("huge", "Huge-page excess", "free memory that is resident because a huge page brought it"),
    band("stacks", "Coroutine stacks", "in use, idle, and what else is in their spans"),
    band("own", "Neap's own", "tables and caches, and pages around sampled blocks"),
    band("rest", "Not the heap", "code, files, thread stacks, the program's own mappings"),
];

const fn band(key: &'static str, name: &'static str, meaning: &'static str) -> Band {
    Band { key, name, meaning }
}

/// The bands at the time of one set of figures, in bytes, and the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// In the order of [`BANDS`].
    pub bytes: [u64; BAND_COUNT],
    /// Resident bytes of the whole process.
    pub rss: u64,
}

impl Cut {
    /// Divides the process as it was at the time of the figures. The kernel counts at a slightly
    /// different time. If the heap's figures exceed its count, the whole becomes larger.
    pub fn of(told: &Told) -> Self {
        let mut bytes = heap_bands(&told.heap.ledger);
        let heap = sum(&bytes);
        bytes[REST] = told.rss.saturating_sub(heap);
        Self {
            bytes,
            rss: told.rss.max(heap),
        }
    }
}

/// Their sum.
pub fn sum(parts: &[u64]) -> u64 {
    (parts.iter()).fold(0, |sum: u64, part| sum.saturating_add(*part))
}

fn heap_bands(ledger: &Ledger) -> [u64; BAND_COUNT] {
    let touched = sum(&[ledger.requested, ledger.rounding])
        .saturating_sub(sum(&[ledger.untouched, ledger.swapped]));
    let rounding = ledger.rounding.min(touched);
    [
        touched - rounding,
        rounding,
        sum(&[ledger.tails, ledger.slab_free]),
        sum(&[ledger.magazines, ledger.quarantine]),
        ledger.free_dirty,
        ledger.huge_excess,
        sum(&[ledger.stacks_used, ledger.stacks_idle, ledger.stacks_free]),
        sum(&[ledger.metadata, ledger.sampling]),
        0,
    ]
}

/// In the picture's own units.
pub const WIDTH: f64 = 1000.0;
/// See [`WIDTH`].
pub const HEIGHT: f64 = 300.0;
/// A labelled position on an axis.
#[derive(Debug)]
pub struct Tick {
    /// In the picture's units.
    pub at: f64,
    /// The same in percent of the axis.
    pub percent: f64,
    /// Its label.
    pub text: String,
}

/// From times and bytes to places in the picture.
pub struct Scale {
    /// The first moment, in ms.
    pub first: u64,
    /// The last moment, in ms.
    pub last: u64,
    /// The bytes at the top.
    pub top: f64,
}

impl Scale {
    /// The place of a moment.
    pub fn x(&self, time: u64) -> f64 {
        let span = (self.last - self.first) as f64;
        (time.saturating_sub(self.first) as f64 / span).min(1.0) * WIDTH
    }

    /// The height of a number of bytes.
    pub fn y(&self, bytes: f64) -> f64 {
        HEIGHT - (bytes / self.top).clamp(0.0, 1.0) * HEIGHT
    }

    /// Horizontal lines with labels.
    pub fn grid(&self) -> Vec<Tick> {
        let line = |part: u32| {
            let bytes = self.top * f64::from(part) / 4.0;
            let at = self.y(bytes);
            Tick {
                at,
                percent: at / HEIGHT * 100.0,
                text: Bytes(bytes as u64).to_string(),
            }
        };
        (1..=4).map(line).collect()
    }

    /// Marks on the time axis.
    pub fn times(&self) -> Vec<Tick> {
        let (first, last) = (self.first as f64 / 1e3, self.last as f64 / 1e3);
        let step = step((last - first) / 4.0);
        let begin = (first / step).ceil();
        let mark = |index: i32| {
            let time = (begin + f64::from(index)) * step;
            let share = (time - first) / (last - first);
            (share <= 1.0).then(|| Tick {
                at: share * WIDTH,
                percent: share * 100.0,
                text: seconds(time, step),
            })
        };
        (0..8).map_while(mark).collect()
    }
}

fn seconds(time: f64, step: f64) -> String {
    match step {
        ..0.01 => format!("{time:.3} s"),
        ..1.0 => format!("{time:.2} s"),
        _ => format!("{time:.0} s"),
    }
}

/// The least of 1, 2 or 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-3).log10().floor());
    let mut factors = [1.0, 2.0, 5.0].into_iter();
    let factor = factors.find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// The least of 1, 1.25, 1.5 or 1.75 times a power of two that is at least `bytes`.
pub fn nice(bytes: f64) -> f64 {
    let power = 2f64.powf(bytes.log2().floor());
    let mut factors = [1.0, 1.25, 1.5, 1.75].into_iter();
    let factor = factors.find(|factor| factor * power >= bytes);
    factor.unwrap_or(2.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::format::{Heap, Sample};
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
        assert_eq!(timeline.areas[0].bytes, 1 << 20);
        assert!(
            timeline.moment.starts_with("Nearest known"),
            "{}",
            timeline.moment
        );
        let told = subject(&samples[..10]);
        assert!(told.unknown.is_empty() && told.moment.starts_with("Near the peak"));
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

    fn cut(rss: u64, ledger: Ledger) -> Cut {
        let heap = Heap {
            ledger,
            ..Heap::default()
        };
        Cut::of(&Told {
            at_ms: 0,
            until_ms: 0,
            rss,
            heap: &heap,
        })
    }

    #[test]
    fn bands_add_up_to_the_process() {
        let mut ledger = Ledger {
            requested: 1000,
            rounding: 100,
            untouched: 300,
            swapped: 50,
            tails: 1,
            slab_free: 2,
            magazines: 3,
            quarantine: 4,
            free_dirty: 5,
            huge_excess: 6,
            stacks_used: 7,
            stacks_idle: 8,
            stacks_free: 9,
            metadata: 10,
            sampling: 11,
            ..Ledger::default()
        };
        ledger.resident = u64::try_from(ledger.sum()).unwrap();
        let cut = cut(2000, ledger);
        assert_eq!(cut.bytes.iter().sum::<u64>(), 2000);
        assert_eq!(cut.bytes[REST], 2000 - ledger.resident);
        assert_eq!(cut.bytes[..2], [650, 100]);
    }

    #[test]
    fn figures_that_make_no_sense_are_survived() {
        let ledger = Ledger {
            requested: u64::MAX,
            rounding: u64::MAX,
            slab_free: u64::MAX,
            tails: 1,
            ..Ledger::default()
        };
        assert_eq!(cut(5, ledger).rss, u64::MAX);
        assert_eq!(cut(0, Ledger::default()), Cut::default());
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(step(0.3), 0.5);
        assert_eq!(step(7.0), 10.0);
        assert_eq!(nice(1000.0), 1024.0);
        assert_eq!(nice(1025.0), 1280.0);
    }
}
