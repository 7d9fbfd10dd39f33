//! How much memory grew over a course, the table and the picture of a soak.

use std::time::Duration;

use crate::cases::figures::Course;
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::{Figure, Record, Run, Unit};
use crate::engine::table::{Column, section};
use crate::stats::quantile;

/// Resident bytes at one moment since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Duration,
    pub bytes: u64,
}

/// The part of a course in which caches fill and heaps reach their size.
const WARM_UP: f64 = 0.25;

/// The samples after the warm-up.
pub fn warm(samples: &[Sample]) -> &[Sample] {
    &samples[(samples.len() as f64 * WARM_UP).ceil() as usize..]
}

/// The growth after the warm-up as a part of the median: the trend from the first moment to the
/// last. `None` with too few samples for a trend.
///
/// The trend is the median slope of all pairs of samples (Theil 1950, Sen 1968), which peaks of
/// single requests do not change.
pub fn growth(samples: &[Sample]) -> Option<f64> {
    let warm = warm(samples);
    let [first, .., last] = warm else { return None };
    let slopes = warm.iter().enumerate().flat_map(|(n, one)| {
        let later = warm[n + 1..].iter();
        later.filter_map(move |other| slope(one, other))
    });
    let slopes: Vec<f64> = slopes.collect();
    let bytes: Vec<f64> = warm.iter().map(|sample| sample.bytes as f64).collect();
    let median = quantile(&bytes, 0.5);
    if slopes.is_empty() || median == 0.0 {
        return None;
    }
    let span = (last.at - first.at).as_secs_f64();
    Some(quantile(&slopes, 0.5) * span / median)
}

/// Bytes per second from one sample to a later one.
fn slope(one: &Sample, other: &Sample) -> Option<f64> {
    let seconds = (other.at - one.at).as_secs_f64();
    (seconds > 0.0).then(|| (other.bytes as f64 - one.bytes as f64) / seconds)
}

/// The sum of several courses. They have their samples at the same moments.
pub fn sum<'a>(courses: impl Iterator<Item = &'a [Sample]>) -> Vec<Sample> {
    let mut sum: Vec<Sample> = Vec::new();
    for course in courses {
        if sum.is_empty() {
            sum = course.to_vec()
        } else {
            sum.iter_mut()
                .zip(course)
                .for_each(|(sum, one)| sum.bytes += one.bytes)
        }
    }
    sum
}

/// The name of the sum of all members.
pub const ALL: &str = "all";
/// The figures of a member.
pub const ANSWERS: &str = "answers";
pub const GUARDED: &str = "guarded blocks";
pub const MEDIAN: &str = "resident";
pub const MOST: &str = "most resident";
pub const GROWTH: &str = "growth";
const COURSE: &str = "course";

/// The figures of a course.
pub fn figures(samples: &[Sample]) -> Vec<Figure> {
    let bytes: Vec<f64> = warm(samples).iter().map(|one| one.bytes as f64).collect();
    if bytes.is_empty() {
        return Vec::new();
    }
    let words = samples.iter().map(|one| {
        let megabytes = one.bytes as f64 / 1e6;
        format!("{:.0}:{megabytes:.2}", one.at.as_secs_f64())
    });
    let mut figures = vec![
        Figure::bytes(MEDIAN, quantile(&bytes, 0.5)),
        Figure::bytes(MOST, quantile(&bytes, 1.0)),
        Figure::text(COURSE, words.collect::<Vec<_>>().join(" ")),
    ];
    figures.extend(growth(samples).map(|growth| Figure::new(GROWTH, Unit::Share, growth)));
    figures
}

const COLUMNS: [Column<&str, &str>; 5] = [
    Column("resident, MB", MEDIAN),
    Column("most, MB", MOST),
    Column("growth, %", GROWTH),
    Column("answers checked", ANSWERS),
    Column("guarded blocks", GUARDED),
];

/// A row for each member and one for all.
pub fn table(record: &Record) -> String {
    let has = |figure: &str| record.runs().any(|run| run.number(figure).is_some());
    let columns: Vec<_> = COLUMNS.into_iter().filter(|column| has(column.1)).collect();
    let heading = "After the first quarter of the time; growth is the trend over the rest";
    let cell = |case: &&str, Column(_, figure): &Column<&str, &str>| {
        let run = record.runs().find(|run| run.case() == *case)?;
        let value = run.number(figure)?;
        Some(match *figure {
            ANSWERS | GUARDED => format!("{value:.0}"),
            GROWTH => format!("{:+.2}", 100.0 * value),
            _ => format!("{:.1}", value / 1e6),
        })
    };
    section(heading, "member", (&record.cases(), &columns), cell)
}

/// A panel for each member: resident memory over time.
pub fn picture(record: &Record) -> String {
    let title = "Resident memory in MB over minutes of mixed load";
    let panels: Vec<Panel> = record.runs().map(|run| panel(record, &run)).collect();
    svg(&[title], Layout(4, (230.0, 120.0), (44.0, 44.0)), &panels)
}

fn panel(record: &Record, run: &Run) -> Panel {
    let title = record.said(&title_key(run.case())).unwrap_or(run.case());
    let points = course(run);
    let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let number = |value: f64| format!("{value:.0}");
    Panel {
        title: title.to_string(),
        x: Axis::linear(most(|point| point.x), number),
        y: Axis::linear(1.1 * most(|point| point.y), number),
        marks: Vec::new(),
        series: vec![Series::new("", Stroke::of_peer("neap"), Draw::Line, points)],
    }
}

/// The points of a course in minutes and MB.
fn course(run: &Run) -> Vec<Point> {
    let course = run.text(COURSE).and_then(Course::parse).unwrap_or_default();
    let points = course.points.into_iter();
    points
        .map(|(seconds, mb)| Point::at(seconds / 60.0, mb))
        .collect()
}

/// The key of a member's title in the head of a record.
pub fn title_key(member: &str) -> String {
    format!("member {member}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::tests::record;

    mod growth {
        use super::*;

        fn course(bytes: impl Fn(u64) -> u64) -> Vec<Sample> {
            let sample = |second| Sample {
                at: Duration::from_secs(second),
                bytes: bytes(second),
            };
            (0..400).map(sample).collect()
        }

        #[test]
        fn a_slow_leak_is_growth_and_peaks_are_none() {
            // 1,000 at the end of the warm-up, and one more every three seconds.
            let leak = growth(&course(|second| 967 + second / 3)).unwrap();
            assert!((0.09..0.1).contains(&leak), "{leak}");
            let peaks = course(|second| if second % 7 == 0 { 9_000 } else { 1_000 });
            assert_eq!(growth(&peaks), Some(0.0));
            let shrinks = growth(&course(|second| 5_000 - second)).unwrap();
            assert!(shrinks < -0.05, "{shrinks}");
        }

        #[test]
        fn the_warm_up_does_not_count() {
            let fills = course(|second| 1_000 * second.clamp(1, 99));
            assert_eq!(growth(&fills), Some(0.0));
            assert_eq!(growth(&fills[..2]), None);
            assert_eq!(growth(&[]), None);
        }

        #[test]
        fn courses_are_added_moment_by_moment() {
            let (one, other) = (course(|second| second), course(|_| 5));
            let both = sum([&one[..], &other[..]].into_iter());
            assert_eq!((both[0].bytes, both[10].bytes), (5, 15));
            assert!(sum([].into_iter()).is_empty());
        }
    }

    fn example() -> Record {
        let sample = |second| Sample {
            at: Duration::from_secs(second),
            bytes: 5_000_000,
        };
        let samples: Vec<Sample> = (0..100).map(sample).collect();
        let mut figures = figures(&samples);
        figures.push(Figure::count(ANSWERS, 12));
        figures.push(Figure::count(GUARDED, 345));
        let mut record = record([("redis", "neap", 0, figures)]);
        record.head = vec![(title_key("redis"), "A server & its forks".into())];
        record
    }

    #[test]
    fn a_member_has_a_row_and_a_panel() {
        let text = table(&example());
        for part in ["redis", "5.0", "+0.00", "12", "guarded blocks", "345"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let picture = picture(&example());
        assert_eq!(picture.matches("<polyline").count(), 1);
        assert!(picture.contains("A server &amp; its forks") && !picture.contains("NaN"));
    }

    #[test]
    fn a_course_comes_back_from_its_record() {
        let csv = example().to_csv();
        let read = Record::from_csv(&csv).unwrap();
        let run = read.runs().next().unwrap();
        let points = course(&run);
        assert_eq!(points.len(), 100);
        assert_eq!((points[60].x, points[60].y), (1.0, 5.0));
        assert!(figures(&[]).is_empty());
    }
}
