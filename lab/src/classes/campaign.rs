//! All parts of the experiment, each as a case of the record.

use clap::ValueEnum;

use super::go::Go;
use super::measure::{self, of_size};
use super::recorded::Sizes;
use super::tables::{self, ClassTable, LARGEST};
use super::{Engine, waste};
use crate::figures::{Figure, Results};
use crate::rng::Rng;

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// What a block takes beyond the requested bytes.
    Overhead,
    /// The tables over all sizes, and whether the peers' classes match them.
    Tables,
    /// The tables over the sizes of real programs.
    Programs,
    /// The write-up's benchmark.
    Go,
    /// Boxed values of 24 bytes.
    Boxed,
}

/// What to run.
pub struct Plan {
    /// The parts.
    pub parts: Vec<Part>,
    /// The heaps to measure.
    pub engines: Vec<Engine>,
    /// The sizes of real programs.
    pub programs: Vec<Sizes>,
    /// Rounds of the timed parts.
    pub rounds: u32,
    /// The amount of work.
    pub terms: Terms,
    /// Seeds the order within a round.
    pub seed: u64,
}

/// The amount of work.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The largest size for which the peers' classes are measured.
    pub largest: usize,
    /// Live blocks among which distances are measured.
    pub blocks: usize,
    /// Live boxes.
    pub boxes: usize,
    /// Clock readings per process.
    pub readings: usize,
    /// A value for Go's `-benchtime`.
    pub go_time: &'static str,
}

/// The sizes whose blocks are measured.
const SIZES: [usize; 12] = [1, 8, 16, 24, 32, 48, 64, 100, 200, 500, 1_000, 4_000];

/// The names of the parts' cases in the record.
pub const BOOKKEEPING: &str = "bookkeeping of a block by kind of allocator";
/// See [`BOOKKEEPING`].
pub const DISTANCES: &str = "bytes from one block to the next";
/// See [`BOOKKEEPING`].
pub const TABLES: &str = "waste of the size classes; part of the block";
/// See [`BOOKKEEPING`].
pub const AGREEMENT: &str = "sizes whose usable bytes were measured";
/// See [`BOOKKEEPING`].
pub const SHARE: &str = "waste in real programs; part of the blocks";
/// See [`BOOKKEEPING`].
pub const BYTES: &str = "waste in real programs; bytes a block";
/// See [`BOOKKEEPING`].
pub const GO: &str = "five strings sorted in Go";
/// See [`BOOKKEEPING`].
pub const BOXED: &str = "boxed values of 24 bytes in Rust";

/// The version of the installed Go, such as `go1.26.8`.
pub fn go_version() -> Option<String> {
    Go::here().ok().map(|go| go.version)
}

/// Carries out the plan; calls `tell` before each part.
pub fn carry_out(plan: &Plan, tell: impl Fn(&str)) -> Results {
    let mut results = Results::default();
    for part in &plan.parts {
        match part {
            Part::Overhead => overhead(plan, &mut results, &tell),
            Part::Tables => tables(plan, &mut results, &tell),
            Part::Programs => programs(plan, &mut results),
            Part::Go => go(plan, &mut results, &tell),
            Part::Boxed => boxed(plan, &mut results, &tell),
        }
    }
    results
}

/// Bytes that hold a block's size or whether it is free, by kind of allocator.
const KINDS: [(&str, f64); 3] = [("bump", 0.0), ("header", 8.0), ("size class", 1.0 / 8.0)];

fn overhead(plan: &Plan, results: &mut Results, tell: &impl Fn(&str)) {
    for (kind, bytes) in KINDS {
        let figures = vec![
            Figure::block_bytes("a block", bytes),
            Figure::share("of a block of 1 B", bytes),
            Figure::share("of a block of 24 B", bytes / 24.0),
            Figure::share("of a block of 1000 B", bytes / 1_000.0),
        ];
        results.note((BOOKKEEPING, kind, 0), Ok(figures));
    }
    for (kind, bytes) in [("bump", 0), ("header", 8)] {
        let figure = |size: &usize| {
            let taken = (size + bytes).next_multiple_of(8);
            Figure::block_bytes(of_size(*size), taken as f64)
        };
        let figures = SIZES.iter().map(figure).collect();
        results.note((DISTANCES, kind, 0), Ok(figures));
    }
    for engine in &plan.engines {
        tell(&format!("distances under {}", engine.name()));
        let figures = measure::distances(engine, &SIZES, plan.terms.blocks);
        results.note((DISTANCES, engine.name(), 0), figures);
    }
}

fn tables(plan: &Plan, results: &mut Results, tell: &impl Fn(&str)) {
    let tables = tables::all();
    for table in &tables {
        let figures = waste::of_all_sizes(table);
        results.note((TABLES, table.name, 0), Ok(figures));
    }
    for engine in &plan.engines {
        tell(&format!("the classes of {}", engine.name()));
        let is_its = |table: &&ClassTable| {
            table.name == engine.name() || table.peers.contains(&engine.name())
        };
        match tables.iter().find(is_its) {
            Some(table) => agreement(table, engine, plan.terms.largest, results),
            None => measured_only(engine, results),
        }
    }
    if let Err(reason) = go_agreement(results) {
        results.left_out.push(format!("Go's own table: {reason:#}"));
    }
}

/// Checks that the peer's malloc has the classes of its table.
fn agreement(table: &ClassTable, engine: &Engine, largest: usize, results: &mut Results) {
    let told = measure::usable(engine, largest).and_then(|measured| {
        match tables::difference(table, &measured) {
            None => Ok(vec![
                Figure::count("sizes", measured.len() as u64),
                Figure::count("unlike the table", 0),
            ]),
            Some((sizes, count)) => anyhow::bail!(
                "{count} sizes between {} and {} B have other usable bytes than the table says",
                sizes.start(),
                sizes.end()
            ),
        }
    });
    results.note((AGREEMENT, engine.name(), 0), told);
}

/// A peer without a derived table: its table is what was measured.
fn measured_only(engine: &Engine, results: &mut Results) {
    let told = measure::usable(engine, LARGEST).map(|measured| {
        let mut blocks = measured;
        blocks.dedup();
        let table = ClassTable {
            name: engine.name(),
            source: "measured",
            peers: &[],
            header: 0,
            blocks,
        };
        waste::of_all_sizes(&table)
    });
    results.note((TABLES, engine.name(), 0), told);
}

fn go_agreement(results: &mut Results) -> anyhow::Result<()> {
    let here = Go::here()?.classes()?;
    let derived = tables::find("go-1.16").map(|table| table.blocks);
    let told = match Some(&here) == derived.as_ref() {
        true => Ok(vec![Figure::count(
            "classes in the sources here",
            here.len() as u64,
        )]),
        false => Err(anyhow::anyhow!(
            "the Go that is here has other classes: {here:?}"
        )),
    };
    results.note((AGREEMENT, "go-1.16", 0), told);
    Ok(())
}

fn programs(plan: &Plan, results: &mut Results) {
    for table in tables::all() {
        let lost = |sizes: &Sizes| (sizes.program.clone(), waste::of_program(&table, sizes));
        let all: Vec<_> = plan.programs.iter().map(lost).collect();
        let shares = all
            .iter()
            .map(|(name, lost)| Figure::share(name.as_str(), lost.share));
        results.note((SHARE, table.name, 0), Ok(shares.collect()));
        let bytes = all
            .iter()
            .map(|(name, lost)| Figure::block_bytes(name.as_str(), lost.bytes));
        results.note((BYTES, table.name, 0), Ok(bytes.collect()));
    }
}

fn go(plan: &Plan, results: &mut Results, tell: &impl Fn(&str)) {
    let go = match Go::here() {
        Ok(go) => go,
        Err(reason) => return results.left_out.push(format!("{GO}: {reason:#}")),
    };
    tell(&format!("{GO}, {}", go.version));
    match go.benchmarks(plan.rounds, plan.terms.go_time) {
        Ok(rounds) => {
            for (round, figures) in (0..).zip(rounds) {
                results.note((GO, "go", round), Ok(figures));
            }
        }
        Err(reason) => results.note((GO, "go", 0), Err(reason)),
    }
}

fn boxed(plan: &Plan, results: &mut Results, tell: &impl Fn(&str)) {
    let mut rng = Rng::new(plan.seed);
    let mut order: Vec<usize> = (0..plan.engines.len()).collect();
    for round in 0..plan.rounds {
        tell(&format!("boxes, round {} of {}", round + 1, plan.rounds));
        rng.shuffle(&mut order);
        for &at in &order {
            let engine = &plan.engines[at];
            let figures = measure::boxed(engine, plan.terms.boxes, plan.terms.readings);
            results.note((BOXED, engine.name(), round), figures);
        }
    }
    in_the_plans_order(plan, results);
}

/// Restores the plan's order of columns; rounds run in shuffled order.
fn in_the_plans_order(plan: &Plan, results: &mut Results) {
    let place = |name: &str| plan.engines.iter().position(|engine| engine.name() == name);
    let first = results.rows.iter().position(|row| row.case == BOXED);
    if let Some(first) = first {
        results.rows[first..].sort_by_key(|row| place(&row.peer));
    }
}
