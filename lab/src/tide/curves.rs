//! The resident size over time: one panel per engine, with the steps marked and live memory dashed.

use super::follow::Sample;
use super::observed::Observed;
use super::steps::Run;
use crate::engine::plot::{Axis, Draw, Panel, Plot, Point, Series, Stroke};
use crate::engine::record::Record;
use crate::work::tide::thousands;

const ACROSS: usize = 4;
const NEEDED: Stroke = Stroke {
    colour: "#222",
    is_dashed: true,
};

fn point(ms: u64, kib: u64) -> Point {
    Point::at(ms as f64 / 1e3, kib as f64 / 1_024.0)
}

/// An SVG document; `None` if no engine ran with waits.
pub fn svg(record: &Record) -> Option<String> {
    let observed = Observed::of(record);
    let engines = observed.engines(&[Run::Waited]);
    let samples = |engine: &&str| observed.samples(engine, Run::Waited);
    let all: Vec<Sample> = engines.iter().flat_map(samples).collect();
    let most = |of: fn(&Sample) -> u64| all.iter().map(of).max();
    let end = point(
        most(|sample| sample.ms)?.max(1),
        most(|sample| sample.kib)?.max(1),
    );
    let panel = |(place, engine): (usize, &&str)| {
        let y = Axis::linear(end.y * 1.06, |mb| mb.to_string());
        Panel {
            title: engine.to_string(),
            x: Axis::linear(end.x, |seconds| seconds.to_string()),
            y: if place % ACROSS == 0 { y } else { y.unnamed() },
            marks: marks(&observed, engine),
            series: vec![
                needed(&observed, engine),
                resident(&samples(engine), engine),
            ],
        }
    };
    let said = |key| observed.said(key).unwrap_or("?");
    let count = said("coroutines");
    let title = vec![
        "RSS in MB over seconds; dashed: what the program needs".into(),
        format!(
            "1: allocated {} MB and dropped them · 2: created {} coroutines · 3: closed · 4: as 1 \
             · 5: as 2 · after each {} ms of nothing",
            said("heap MB"),
            count.parse().map_or(count.to_string(), thousands),
            said("wait ms"),
        ),
    ];
    let panels = engines.iter().enumerate().map(panel).collect();
    let (panel, left) = ((210.0, 130.0), (56.0, 22.0));
    Some(
        Plot {
            title,
            across: ACROSS,
            panel,
            left,
            panels,
        }
        .svg(),
    )
}

/// The beginning of each step, and its number.
fn marks(observed: &Observed, engine: &str) -> Vec<(f64, String)> {
    let steps = observed
        .steps(engine, Run::Waited)
        .into_iter()
        .enumerate()
        .skip(1);
    steps
        .map(|(number, seen)| (seen.ms.0 as f64 / 1e3, number.to_string()))
        .collect()
}

fn resident(samples: &[Sample], engine: &str) -> Series {
    let colour = if engine.starts_with("neap") {
        "#009e73"
    } else {
        "#0072b2"
    };
    Series {
        name: String::new(),
        stroke: Stroke::of(colour),
        draw: Draw::Area,
        points: samples
            .iter()
            .map(|sample| point(sample.ms, sample.kib))
            .collect(),
    }
}

/// What the process began with plus what is live, from the end of each step to the next.
fn needed(observed: &Observed, engine: &str) -> Series {
    let steps = observed.steps(engine, Run::Waited);
    let base = steps.first().map_or(0, |start| start.rss);
    let end = observed
        .samples(engine, Run::Waited)
        .last()
        .map(|sample| sample.ms);
    let mut points = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let next = steps.get(place + 1).map(|next| next.ms.1);
        let until = next.or(end).unwrap_or(step.ms.1).max(step.ms.1);
        let kib = base + step.done.live_kib;
        points.extend([point(step.ms.1, kib), point(until, kib)]);
    }
    Series {
        name: String::new(),
        stroke: NEEDED,
        draw: Draw::Line,
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed::tests::example;
    use super::*;

    #[test]
    fn a_panel_an_engine_with_its_marks() {
        let out = svg(&example()).unwrap();
        assert_eq!(out.matches("<polygon").count(), 2);
        assert_eq!(out.matches("stroke-dasharray").count(), 2);
        for words in [
            ">go</text>",
            ">neap</text>",
            ">5</text>",
            "allocated 100 MB",
        ] {
            assert!(out.contains(words), "no {words}");
        }
        assert!(!out.contains("NaN") && svg(&Record::default()).is_none());
    }
}
