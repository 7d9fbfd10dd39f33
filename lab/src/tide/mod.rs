//! The published experiment on the heap, the stacks and the system: five steps that allocate and
//! drop memory, and the resident size after each. Every engine takes every run.
//!
//! | file | contents |
//! |---|---|
//! | `engines` | the rows: a heap, its stacks, a program |
//! | `follow` | one process through its steps, observed from outside |
//! | `observed` | the steps of a run; a record, read as steps |
//! | `views` | the tables and the picture |

mod engines;
mod follow;
mod observed;
mod views;

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available};
use crate::engine::settings::{self, Settings};
use crate::machine;
use crate::pagemap::page_size;
use crate::peers::locate::Places;
use crate::work::tide::protocol::{MIB, Sizes};
use engines::Present;
use follow::{follow, thinned};
use observed::Run;

/// The write-up's five steps.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tide",
    about: "The write-up's five steps: what heap and coroutine stacks take, share and give back",
    settings: || {
        vec![
        settings::neap(),
        settings::peers().help(
            "Only these engines: go, go-freed, a peer (coroutines on corosensei's stacks), \
                neap-heap \
             (the same under Neap), neap (heap and stacks)",
        ),
        settings::names("only", "Only these runs: waited, at-once, stacks-first"),
        settings::switch("at-once", "Only the runs without a wait between the steps")
            .conflicts_with("only"),
        settings::number("coroutines", "NUMBER", (0, u64::MAX))
            .default_value("50000")
            .help("Number of coroutines"),
        settings::number("stack-kib", "KIB", (8, 8_192))
            .default_value("64")
            .help("Address space per stack in KiB, including its guard page"),
        settings::number("mib", "MIB", (1, 65_536))
            .default_value("100")
            .help("What the heap allocates and drops, in MiB"),
        settings::text("blocks", "BYTES").default_value("4K").help(
            "The size of the heap's blocks (1K is 1,024), or `one` for a single block; Go always \
             uses one",
        ),
        settings::number("wait", "MS", (0, 60_000))
            .default_value("2000")
            .help("The wait after a step, in milliseconds"),
        settings::seconds().default_value("900"),
    ]
    },
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| views::picture(record),
    ..PLAIN
};

/// A sample within this many KiB of the last one kept is dropped.
const TOLERANCE: u64 = 512;

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let sizes = sizes(settings)?;
    let mut runs = settings.chosen(("only", "run"), Run::ALL.to_vec(), |run| run.name())?;
    runs.retain(|run| !settings.is_on("at-once") || *run != Run::Waited);
    let places = Places::new(settings.path("neap"))?;
    let chosen = engines::select(&settings.names("peers"))?;
    let engines = available(&chosen, |engine| engines::locate(engine, &places))?;
    let wait = Duration::from_millis(settings.number("wait"));
    let options = [
        ("heap MB", settings.number("mib").to_string()),
        ("blocks", sizes.blocks.to_string()),
        ("coroutines", sizes.coroutines.to_string()),
        ("stack KiB", settings.number("stack-kib").to_string()),
        ("wait ms", wait.as_millis().to_string()),
        (
            "max_map_count",
            machine::first_line("/proc/sys/vm/max_map_count"),
        ),
    ];
    campaign.head(&options, &[]);
    engines
        .iter()
        .for_each(|engine| campaign.add_version(engine.name, &engine.version()));
    campaign
        .progress
        .expect((engines.len() * runs.len()) as u64);
    for engine in &engines {
        for &run in &runs {
            one_run(campaign, (engine, run), &sizes, wait);
        }
    }
    Ok(Ended::Measured)
}

fn sizes(settings: &Settings) -> anyhow::Result<Sizes> {
    let sizes = Sizes {
        heap_bytes: (settings.number("mib") * MIB) as usize,
        blocks: settings.text("blocks").parse().context("--blocks")?,
        coroutines: settings.number("coroutines") as usize,
        stack_bytes: (settings.number("stack-kib") << 10) as usize,
    };
    ensure!(sizes.coroutines > 0, "no coroutines");
    let pages = (sizes.stack_bytes as u64).is_multiple_of(page_size());
    ensure!(pages, "a stack is whole pages of {} KiB", page_size() >> 10);
    sizes.ensure_room()?;
    Ok(sizes)
}

fn one_run(campaign: &mut Campaign, (engine, run): (&Present, Run), sizes: &Sizes, wait: Duration) {
    let what = format!("{} {}", engine.name, run.name());
    if campaign.is_spent(|| format!("before {what}")) {
        return;
    }
    campaign.progress.phase(&what);
    match follow(engine, sizes, run, wait) {
        Ok(followed) => {
            for seen in &followed.steps {
                let case = observed::case(run, seen.step);
                campaign
                    .record
                    .push(&case, engine.name, 0, observed::figures(seen));
            }
            let samples = thinned(&followed.samples, TOLERANCE);
            let samples = observed::sample_figures(&samples);
            campaign.note((run.name(), engine.name, 0), Ok(samples));
        }
        Err(error) => campaign.fail(format!("{what}: {error:#}")),
    }
}
