//! Measures what it would save to let half-empty pages share physical ones (Powers, Tench, Berger,
//! McGregor: "Mesh: Compacting Memory Management for C/C++ Applications", PLDI 2019). Two pages of
//! one size class whose live blocks do not overlap become one page that is mapped twice.
//!
//! Nothing is merged here. The worker allocates and frees blocks under Neap's own library, and
//! applies Mesh's search to the blocks that are then live in its slabs.
//!
//! | file | contents |
//! |---|---|
//! | `workload` | the workloads that leave the holes |
//! | `occupancy` | which parts of a page are live |
//! | `search` | pairs that do not overlap |
//! | `mappings` | the mappings that the kernel would have to keep |
//! | `prices` | the cost of a merge on this machine, and of pages that can be merged |

mod mappings;
mod occupancy;
mod prices;
mod search;
pub mod workload;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::figures::{self, Figure, Results};
use crate::peers::Ready;
use crate::rng::Rng;
use crate::run;
use occupancy::{Group, Live, PAGE, SLAB, Unit};
use workload::Workload;

/// Most rounds of a search; it ends earlier if a round merges nothing.
const MOST_ROUNDS: u64 = 32;

/// What to run.
pub struct Plan {
    /// The workloads that leave the holes.
    pub workloads: Vec<Workload>,
    /// Neap.
    pub neap: Ready,
    /// The number of rounds, each with another seed.
    pub rounds: u32,
    /// Blocks per workload.
    pub blocks: usize,
    /// The first round's seed.
    pub seed: u64,
}

/// Runs every workload, and measures the kernel's prices.
pub fn carry_out(plan: &Plan, advance: impl Fn()) -> Results {
    let mut results = Results::default();
    for round in 0..plan.rounds {
        for &workload in &plan.workloads {
            let told = once(plan, workload, plan.seed + u64::from(round));
            results.note((workload.name(), plan.neap.name, round), told);
            advance();
        }
        for (memory, told) in prices::all() {
            results.note(("prices", memory, round), told);
        }
    }
    results
}

/// One workload in a process of its own under Neap.
///
/// # Errors
/// If it fails, or used another malloc.
fn once(plan: &Plan, workload: Workload, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "mesh", workload.name()]);
    command.args([plan.blocks.to_string(), seed.to_string()]);
    let report = run::output(command.env("LD_PRELOAD", &plan.neap.library))?;
    run::ensure_heap(&report, &plan.neap.library)?;
    let lines = report
        .lines()
        .filter_map(|line| line.strip_prefix("figure="));
    let figures: Vec<Figure> = lines.map(parse).collect::<anyhow::Result<_>>()?;
    ensure!(!figures.is_empty(), "the worker told no figure");
    Ok(figures)
}

/// Reads `UNIT VALUE NAME`.
fn parse(line: &str) -> anyhow::Result<Figure> {
    let mut parts = line.splitn(3, ' ');
    let mut next = || parts.next().context("a short figure");
    let (unit, value, name) = (next()?, next()?.parse()?, next()?);
    let units = [
        figures::Unit::Bytes,
        figures::Unit::Count,
        figures::Unit::Nanoseconds,
    ];
    let unit = units.into_iter().find(|known| known.name() == unit);
    Ok(Figure {
        name: name.to_string(),
        unit: unit.context("an unknown unit")?,
        value,
    })
}

/// In the worker: carries the workload out, and prints what merging would save.
///
/// # Errors
/// If a block is in none of Neap's slabs.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn tell(workload: Workload, count: usize, seed: u64) -> anyhow::Result<()> {
    let mut rng = Rng::new(seed);
    let mut blocks = workload.carry_out(count, &mut rng);
    let asked = blocks.bytes() as f64;
    let live: Vec<Live> = blocks
        .live()
        .map(occupancy::live)
        .collect::<anyhow::Result<_>>()?;
    let mut figures = vec![Figure::bytes("asked for and live", asked)];
    for grain in [SLAB, PAGE] {
        figures.extend(study(&live, grain, &mut rng));
    }
    for Figure { name, unit, value } in figures {
        println!("figure={} {value} {name}", unit.name());
    }
    blocks.free_all();
    Ok(())
}

/// The savings at one granularity: slabs, or OS pages.
fn study(live: &[Live], grain: usize, rng: &mut Rng) -> Vec<Figure> {
    let mut groups = occupancy::groups(live, grain);
    let what = if grain == SLAB { "slabs" } else { "pages" };
    let mut figures = vec![resident(format!("{what} in use"), &groups, grain)];
    let (mut state, start) = (State::default(), Instant::now());
    state.advance(&mut groups, rng);
    figures.extend(state.figures(&format!("{what} after one round"), &groups, grain, start));
    while state.rounds < MOST_ROUNDS && state.advance(&mut groups, rng) > 0 {}
    figures.extend(state.figures(&format!("{what} after all rounds"), &groups, grain, start));
    figures.push(Figure::count(format!("{what}: rounds"), state.rounds));
    figures
}

fn resident(name: String, groups: &[Group], grain: usize) -> Figure {
    let units: usize = groups.iter().map(Vec::len).sum();
    Figure::bytes(name, (units * grain) as f64)
}

/// Pages in use, if all pages without a live block are given back.
fn pages_in_use(when: &str, groups: &[Group]) -> Figure {
    let pages: usize = groups.iter().flatten().map(Unit::pages_in_use).sum();
    Figure::bytes(format!("{when}: pages in use"), (pages * PAGE) as f64)
}

/// A search for pairs in progress.
#[derive(Default)]
struct State {
    rounds: u64,
    merges: u64,
    copied: usize,
}

impl State {
    /// One more round; returns how many units it merged.
    fn advance(&mut self, groups: &mut [Group], rng: &mut Rng) -> usize {
        let round = search::round(groups, rng);
        self.rounds += 1;
        self.merges += round.merges as u64;
        self.copied += round.copied;
        round.merges
    }

    fn figures(&self, when: &str, groups: &[Group], grain: usize, start: Instant) -> [Figure; 6] {
        let searched = start.elapsed().as_nanos() as f64;
        let mappings = mappings::added(groups, grain) as u64;
        [
            resident(when.to_string(), groups, grain),
            pages_in_use(when, groups),
            Figure::count(format!("{when}: merges"), self.merges),
            Figure::count(format!("{when}: mappings more"), mappings),
            Figure::bytes(format!("{when}: copied"), self.copied as f64),
            Figure::nanoseconds(format!("{when}: searched for"), searched),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_pages_become_one_each() {
        let block = |number: usize| Live {
            address: (16 + number) * SLAB + number % 2 * 2_048,
            bytes: 2_048,
        };
        let live: Vec<Live> = (0..64).map(block).collect();
        let figures = study(&live, PAGE, &mut Rng::new(1));
        let value = |name: &str| figures.iter().find(|f| f.name == name).unwrap().value;
        assert_eq!(value("pages in use"), 64.0 * 4_096.0);
        let left = value("pages after all rounds");
        assert!(left < 40.0 * 4_096.0, "{left}");
        let merges = value("pages after all rounds: merges");
        assert_eq!(left, (64.0 - merges) * 4_096.0);
        assert_eq!(value("pages after all rounds: pages in use"), left);
        assert_eq!(value("pages after all rounds: copied"), merges * 2_048.0);
        assert_eq!(value("pages after all rounds: mappings more"), 2.0 * merges);
    }

    #[test]
    fn a_line_of_the_worker_is_read() {
        let figure = Figure::bytes("pages in use", 12.0);
        assert_eq!(parse("bytes 12 pages in use").unwrap(), figure);
        assert!(parse("parsecs 12 x").is_err() && parse("bytes 12").is_err());
    }
}
