//! Every run of every engine, then the prices in interleaved rounds.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::engines::{self, Present};
use super::follow::{follow, thinned};
use super::observed::{self, PRICE};
use super::steps::Run;
use super::{curves, views};
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN, available};
use crate::engine::figure::Figure;
use crate::engine::settings::{
    JSON, NEAP, PEERS, RECORDS, ROUNDS, SECONDS, SEED, Setting, Settings,
};
use crate::pagemap::page_size;
use crate::peers::{self, Places, Ready};
use crate::work::tide::prices::Priced;
use crate::work::tide::sizes::{MB, Sizes};
use crate::work::tide::stacks::StackKind;
use crate::{command, machine, report, run};

/// The write-up's five steps.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tide",
    about: "The write-up's five steps: what heap and coroutine stacks take, share and give back",
    settings: &[
        NEAP,
        PEERS.about(
            "Only these engines: go, go-freed, a peer (coroutines on corosensei's stacks), \
                neap-heap \
             (the same under Neap), neap (heap and stacks)",
        ),
        Setting::names("only", "Only these runs: waited, at-once, stacks-first"),
        Setting::switch("at-once", "Only the runs without a wait between the steps")
            .without(&["only"]),
        Setting::number("coroutines", "NUMBER", (0, u64::MAX))
            .default("50000")
            .about("Number of coroutines"),
        Setting::number("stack-kib", "KIB", (8, 8_192))
            .default("64")
            .about("Address space per stack in KiB, including its guard page"),
        Setting::number("mb", "MB", (1, 65_536))
            .default("100")
            .about("What the heap allocates and drops, in MB"),
        Setting::text("blocks", "BYTES").default("4K").about(
            "The size of the heap's blocks (1K is 1,024), or `one` for a single block; Go always \
             uses one",
        ),
        Setting::number("wait", "MS", (0, 60_000))
            .default("2000")
            .about("The wait after a step, in milliseconds"),
        Setting::switch(
            "prices",
            "Only the prices: creating, ending and switching coroutines on both kinds of stacks",
        )
        .without(&["peers", "only", "at-once", "no-prices"]),
        Setting::switch("no-prices", "Skip the prices"),
        ROUNDS
            .default("11")
            .about("Interleaved rounds of the prices"),
        Setting::number("burst", "NUMBER", (1, 30_000))
            .default("5000")
            .about("Coroutines per burst of the prices"),
        SECONDS.default("900"),
        JSON,
        RECORDS,
        SEED,
    ],
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| curves::svg(record),
    ..PLAIN
};

/// A sample within this many KiB of the last one kept is dropped.
const TOLERANCE: u64 = 512;

/// The compared kinds of stacks.
const KINDS: [StackKind; 2] = [StackKind::Own, StackKind::Neap];

impl Named for StackKind {
    fn name(&self) -> String {
        StackKind::name(*self).to_string()
    }
}

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let sizes = sizes(settings)?;
    let mut runs = settings.chosen(("only", "run"), &Run::ALL, Run::name)?;
    runs.retain(|run| !settings.is_on("at-once") || *run != Run::Waited);
    let places = Places::new(settings.path("neap"))?;
    let only_prices = settings.is_on("prices");
    let engines = match only_prices {
        true => Vec::new(),
        false => {
            let chosen = engines::select(&settings.names("peers"))?;
            available(&chosen, |engine| engines::locate(engine, &places))?
        }
    };
    let priced = priced_library(settings, &places)?;
    let wait = Duration::from_millis(settings.number("wait"));
    let options = [
        ("heap MB", settings.number("mb").to_string()),
        ("blocks", sizes.blocks.to_string()),
        ("coroutines", sizes.coroutines.to_string()),
        ("stack KiB", settings.number("stack-kib").to_string()),
        ("wait ms", wait.as_millis().to_string()),
        ("seed", settings.number("seed").to_string()),
        (
            "max_map_count",
            machine::first_line("/proc/sys/vm/max_map_count"),
        ),
    ];
    campaign.head(&options, &[]);
    engines
        .iter()
        .for_each(|engine| campaign.add_version(engine.name, &engine.version()));
    if let Some(neap) = &priced {
        let version = format!("{} (heap under the prices)", neap.version);
        campaign.add_version("the prices", &version);
    }
    if only_prices {
        campaign.kept_as = "tide-prices";
    }
    campaign
        .progress
        .expect((engines.len() * runs.len()) as u64);
    for engine in &engines {
        for &run in &runs {
            one_run(campaign, (engine, run), &sizes, wait);
        }
    }
    if let Some(neap) = &priced {
        let burst = settings.number("burst");
        campaign.rounds(settings.rounds(1), (&[PRICE], &KINDS), |_, kind| {
            prices(neap, *kind, sizes.stack_bytes, burst)
        });
    }
    Ok(Ended::Measured)
}

fn sizes(settings: &Settings) -> anyhow::Result<Sizes> {
    let sizes = Sizes {
        heap_bytes: (settings.number("mb") * MB) as usize,
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

/// Neap's library, the heap under both kinds of stacks, if prices are measured. They need Neap's
/// stacks. Without them they are left out, unless only prices were requested.
fn priced_library(settings: &Settings, places: &Places) -> anyhow::Result<Option<Ready>> {
    let only = settings.is_on("prices");
    if !only && (!settings.names("peers").is_empty() || settings.is_on("no-prices")) {
        return Ok(None);
    }
    let neap = peers::find("neap").context("no peer neap")?;
    let neap = peers::locate(neap, places).and_then(|neap| {
        engines::ensure_stacks(&neap.library)?;
        Ok(neap)
    });
    match neap {
        Ok(neap) => Ok(Some(neap)),
        Err(reason) if only => Err(reason),
        Err(reason) => {
            eprintln!("the prices are left out: {reason:#}");
            Ok(None)
        }
    }
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

/// Times one kind of stacks in a process of its own.
fn prices(
    neap: &Ready,
    kind: StackKind,
    stack_bytes: usize,
    burst: u64,
) -> anyhow::Result<Vec<Figure>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["worker", "tide-prices", kind.name()])
        .args([stack_bytes.to_string(), burst.to_string()])
        .env("LD_PRELOAD", &neap.library);
    let report = command::output(&mut command)?;
    run::ensure_heap(&report, &neap.library)?;
    parse(&report)
}

/// Prints, in the worker, what [`parse`] reads in the harness.
pub fn print(prices: &[f64; 4]) {
    for (price, ns) in Priced::ALL.iter().zip(prices) {
        println!("{}={ns:.2}", price.name());
    }
}

fn parse(report: &str) -> anyhow::Result<Vec<Figure>> {
    let figure = |price: Priced| {
        let ns: f64 = report::needed(report, price.name())?.parse()?;
        ensure!(ns > 0.0, "{} took no time", price.name());
        Ok(Figure::nanoseconds(price.name(), ns))
    };
    Priced::ALL.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_by_their_words() {
        let report = "cold-burst=4.5\nwarm-burst=3\ncreate-end=2\nswitch=1.25\nheap=/x\n";
        let ns: Vec<_> = parse(report)
            .unwrap()
            .iter()
            .filter_map(Figure::as_number)
            .collect();
        assert_eq!(ns, [4.5, 3.0, 2.0, 1.25]);
        assert!(parse(&report.replace("switch=1.25", "switch=0")).is_err());
        assert!(parse(&report.replace("switch", "swap")).is_err());
    }
}
