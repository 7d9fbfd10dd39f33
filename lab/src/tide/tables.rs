//! The tables of a campaign: one per figure, with a row per engine and a column per step.

use comfy_table::{CellAlignment, Table};

use super::arrows::{self, State};
use super::follow::Seen;
use super::record::Record;
use super::steps::{Run, Step};
use crate::report;
use crate::stats::{Comparison, quantile};
use crate::work::tide::prices::Priced;
use crate::work::tide::stacks::StackKind;
use crate::work::tide::thousands;

/// The steps with a column.
const COLUMNS: [Step; 5] = [
    Step::Allocated,
    Step::Created,
    Step::Closed,
    Step::AllocatedAgain,
    Step::CreatedAgain,
];

/// Shown for a missing measurement.
const MISSING: &str = "–";

/// A figure with a table: its title, and the cell of a step; `base` is the resident size at the
/// start.
struct Figure {
    title: &'static str,
    cell: fn(seen: &Seen, base: u64) -> Option<String>,
}

const FIGURES: [Figure; 7] = [
    Figure {
        title: "RSS in MB, at once and after the wait",
        cell: |seen, _| {
            let later = seen.later.map(|kib| format!(" → {}", mib(kib)));
            Some(mib(seen.rss) + &later.unwrap_or_default())
        },
    },
    Figure {
        title: "RSS after the wait beyond what is live and what the process began with, in MB",
        cell: |seen, base| {
            let excess = seen.later? as i64 - (base + seen.done.live_kib) as i64;
            Some(format!("{:+.1}", excess as f64 / 1_024.0))
        },
    },
    Figure {
        title: "Peak of RSS during the step, in MB",
        cell: |seen, _| Some(mib(seen.peak)),
    },
    Figure {
        title: "Page tables at once, in MB",
        cell: |seen, _| Some(format!("{:.1}", seen.tables as f64 / 1_024.0)),
    },
    Figure {
        title: "Minor faults",
        cell: |seen, _| Some(seen.done.faults.to_string()),
    },
    Figure {
        title: "Time of the step in ms",
        cell: |seen, _| Some(format!("{:.1}", seen.done.ns as f64 / 1e6)),
    },
    Figure {
        title: "Neap's own figures: free and dirty, purged so far, in MB",
        cell: |seen, _| {
            let (dirty, purged) = seen.heap.neap?;
            Some(format!("{}, {}", mib(dirty), mib(purged)))
        },
    },
];

/// Whole MB; with a decimal below ten.
fn mib(kib: u64) -> String {
    match kib as f64 / 1_024.0 {
        mib if mib < 9.95 => format!("{mib:.1}"),
        mib => format!("{mib:.0}"),
    }
}

/// Every table.
pub fn campaign(record: &Record) -> String {
    let mut text = String::from("MB are 2²⁰ bytes.\n");
    section(&mut text, "What was run", runs(record));
    for figure in &FIGURES {
        section(&mut text, figure.title, table(record, figure));
    }
    let title =
        "Newly faulted of what a step needs, and by how much RSS had grown when all was in use";
    section(&mut text, title, taken(record));
    section(
        &mut text,
        "Arrows: the share that passed of what was offered and could be used, and how much in MB",
        arrow_table(record),
    );
    section(&mut text, &prices_title(record), prices(record));
    text
}

fn section(text: &mut String, title: &str, table: Table) {
    if table.row_iter().next().is_some() {
        text.push_str(&format!("\n{title}\n{table}\n"));
    }
}

fn new_table(header: &[&str]) -> Table {
    let mut table = report::table(header);
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// The coroutines of each engine, what it began with and what its program needs.
fn runs(record: &Record) -> Table {
    let mut table = report::table(&[
        "engine",
        "RSS at the start",
        "live when created",
        "coroutines",
    ]);
    for engine in all_engines(record) {
        let of = |step| {
            Run::ALL
                .into_iter()
                .find_map(|run| record.step(engine, run, step))
        };
        let base = of(Step::Start).map_or(MISSING.into(), |seen| mib(seen.rss));
        let live = of(Step::Created).map_or(MISSING.into(), |seen| mib(seen.done.live_kib));
        table.add_row([engine.to_string(), base, live, parked(record, engine)]);
    }
    table
}

fn table(record: &Record, figure: &Figure) -> Table {
    let names = COLUMNS.map(|step| step.name());
    let mut table = new_table(&[&["engine"], &names[..]].concat());
    for engine in record.engines(Run::Waited) {
        let base = record.step(engine, Run::Waited, Step::Start);
        let base = base.map_or(0, |seen| seen.rss);
        let cell = |step| (figure.cell)(record.step(engine, Run::Waited, step)?, base);
        let cells = COLUMNS.map(cell);
        if cells.iter().any(Option::is_some) {
            let cells = cells.map(|cell| cell.unwrap_or(MISSING.into()));
            table.add_row(std::iter::once(engine.to_string()).chain(cells));
        }
    }
    table
}

/// The steps that could reuse memory that another part gave up, with the run.
const TAKERS: [(Run, Step); 4] = [
    (Run::AtOnce, Step::Created),
    (Run::AtOnce, Step::AllocatedAgain),
    (Run::StacksFirst, Step::AllocatedAgain),
    (Run::Waited, Step::AllocatedAgain),
];

/// The memory that these steps took from the OS.
fn taken(record: &Record) -> Table {
    let titles = TAKERS.map(|(run, step)| format!("{}, {}", step.name(), run.name()));
    let header: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = new_table(&[&["engine"], &header[..]].concat());
    for engine in all_engines(record) {
        let cell = |(run, step)| {
            let taken = taken_by(record, engine, run, step);
            taken.map_or(MISSING.into(), |(share, growth)| {
                format!("{:.0} %, {growth:+.0} MB", 100.0 * share)
            })
        };
        let cells = TAKERS.map(cell);
        table.add_row(std::iter::once(engine.to_string()).chain(cells));
    }
    table
}

/// The newly faulted share of what a step needs, and the growth of RSS in MB.
fn taken_by(record: &Record, engine: &str, run: Run, step: Step) -> Option<(f64, f64)> {
    let seen = record.step(engine, run, step)?;
    let place = run.steps().iter().position(|known| *known == step)?;
    let before = record.step(engine, run, run.steps()[place.checked_sub(1)?])?;
    let before = before.later.unwrap_or(before.rss);
    let needed = match seen.done.live_kib {
        0 => arrows::heap_kib(record)?,
        live => live,
    };
    let share = arrows::faulted(seen) as f64 / needed as f64;
    let most = seen.rss.max(seen.done.full_kib);
    Some((share, (most as f64 - before as f64) / 1_024.0))
}

/// The engines of any run.
pub(super) fn all_engines(record: &Record) -> Vec<&'static str> {
    let all = super::engines::ALL.iter().map(|engine| engine.name);
    all.filter(|name| {
        Run::ALL
            .iter()
            .any(|run| record.step(name, *run, Step::Start).is_some())
    })
    .collect()
}

fn arrow_table(record: &Record) -> Table {
    let titles = arrows::ALL.map(|arrow| arrow.title());
    let header: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = new_table(&[&["engine"], &header[..]].concat());
    for engine in all_engines(record) {
        let cell = |arrow| {
            let flow = arrows::flow(record, engine, arrow);
            flow.map_or(MISSING.into(), |flow| {
                let word = word(flow.state());
                format!("{word} {:.0} %, {}", 100.0 * flow.share(), mib(flow.passed))
            })
        };
        let cells = arrows::ALL.map(cell);
        table.add_row(std::iter::once(engine.to_string()).chain(cells));
    }
    table
}

pub(super) fn word(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Partly => "partly",
        State::Closed => "closed",
    }
}

/// The rounds of a price as pairs of (Neap's, corosensei's own).
pub(super) fn pairs(record: &Record, price: Priced) -> Vec<(f64, f64)> {
    let own = record.prices(StackKind::Own, price);
    let neap = record.prices(StackKind::Neap, price);
    let partner = |(round, ns): &(u32, f64)| {
        let other = own.iter().find(|(other, _)| other == round)?;
        Some((*ns, other.1))
    };
    neap.iter().filter_map(partner).collect()
}

fn prices_title(record: &Record) -> String {
    let rounds = pairs(record, Priced::Switch).len();
    format!(
        "Prices of a coroutine in ns: medians of {rounds} interleaved rounds ± half the quartiles' \
         distance; ~: not separable"
    )
}

fn prices(record: &Record) -> Table {
    let mut table = new_table(&["price", "corosensei's own", "Neap's", "ratio"]);
    for price in Priced::ALL {
        let pairs = pairs(record, price);
        let (neap, own): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        if let Some(comparison) = Comparison::of(&pairs) {
            let mark = if comparison.separable() { "" } else { "~" };
            table.add_row([
                price.title().to_string(),
                with_spread(&own),
                with_spread(&neap),
                format!("{mark}{:.2}", comparison.median),
            ]);
        }
    }
    table
}

fn with_spread(ns: &[f64]) -> String {
    let median = quantile(ns, 0.5);
    let half = (quantile(ns, 0.75) - quantile(ns, 0.25)) / 2.0;
    let places = usize::from(median < 100.0);
    format!("{median:.places$} ±{half:.places$}")
}

/// What an engine's runs could not do, each reason once, in order.
fn notes_of(record: &Record, engine: &str) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let reason = |note: &str| note.split_once(", then: ").map(|(_, why)| why.to_string());
    for run in Run::ALL {
        for seen in Step::ALL
            .iter()
            .filter_map(|step| record.step(engine, run, *step))
        {
            let note = &seen.done.note;
            let is_known = notes.iter().any(|known| reason(known) == reason(note));
            if !note.is_empty() && !is_known {
                notes.push(note.clone());
            }
        }
    }
    notes
}

/// How many coroutines were parked, or how many until which error.
fn parked(record: &Record, engine: &str) -> String {
    let notes = notes_of(record, engine);
    let most = |run| {
        record
            .step(engine, run, Step::Created)
            .map(|seen| seen.done.coroutines)
    };
    match notes.is_empty() {
        true => Run::ALL
            .into_iter()
            .find_map(most)
            .map_or(MISSING.into(), thousands),
        false => notes.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Row;
    use super::super::record::tests::example;
    use super::*;

    #[test]
    fn the_tables_have_every_figure() {
        let text = campaign(&example());
        for part in [
            "302 → 302",
            "+300.0",
            "+0.0",
            "100 %, +100 MB",
            "1 %, -100 MB",
            "open 100 %, 100",
            "closed 0 %, 0.0",
            "8003 ±2",
            "0.10",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        // The example has no figures of Neap's own.
        assert!(!text.contains("Neap's own figures"));
    }

    #[test]
    fn who_fell_short_says_so_once_in_its_row() {
        let mut record = example();
        let mut count = 1;
        for row in &mut record.rows {
            if let Row::Step {
                engine: "go", seen, ..
            } = row
            {
                count += 1;
                seen.done.note = format!("{count} coroutines, then: no more");
            }
        }
        assert_eq!(parked(&record, "go"), "2 coroutines, then: no more");
        assert_eq!(parked(&record, "neap"), "51,200");
        assert!(campaign(&record).contains(" 2 coroutines, then: no more"));
    }
}
