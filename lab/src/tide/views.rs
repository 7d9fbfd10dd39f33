//! The tables, one per figure, with a row per engine and a column per step; and the picture, one
//! panel per engine with the steps marked and live memory dashed.

use super::observed::{
    BEGAN, COROUTINES, DIRTY, ENDED, FAULTS, FULL, LATER, LIVE, NOTE, Observed, PEAK, RSS, Run,
    Sample, Step, TABLES, TIME,
};
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::{self, Record};
use crate::engine::table::{Column, MISSING, section};
use crate::pagemap::page_size;
use crate::status::PURGED;
use crate::work::tide::thousands;

/// The steps with a column.
const COLUMNS: [Step; 5] = [
    Step::Allocated,
    Step::Created,
    Step::Closed,
    Step::AllocatedAgain,
    Step::CreatedAgain,
];

/// A step's figures.
type Seen<'a> = record::Run<'a>;

/// A table of a figure: its title, and the cell of a step; the number is the resident KiB at the
/// start.
type StepView = (&'static str, fn(Seen, f64) -> Option<String>);

const VIEWS: [StepView; 7] = [
    ("RSS in MiB, at once and after the wait", |seen, _| {
        let later = seen.number(LATER).map(|kib| format!(" → {}", mib(kib)));
        Some(mib(seen.number(RSS)?) + &later.unwrap_or_default())
    }),
    (
        "RSS after the wait beyond what is live and what the process began with, in MiB",
        |seen, base| {
            let excess = seen.number(LATER)? - base - seen.number(LIVE)?;
            Some(format!("{:+.1}", excess / 1_024.0))
        },
    ),
    ("Peak of RSS during the step, in MiB", |seen, _| {
        seen.number(PEAK).map(mib)
    }),
    ("Page tables at once, in MiB", |seen, _| {
        Some(format!("{:.1}", seen.number(TABLES)? / 1_024.0))
    }),
    ("Minor faults", |seen, _| {
        Some(seen.number(FAULTS)?.to_string())
    }),
    ("Time of the step in ms", |seen, _| {
        Some(format!("{:.1}", seen.number(TIME)? / 1e6))
    }),
    (
        "Neap's own figures: free and dirty, purged so far, in MiB",
        |seen, _| {
            let (dirty, purged) = (seen.number(DIRTY)?, seen.number(PURGED)?);
            Some(format!("{}, {}", mib(dirty), mib(purged)))
        },
    ),
];

/// Whole MiB; with a decimal below ten.
fn mib(kib: f64) -> String {
    match kib / 1_024.0 {
        mib if mib < 9.95 => format!("{mib:.1}"),
        mib => format!("{mib:.0}"),
    }
}

/// Every table.
pub fn tables(record: &Record) -> String {
    let observed = &Observed(record);
    let steps = VIEWS.map(|view| step_table(observed, view)).concat();
    let (run, taken) = (what_was_run(observed), taken(observed));
    format!("{run}{steps}{taken}")
}

/// A figure of an engine.
type EngineView = fn(&Observed, &str) -> Option<String>;

const STARTS: [Column<&str, EngineView>; 3] = [
    Column("RSS at the start", |observed, engine| {
        observed.first(engine, Step::Start)?.number(RSS).map(mib)
    }),
    Column("live when created", |observed, engine| {
        observed.first(engine, Step::Created)?.number(LIVE).map(mib)
    }),
    Column("coroutines", parked),
];

/// The coroutines of each engine, what it began with and what its program needs.
fn what_was_run(observed: &Observed) -> String {
    let engines = observed.engines(&Run::ALL);
    let title = "What was run, sizes in MiB";
    section(title, "engine", (&engines, &STARTS), |engine, column| {
        column.1(observed, engine)
    })
}

fn step_table(observed: &Observed, (title, cell): StepView) -> String {
    let engines = observed.engines(&[Run::Waited]);
    section(title, "engine", (&engines, &COLUMNS), |engine, step| {
        let of = |step| observed.step(engine, Run::Waited, step);
        cell(of(*step)?, of(Step::Start)?.number(RSS)?)
    })
}

/// The steps that could reuse memory that another part gave up, with the run.
const TAKERS: [(Run, Step); 4] = [
    (Run::AtOnce, Step::Created),
    (Run::AtOnce, Step::AllocatedAgain),
    (Run::StacksFirst, Step::AllocatedAgain),
    (Run::Waited, Step::AllocatedAgain),
];

/// The memory that these steps took from the OS.
fn taken(observed: &Observed) -> String {
    let engines = observed.engines(&Run::ALL);
    let title =
        "Newly faulted of what a step needs, and by how much RSS had grown when all was in use";
    let takers = TAKERS.map(|(run, step)| Column(format!("{step}, {run}"), (run, step)));
    section(title, "engine", (&engines, &takers), |engine, column| {
        let (run, step) = column.1;
        let (share, growth) = taken_by(observed, engine, run, step)?;
        Some(format!("{:.0} %, {growth:+.0} MiB", 100.0 * share))
    })
}

/// The newly faulted share of what a step needs, and the growth of RSS in MiB.
fn taken_by(observed: &Observed, engine: &str, run: Run, step: Step) -> Option<(f64, f64)> {
    let seen = observed.step(engine, run, step)?;
    let place = run.steps().iter().position(|known| *known == step)?;
    let before = observed.step(engine, run, run.steps()[place.checked_sub(1)?])?;
    let before = before.number(LATER).or_else(|| before.number(RSS))?;
    let needed = match seen.number(LIVE)? {
        0.0 => observed.0.said("heap MB")?.parse::<f64>().ok()? * 1_024.0,
        live => live,
    };
    let faulted = seen.number(FAULTS)? * page_size() as f64 / 1_024.0;
    let most = seen.number(RSS)?.max(seen.number(FULL)?);
    Some((faulted / needed, (most - before) / 1_024.0))
}

/// What an engine's runs could not do, each reason once, in order.
fn notes_of<'a>(observed: &Observed<'a>, engine: &str) -> Vec<&'a str> {
    let mut notes: Vec<&str> = Vec::new();
    let reason = |note: &str| note.split_once(", then: ").map(|(_, why)| why.to_string());
    let steps = Run::ALL.iter().flat_map(|run| observed.steps(engine, *run));
    for note in steps.filter_map(|seen| seen.text(NOTE)) {
        if !notes.iter().any(|known| reason(known) == reason(note)) {
            notes.push(note);
        }
    }
    notes
}

/// How many coroutines were parked, or how many until which error.
fn parked(observed: &Observed, engine: &str) -> Option<String> {
    let notes = notes_of(observed, engine);
    if !notes.is_empty() {
        return Some(notes.join("; "));
    }
    let created = observed.first(engine, Step::Created);
    let count = created.and_then(|seen| seen.number(COROUTINES));
    let count = count.map(|count| thousands(count as u64));
    Some(count.unwrap_or(MISSING.into()))
}

const ACROSS: usize = 4;
const NEEDED: Stroke = Stroke {
    colour: "#222",
    is_dashed: true,
};

fn point(ms: f64, kib: f64) -> Point {
    Point::at(ms / 1e3, kib / 1_024.0)
}

/// An SVG document; `None` if no engine ran with waits.
pub fn picture(record: &Record) -> Option<String> {
    let observed = Observed(record);
    let engines = observed.engines(&[Run::Waited]);
    let samples = |engine: &&str| observed.samples(engine, Run::Waited);
    let all: Vec<Sample> = engines.iter().flat_map(samples).collect();
    let most = |of: fn(&Sample) -> u64| all.iter().map(of).max().map(|most| most.max(1) as f64);
    let end = point(most(|sample| sample.ms)?, most(|sample| sample.kib)?);
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
    let said = |key| record.said(key).unwrap_or("?");
    let count = said("coroutines");
    let steps = format!(
        "1: allocated {} MiB and dropped them · 2: created {} coroutines · 3: closed · 4: as 1 \
         · 5: as 2 · after each {} ms of nothing",
        said("heap MB"),
        count.parse().map_or(count.to_string(), thousands),
        said("wait ms"),
    );
    let title = [
        "RSS in MiB over seconds; dashed: what the program needs",
        &steps,
    ];
    let panels: Vec<Panel> = engines.iter().enumerate().map(panel).collect();
    let layout = Layout(ACROSS, (210.0, 130.0), (56.0, 22.0));
    Some(svg(&title, layout, &panels))
}

/// The beginning of each step, and its number.
fn marks(observed: &Observed, engine: &str) -> Vec<(f64, String)> {
    let steps = observed.steps(engine, Run::Waited);
    let mark =
        |(number, seen): (usize, &Seen)| Some((seen.number(BEGAN)? / 1e3, number.to_string()));
    steps.iter().enumerate().skip(1).filter_map(mark).collect()
}

fn resident(samples: &[Sample], engine: &str) -> Series {
    let colour = if engine.starts_with("neap") {
        "#009e73"
    } else {
        "#0072b2"
    };
    let points = samples
        .iter()
        .map(|sample| point(sample.ms as f64, sample.kib as f64));
    Series::new("", Stroke::of(colour), Draw::Area, points.collect())
}

/// What the process began with plus what is live, from the end of each step to the next.
fn needed(observed: &Observed, engine: &str) -> Series {
    let steps = observed.steps(engine, Run::Waited);
    let number = |seen: &Seen, name| seen.number(name).unwrap_or(0.0);
    let base = steps.first().map_or(0.0, |start| number(start, RSS));
    let samples = observed.samples(engine, Run::Waited);
    let end = samples.last().map(|sample| sample.ms as f64);
    let mut points = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let from = number(step, ENDED);
        let next = steps.get(place + 1).map(|next| number(next, ENDED));
        let until = next.or(end).unwrap_or(from).max(from);
        let kib = base + number(step, LIVE);
        points.extend([point(from, kib), point(until, kib)]);
    }
    Series::new("", NEEDED, Draw::Line, points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::{Figure, Row};
    use crate::tide::observed::tests::example;

    #[test]
    fn the_tables_have_every_figure() {
        let text = tables(&example());
        for part in [
            "302 → 302",
            "+300.0",
            "+0.0",
            "100 %, +100 MiB",
            "1 %, -100 MiB",
            "51,200",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        // The example has no figures of Neap's own.
        assert!(!text.contains("Neap's own figures"));
    }

    #[test]
    fn an_engine_that_fell_short_says_so_once_in_its_row() {
        let mut record = example();
        let runs = Run::ALL.iter().zip(1..);
        for (run, count) in runs {
            let case = super::super::observed::case(*run, Step::Created);
            let at = record
                .rows
                .iter()
                .rposition(|row| row.case == case && row.peer == "go");
            let note = Figure::text("note", format!("{count} coroutines, then: no more"));
            let row = Row {
                figure: note,
                ..record.rows[at.unwrap()].clone()
            };
            record.rows.insert(at.unwrap(), row);
        }
        let observed = Observed(&record);
        assert_eq!(
            parked(&observed, "go").unwrap(),
            "1 coroutines, then: no more"
        );
        assert!(tables(&record).contains(" 1 coroutines, then: no more"));
    }

    #[test]
    fn a_panel_an_engine_with_its_marks() {
        let out = picture(&example()).unwrap();
        assert_eq!(out.matches("<polygon").count(), 2);
        assert_eq!(out.matches("stroke-dasharray").count(), 2);
        for words in [
            ">go</text>",
            ">neap</text>",
            ">5</text>",
            "allocated 100 MiB",
        ] {
            assert!(out.contains(words), "no {words}");
        }
        assert!(!out.contains("NaN") && picture(&Record::default()).is_none());
    }
}
