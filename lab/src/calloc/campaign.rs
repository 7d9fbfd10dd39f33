//! Every cell under every allocator in interleaved rounds, and once with accounting.

use std::time::Duration;

use super::cells::{self, Cell, Reach};
use super::{measure, views};
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, Kept, PLAIN, available_peers};
use crate::engine::settings::{
    JSON, NEAP, PEERS, QUICK, RECORDS, ROUNDS, SECONDS, SEED, Setting, Settings,
};
use crate::machine;
use crate::peers::Ready;

/// The write-up's calloc and free in a loop.
pub const EXPERIMENT: Experiment = Experiment {
    name: "calloc",
    about: "The write-up's calloc and free in a loop: time, faults, zeroed bytes, system calls",
    settings: &[
        NEAP,
        PEERS,
        Setting::names(
            "only",
            "Only these sizes (64K 256K 1M 10M 100M 1000M 2000M 4G) and patterns (none first \
             sixteenth all)",
        ),
        ROUNDS.default("5"),
        SECONDS.default("3600"),
        Setting::number("milliseconds", "NUMBER", (0, 1 << 32))
            .default("300")
            .about(
                "Duration of a timed run; slow pairs take up to one pair beyond four times that",
            ),
        QUICK,
        JSON,
        RECORDS,
        SEED,
    ],
    kept: Kept::Always,
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(views::picture(record)),
    ..PLAIN
};

const QUICK_TIME: Duration = Duration::from_millis(5);

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let quick = settings.is_quick();
    let reach = if quick { Reach::Quick } else { Reach::Full };
    let memory = machine::available_bytes()?;
    let chosen = cells::choose(&settings.names("only"), reach, memory)?;
    let peers = available_peers(settings)?;
    let rounds = if quick { 1 } else { settings.rounds(1) };
    let time = match quick {
        true => QUICK_TIME,
        false => Duration::from_millis(settings.number("milliseconds")),
    };
    let options = [
        ("rounds", rounds.to_string()),
        ("milliseconds a timed run", time.as_millis().to_string()),
        ("seed", settings.number("seed").to_string()),
    ];
    campaign.head(&options, &peers);
    let cells = Cell::all(&chosen);
    chosen
        .left_out
        .into_iter()
        .for_each(|what| campaign.leave_out(what));
    let steps = (cells.len() * peers.len()) as u64;
    campaign.progress.expect(steps * (u64::from(rounds) + 1));
    // The accounts follow the first round, so a budget that ends early costs repetitions but no
    // columns of the report.
    for round in 0..rounds {
        let what = format!("round {} of {rounds}", round + 1);
        let timed = |_: &_, cell: &Cell, peer: &Ready| measure::timed(cell, peer, time);
        let all = (&cells[..], &peers[..]);
        if !campaign.round((round, &what), all, timed) {
            break;
        }
        if round == 0 {
            campaign.round((0, "the accounts"), all, |record, cell, peer| {
                let ns = record.median(&cell.name(), peer.name, measure::TIME);
                // Enough pairs for a fifth of a second. If the first round failed there is no
                // accounting; that failure is reported.
                let pairs = ns.map(|ns| (2e8 / ns).clamp(1.0, 100.0) as u64);
                pairs.map_or(Ok(Vec::new()), |pairs| {
                    measure::accounted(cell, peer, pairs)
                })
            });
        }
    }
    Ok(Ended::Measured)
}
