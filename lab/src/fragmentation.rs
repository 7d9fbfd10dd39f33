//! The cost of holes between blocks: resident memory after each step of one pattern.

use std::time::Duration;

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::record::Figure;
use crate::engine::settings::{self, Settings};
use crate::peers::locate::Ready;
use crate::run;

/// The cost of holes between live blocks.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fragmentation",
    about: "The cost of holes between live blocks: 90 % freed, then the same bytes in larger \
        blocks",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::number("blocks", "NUMBER", (1, u32::MAX as u64))
                .default_value("1000000")
                .help("Number of small blocks, of which 90 % are freed"),
            settings::rounds(),
            settings::quick(),
            settings::seed(),
        ]
    },
    run: carry_out,
    ..PLAIN
};

/// The name of the only case in the record.
const CASE: &str = "fragmentation";

const SLEEP: Duration = Duration::from_secs(2);
/// The sleep of a quick run; below, its largest number of blocks.
const QUICK_SLEEP: Duration = Duration::from_millis(50);
const QUICK_BLOCKS: u64 = 20_000;

/// The worker's key, and the figure's name.
const STEPS: [(&str, &str); 8] = [
    ("start", "resident before"),
    ("filled", "resident with all small blocks"),
    ("freed", "resident when 90 % are freed"),
    ("live", "asked for and live then"),
    ("slept", "resident after the sleep"),
    ("filled again", "resident with the larger blocks"),
    ("live again", "asked for and live at the end"),
    ("peak", "resident at the peak"),
];

/// Runs the pattern under every peer, one process after the other.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let blocks = settings.within("blocks", QUICK_BLOCKS);
    let sleep = if settings.is_quick() {
        QUICK_SLEEP
    } else {
        SLEEP
    };
    let (sleep, seed) = (sleep.as_millis() as u64, settings.number("seed"));
    let rounds = settings.rounds(1);
    let peers = available_peers(settings)?;
    let options = [
        ("rounds", rounds.to_string()),
        ("blocks", blocks.to_string()),
        ("milliseconds of sleep", sleep.to_string()),
        ("seed", seed.to_string()),
    ];
    campaign.head(&options, &peers);
    let numbers = [blocks, sleep, seed].map(|number| number.to_string());
    campaign.rounds(rounds, (&[CASE], &peers), |_, peer| once(&numbers, peer));
    Ok(Ended::Measured)
}

/// One process under one peer.
fn once(numbers: &[String], peer: &Ready) -> anyhow::Result<Vec<Figure>> {
    let job = ["fragmentation".to_string()];
    let report = run::ask(job.iter().chain(numbers), peer)?;
    let figure = |(key, name): (&str, &str)| {
        let value: f64 = run::needed(&report, key)?.parse()?;
        Ok(Figure::bytes(name, value))
    };
    STEPS.into_iter().map(figure).collect()
}
