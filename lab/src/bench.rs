//! The comparison of allocators: every workload under every peer, in interleaved rounds; then the
//! counts of instructions and system calls.

use clap::Arg;

use crate::cases::install;
use crate::engine::campaign::{Campaign, Named, by_name};
use crate::engine::experiment::{Ended, Experiment, Kept, View, available_peers};
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::Figure;
use crate::engine::record::{Record, Row};
use crate::engine::settings::{self, Settings};
use crate::engine::table::section;
use crate::peers;
use crate::peers::locate::Ready;
use crate::programs;
use crate::run::{self, HUGE, IDLE, MINOR, PEAK, PER_BLOCK, TIME};
use crate::stats::{Comparison, geometric_mean};
use crate::status::{self, PURGED, REGRETTED};
use crate::work::count;
use crate::workloads::{self, Shape, Workload};

/// Time, memory, faults, instructions and system calls.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bench",
    about: "Compare allocators: time, memory, faults, instructions and system calls",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::names("only", "Only these workloads"),
            settings::rounds().default_value("10"),
            settings::seconds().default_value("2400"),
            base(),
            settings::quick(),
            settings::switch("install", "Install what the programs need, then exit"),
            settings::switch(
                "no-counts",
                "Skip the counts of instructions and system calls",
            ),
            settings::seed(),
        ]
    },
    kept: Kept::Always,
    run: carry_out,
    tables,
    picture,
    derived: means,
    notes: || {
        let line = |w: &Workload| format!("  {:<16} {}\n", w.name, w.shows);
        let lines: String = workloads::ALL.iter().map(line).collect();
        format!("Workloads:\n{lines}")
    },
};

/// What the others are compared with.
fn base() -> Arg {
    let base = settings::text("base", "NAME").default_value("mimalloc3");
    base.help("The allocator to compare the others with")
}

const INSTRUCTIONS: &str = "instructions";
const CALLS: &str = "system calls";

by_name!(Workload, count::Counted);

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let chosen = settings.chosen(("only", "workload"), workloads::ALL.iter().collect(), |w| {
        &w.name
    })?;
    if settings.is_on("install") {
        let cases = chosen.iter().filter_map(|workload| match &workload.shape {
            Shape::Program(folder) => Some(programs::read(folder)),
            _ => None,
        });
        let cases = cases.collect::<anyhow::Result<Vec<_>>>()?;
        return Ok(install::install_all(
            cases.iter().map(|(case, home)| (case, home)),
        ));
    }
    let base = settings.text("base");
    anyhow::ensure!(peers::find(&base).is_some(), "no peer {base:?}");
    let peers = available_peers(settings)?;
    let quick = settings.is_quick();
    let rounds = if quick { 1 } else { settings.rounds(1) };
    let options = [
        ("rounds", rounds.to_string()),
        ("extent", if quick { "quick" } else { "full" }.to_string()),
        ("seed", settings.number("seed").to_string()),
    ];
    campaign.head(&options, &peers);
    let mut workloads = Vec::new();
    for workload in chosen {
        match programs::absent(workload)? {
            None => workloads.push(workload),
            Some(reason) => campaign.leave_out(format!("{}: {reason}", workload.name)),
        }
    }
    let ops = |workload: &Workload| if quick { workload.quick } else { workload.full };
    let once = |workload: &&Workload, peer: &Ready| match &workload.shape {
        Shape::Program(folder) => programs::once(folder, peer),
        _ => run::once(workload, peer, ops(workload)),
    };
    campaign.rounds(rounds, (&workloads, &peers), once);
    if settings.is_on("no-counts") {
        campaign.leave_out("counts: not asked for");
        return Ok(Ended::Measured);
    }
    let pairs = &count::PAIRS[..if quick { 1 } else { count::PAIRS.len() }];
    counted(
        campaign,
        "instructions",
        run::no_instructions(),
        (pairs, &peers),
        |pair, peer| Ok(Figure::number(INSTRUCTIONS, run::instructions(pair, peer)?)),
    );
    workloads.retain(|workload| workload.is_ours());
    counted(
        campaign,
        "system calls",
        run::no_system_calls(),
        (&workloads, &peers),
        |w, peer| Ok(Figure::count(CALLS, run::system_calls(w, peer, ops(w))?)),
    );
    Ok(Ended::Measured)
}

/// Counts once, if that is possible here.
fn counted<C: Named>(
    campaign: &mut Campaign,
    what: &str,
    obstacle: Option<&str>,
    (cases, peers): (&[C], &[Ready]),
    count: impl Fn(&C, &Ready) -> anyhow::Result<Figure>,
) {
    if let Some(reason) = obstacle {
        return campaign.leave_out(format!("{what}: {reason}"));
    }
    campaign.progress.expect((cases.len() * peers.len()) as u64);
    let phase = format!("the counts of {what}");
    campaign.round((0, &phase), (cases, peers), |_, case, peer| {
        Ok(vec![count(case, peer)?])
    });
}

/// The workloads of a record whose times are compared: not those that fill memory once.
fn timed(record: &Record) -> Vec<&str> {
    let filled = record.cases_with(PER_BLOCK);
    let mut timed = record.cases_with(TIME);
    timed.retain(|name| !filled.contains(name));
    timed
}

/// Every table, against the base.
fn tables(record: &Record, view: &View) -> String {
    let (base, peers) = (view.base.as_str(), record.peers());
    let legend = "median of paired ratios; ~: not separable";
    let ratios = |what: &str, figure: &str| {
        let title = format!("{what}, {base} = 1 ({legend})");
        let names = timed(record);
        section(&title, "workload", (&names, &peers), |case, peer| {
            if *peer == base {
                record
                    .median(case, base, figure)
                    .map(|value| absolute(value, figure))
            } else {
                record.compare(case, peer, base, figure).map(verdict)
            }
        })
    };
    let medians = |title: &str, (corner, cases): (&str, Vec<&str>), figure: &str| {
        section(title, corner, (&cases, &peers), |case, peer| {
            record.median(case, peer, figure).map(number)
        })
    };
    let times = ("workload", timed(record));
    let bytes = ("workload", record.cases_with(PER_BLOCK));
    let counted = |figure| ("counted", record.cases_with(figure));
    let bursts = |figure| ("workload", record.cases_with(figure));
    let instructions = "Instructions a malloc and free, loop included";
    [
        ratios("Time", TIME),
        ratios("Peak RSS", PEAK),
        medians("Resident bytes a live block", bytes, PER_BLOCK),
        medians("KiB resident after a pause", bursts(IDLE), IDLE),
        medians("KiB in huge pages at the last peak", bursts(HUGE), HUGE),
        medians(instructions, counted(INSTRUCTIONS), INSTRUCTIONS),
        medians("Minor faults a run", times, MINOR),
        medians("System calls a run", counted(CALLS), CALLS),
        regrets(record),
        mean_table(record, view),
    ]
    .concat()
}

/// What Neap gave back to the kernel in each workload, and how much of it too soon.
fn regrets(record: &Record) -> String {
    let cases = record.cases_with(PURGED);
    let title = "Purged by Neap, MB, and the regretted part in percent";
    let columns = [PURGED, "%"];
    section(title, "workload", (&cases, &columns), |case, column| {
        let (purged, part) = regretted(record, case)?;
        Some(match *column {
            PURGED => format!("{:.1}", purged / 1e6),
            _ => format!("{:.2}", 100.0 * part),
        })
    })
}

/// What Neap purged in a workload, in bytes, and the part of it that it regretted.
fn regretted(record: &Record, case: &str) -> Option<(f64, f64)> {
    let own = |figure| record.median(case, "neap", figure);
    let (purged, regretted) = (own(PURGED)?, own(REGRETTED)?);
    Some((purged, status::share(purged, regretted)))
}

/// A ratio counts as at least and at most this in the means, so that no row carries them.
const CARRYING: (f64, f64) = (0.2, 5.0);

/// The geometric means of the median ratios, over the timed workloads that both ran.
fn means(record: &Record, view: &View) -> Vec<Row> {
    let (peers, base) = (record.peers(), view.base.as_str());
    let jemalloc = peers.contains(&"jemalloc") && base != "jemalloc";
    let (workloads, mut means) = (timed(record), Record::default());
    for base in std::iter::once(base).chain(jemalloc.then_some("jemalloc")) {
        for (what, figure) in [("time", TIME), ("peak RSS", PEAK)] {
            for peer in &peers {
                let ratio = |case: &&str| {
                    let median = record.compare(case, peer, base, figure)?.median;
                    Some(median.clamp(CARRYING.0, CARRYING.1))
                };
                let ratios: Vec<f64> = workloads.iter().filter_map(ratio).collect();
                let mean = geometric_mean(&ratios).map(|mean| Figure::number(MEAN, mean));
                means.push(
                    &format!("{base}, {what}"),
                    peer,
                    0,
                    mean.into_iter().collect(),
                );
            }
        }
    }
    means.rows
}

const MEAN: &str = "geometric mean of the ratios";

fn mean_table(record: &Record, view: &View) -> String {
    let means = Record {
        rows: means(record, view),
        ..Record::default()
    };
    let count = timed(record).len();
    let title = format!(
        "Geometric means over all {count} timed rows, a ratio counted as {} to {}",
        CARRYING.0, CARRYING.1
    );
    let rows = means.cases();
    section(&title, "against", (&rows, &record.peers()), |case, peer| {
        means
            .median(case, peer, MEAN)
            .map(|mean| format!("{mean:.3}"))
    })
}

/// A ratio, marked if it is not significant.
fn verdict(comparison: Comparison) -> String {
    let mark = if comparison.separable() { "" } else { "~" };
    format!("{mark}{:.2}", comparison.median)
}

/// The base's own number, with its unit.
fn absolute(value: f64, figure: &str) -> String {
    match figure {
        PEAK => format!("{:.1} MiB", value / 1_024.0),
        _ if value >= 1e6 => format!("{:.1} ms", value / 1e6),
        _ => format!("{value:.1} ns"),
    }
}

/// A number with significant digits only.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 10_000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Ratios beyond these limits are drawn at the edge.
const RANGE: (f64, f64) = (0.25, 8.0);
const TICKS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// The ratios to the base: a row a workload, a dot a peer. Hollow dots are not separable from the
/// base; the whisker spans the quartiles.
fn picture(record: &Record, view: &View) -> Option<String> {
    let (base, names) = (view.base.as_str(), timed(record));
    let rows = Axis::names(names.iter().copied());
    let series = |peer: &str, figure: &str| {
        let point = |row: usize| {
            let ratio = record.compare(names[row], peer, base, figure)?;
            let mut point = Point::at(ratio.median, row as f64 + 0.5);
            (point.x_spread, point.is_hollow) = (Some(ratio.quartiles), !ratio.separable());
            Some(point)
        };
        let points = (0..names.len()).filter_map(point).collect();
        Series::new(peer, Stroke::of_peer(peer), Draw::Dots, points)
    };
    let mut others = record.peers();
    others.retain(|peer| *peer != base);
    let panel = |what: &str, figure: &str, y: Axis| Panel {
        title: format!("{what}, {base} = 1 (left is better; hollow: not separable)"),
        x: Axis::logarithmic(RANGE, TICKS.map(|tick| (tick, tick.to_string())).into()),
        y,
        marks: vec![(1.0, String::new())],
        series: others.iter().map(|peer| series(peer, figure)).collect(),
    };
    let panels = [
        panel("time", TIME, rows.clone()),
        panel("peak RSS", PEAK, rows.unnamed()),
    ];
    let layout = Layout(2, (400.0, 22.0 * names.len() as f64), (130.0, 30.0));
    Some(svg(&[], layout, &panels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rounds: u32) -> Record {
        let mut record = Record::default();
        for round in 0..rounds {
            for (peer, ns_per_op, peak_rss_kib) in [("glibc", 10.0, 100), ("jemalloc", 20.0, 50)] {
                let figures = vec![
                    Figure::nanoseconds(TIME, ns_per_op * f64::from(round + 1)),
                    Figure::kib(PEAK, peak_rss_kib),
                    Figure::count(MINOR, 1),
                ];
                record.push("fifo", peer, round, figures);
            }
        }
        record
    }

    fn view() -> View {
        View {
            base: "glibc".into(),
        }
    }

    #[test]
    fn a_ratio_says_when_it_proves_nothing() {
        let text = tables(&record(10), &view());
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("│ fifo"))
            .collect();
        assert!(
            rows[0].contains("55.0 ns") && rows[0].contains(" 2.00"),
            "{text}"
        );
        assert!(
            rows[1].contains("0.1 MiB") && rows[1].contains(" 0.50"),
            "{text}"
        );
        assert!(text.contains("2.000") && text.contains("0.500"), "{text}");
        assert!(tables(&record(5), &view()).contains("~2.00"));
    }

    #[test]
    fn the_picture_has_a_dot_a_peer_and_panel() {
        let picture = picture(&record(1), &view()).unwrap();
        assert_eq!(picture.matches("<circle").count(), 2);
        assert!(picture.contains(">fifo</text>"));
    }
}
