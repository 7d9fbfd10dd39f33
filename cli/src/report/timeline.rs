//! The ledger over time, as stacked areas of SVG, and the numbers behind it for the page's script.

use super::bands::{self, BANDS, Cut};
use super::subject::Subject;
use crate::recording::format::{Event, Happening, Sample};
use neap::stats::Bytes;
use serde::Serialize;
use std::fmt::Write;

/// The picture's own units.
pub const WIDTH: f64 = 1000.0;
/// See [`WIDTH`].
pub const HEIGHT: f64 = 300.0;
/// Moments that are drawn, at most; of those between, the largest is.
const COLUMNS: usize = 500;

/// The picture.
#[derive(Debug)]
pub struct Timeline {
    /// One area a band, from the bottom up.
    pub areas: Vec<Area>,
    /// Lines across, with what they mean.
    pub grid: Vec<Tick>,
    /// Marks along the time.
    pub times: Vec<Tick>,
    /// Purges.
    pub purges: Vec<Tick>,
    /// For the script.
    pub points: Points,
}

/// A band's area.
#[derive(Debug)]
pub struct Area {
    /// The band.
    pub band: &'static bands::Band,
    /// The path's data.
    pub path: String,
    /// Bytes at the peak.
    pub at_peak: u64,
}

/// A place on an axis.
#[derive(Debug)]
pub struct Tick {
    /// In the picture's units.
    pub at: f64,
    /// The same as a share of the axis, in percent.
    pub percent: f64,
    /// What stands there.
    pub text: String,
}

/// What the script shows.
#[derive(Debug, Serialize)]
pub struct Points {
    /// Where, in percent of the width.
    pub x: Vec<f64>,
    /// When, in seconds.
    pub t: Vec<f64>,
    /// The whole process, in bytes.
    pub rss: Vec<u64>,
    /// By band, in bytes.
    pub bands: Vec<Vec<u64>>,
    /// Which moment was the largest.
    pub peak: usize,
}

impl Timeline {
    /// Draws the samples of `subject`; `None` where two are not there.
    pub fn of(subject: &Subject) -> Option<Self> {
        let mut fresh = subject.fresh();
        fresh.sort_by_key(|sample| sample.figures_ms());
        let columns = columns(&fresh);
        let (first, last) = (columns.first()?.0, columns.last()?.0);
        if first == last {
            return None;
        }
        let cuts: Vec<Cut> = columns.iter().map(|(_, sample)| Cut::of(sample)).collect();
        let top = cuts.iter().map(|cut| cut.rss).max()?.max(1) as f64;
        let scale = Scale {
            first,
            last,
            top: nice(top),
        };
        let times: Vec<u64> = columns.iter().map(|(time, _)| *time).collect();
        let peak = (0..cuts.len()).max_by_key(|index| cuts[*index].rss)?;
        Some(Self {
            areas: areas(&scale, &times, &cuts, peak),
            grid: scale.grid(),
            times: scale.times(),
            purges: purges(&scale, subject),
            points: points(&scale, &times, &cuts, peak),
        })
    }
}

/// At most [`COLUMNS`] samples, with their times: of those that share a column, the one with most in RAM.
fn columns<'a>(samples: &[&'a Sample]) -> Vec<(u64, &'a Sample)> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    let (first, last) = (first.figures_ms(), last.figures_ms());
    let span = (last - first).max(1) as f64;
    let column =
        |sample: &Sample| ((sample.figures_ms() - first) as f64 / span * COLUMNS as f64) as usize;
    let mut kept: Vec<&Sample> = Vec::new();
    for sample in samples {
        match kept.last_mut() {
            Some(before) if column(before) == column(sample) => {
                if sample.rss_of_figures() > before.rss_of_figures() {
                    *before = sample;
                }
            }
            _ => kept.push(sample),
        }
    }
    kept.into_iter()
        .map(|sample| (sample.figures_ms(), sample))
        .collect()
}

struct Scale {
    first: u64,
    last: u64,
    top: f64,
}

impl Scale {
    fn x(&self, time: u64) -> f64 {
        let span = (self.last - self.first) as f64;
        (time.saturating_sub(self.first) as f64 / span).min(1.0) * WIDTH
    }

    fn y(&self, bytes: f64) -> f64 {
        HEIGHT - (bytes / self.top).clamp(0.0, 1.0) * HEIGHT
    }

    fn grid(&self) -> Vec<Tick> {
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

    fn times(&self) -> Vec<Tick> {
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

/// 1, 2 or 5 times a power of ten, from `least` on.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-3).log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// The least 1, 1.5, 2, 3, 4 or 6 times a power of two that `bytes` fit below.
fn nice(bytes: f64) -> f64 {
    let power = 2f64.powf(bytes.log2().floor());
    let factor = [1.0, 1.25, 1.5, 1.75]
        .into_iter()
        .find(|factor| factor * power >= bytes);
    factor.unwrap_or(2.0) * power
}

/// Bands that are there at some moment.
fn shown(cuts: &[Cut]) -> Vec<usize> {
    let is_there = |index: &usize| cuts.iter().any(|cut| cut.bytes[*index] > 0);
    (0..BANDS).filter(is_there).collect()
}

fn areas(scale: &Scale, times: &[u64], cuts: &[Cut], peak: usize) -> Vec<Area> {
    let mut below = vec![0.0; cuts.len()];
    let mut areas = Vec::with_capacity(BANDS);
    for index in shown(cuts) {
        let above: Vec<f64> = (cuts.iter().zip(&below))
            .map(|(cut, below)| below + cut.bytes[index] as f64)
            .collect();
        areas.push(Area {
            band: &bands::ALL[index],
            path: path(scale, times, &below, &above),
            at_peak: cuts[peak].bytes[index],
        });
        below = above;
    }
    areas
}

/// Along the top, and back along the bottom.
fn path(scale: &Scale, times: &[u64], below: &[f64], above: &[f64]) -> String {
    let mut path = String::new();
    let there = times.iter().zip(above);
    let back = times.iter().zip(below).rev();
    for (index, (time, bytes)) in there.chain(back).enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        // Writing to a string does not fail.
        let _ = write!(path, "{letter}{:.1} {:.1}", scale.x(*time), scale.y(*bytes));
    }
    path.push('Z');
    path
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

fn points(scale: &Scale, times: &[u64], cuts: &[Cut], peak: usize) -> Points {
    let band = |index: usize| cuts.iter().map(|cut| cut.bytes[index]).collect();
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    Points {
        x: times
            .iter()
            .map(|time| rounded(scale.x(*time) / WIDTH * 100.0))
            .collect(),
        t: times.iter().map(|time| *time as f64 / 1e3).collect(),
        rss: cuts.iter().map(|cut| cut.rss).collect(),
        bands: shown(cuts).into_iter().map(band).collect(),
        peak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn axes_have_round_numbers() {
        assert_eq!(step(0.3), 0.5);
        assert_eq!(step(7.0), 10.0);
        assert_eq!(nice(1000.0), 1024.0);
        assert_eq!(nice(1025.0), 1280.0);
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
