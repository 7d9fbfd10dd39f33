//! How long single calls take: the quantiles of malloc and free in one thread, while another frees
//! memory in bursts.

use std::fmt::Display;

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::{Figure, Record};
use crate::engine::settings::{self, Settings};
use crate::engine::table::duration;
use crate::peers::locate::Ready;
use crate::run;
use crate::work::latency::ONE_OF;

/// The slowest calls of a thread.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "The slowest calls of malloc and free in one thread, while another frees memory in bursts",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::number("calls", "NUMBER", (100_000, 100_000_000))
                .default_value("10000000")
                .help("Calls of either kind"),
            settings::rounds(),
            settings::quick(),
        ]
    },
    run: carry_out,
    picture: |record, _| Some(picture(record)),
    ..PLAIN
};

/// The name of the only case in the record.
const CASE: &str = "latency";
const CALLS: [&str; 2] = ["malloc", "free"];
const QUICK_CALLS: u64 = 100_000;

/// Runs the work under every peer, one process after the other.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let (rounds, calls) = (settings.rounds(6), settings.within("calls", QUICK_CALLS));
    let peers = available_peers(settings)?;
    let options = [("rounds", rounds.to_string()), ("calls", calls.to_string())];
    campaign.head(&options, &peers);
    campaign.rounds(rounds, (&[CASE], &peers), |_, peer| once(calls, peer));
    Ok(Ended::Measured)
}

/// One process under one peer.
fn once(calls: u64, peer: &Ready) -> anyhow::Result<Vec<Figure>> {
    let report = run::ask(["latency", &calls.to_string()], peer)?;
    let figure = |(call, number): (&str, usize)| {
        let value = run::needed(&report, &format!("{call}_{number}"))?.parse()?;
        Ok(Figure::nanoseconds(figure_name(call, number), value))
    };
    let all = CALLS.map(|call| ONE_OF.map(|number| (call, number)));
    all.into_iter().flatten().map(figure).collect()
}

fn figure_name(call: &str, number: impl Display) -> String {
    format!("{call}: 1 of {number} takes at least")
}

/// A panel for each call: the medians over the rounds, with their quartiles.
fn picture(record: &Record) -> String {
    let numbers = || ONE_OF.into_iter().map(|number| number as f64);
    let panel = |call: &&str| {
        let series = |peer: &str| {
            let points = numbers().filter_map(|at| point(record, call, peer, at));
            Series::new(peer, Stroke::of_peer(peer), Draw::Dotted, points.collect())
        };
        Panel {
            title: call.to_string(),
            x: Axis::decades(numbers(), |at| at.to_string()),
            y: Axis::decades([10.0, 100_000.0].into_iter(), duration),
            marks: Vec::new(),
            series: record.peers().into_iter().map(series).collect(),
        }
    };
    let title = "One of N calls takes at least this long; another thread frees in bursts";
    let layout = Layout(2, (420.0, 320.0), (60.0, 60.0));
    svg(&[title], layout, &CALLS.each_ref().map(panel))
}

fn point(record: &Record, call: &str, peer: &str, at: f64) -> Option<Point> {
    let spread = record.spread(CASE, peer, &figure_name(call, at))?;
    let y_spread = Some(spread.quartiles);
    let point = Point::at(at, spread.median);
    Some(Point { y_spread, ..point })
}
