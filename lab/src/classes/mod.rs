//! The third published experiment: what a block takes beyond the requested bytes, and how much each
//! table of size classes wastes. Each part is a case of the record.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | the size classes of Go and of the peers as data, each with its source, and their waste |
//! | `sizes` | the sizes that real programs requested, as a record |
//! | `programs` | the programs, and how their sizes are read |
//! | `heaps` | the peers and the Rust program with Neap built in: usable bytes, distances, boxes |

mod heaps;
mod programs;
pub mod sizes;
mod tables;

use std::path::Path;

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::record::Figure;
use crate::engine::settings::{
    JSON, NEAP, PEERS, QUICK, RECORDS, RECORDS_FOLDER, ROUNDS, SEED, Setting, Settings,
};
use crate::names::named;
use crate::peers::Ready;
use heaps::Engine;
use sizes::Sizes;
use tables::{ClassTable, LARGEST};

/// What a block takes beyond the requested bytes, and what size classes waste.
pub const EXPERIMENT: Experiment = Experiment {
    name: "classes",
    about: "What a block takes beyond the requested bytes, and what size classes waste",
    settings: &[
        NEAP,
        PEERS.about("Only these (`neap` includes `neap-rust`, a Rust program with Neap built in)"),
        Setting::names(
            "only",
            "Only these parts: overhead, tables, programs, boxed",
        ),
        ROUNDS,
        QUICK,
        JSON,
        RECORDS,
        SEED,
        Setting::path("sizes", "FOLDER")
            .default(RECORDS_FOLDER)
            .about("The folder whose newest record of sizes is used"),
    ],
    run: carry_out,
    picture: |_, _| Some(tables::svg()),
    ..PLAIN
};

/// The rounds of a full run: the fewest that can separate two allocators.
const FULL_ROUNDS: u32 = 7;
const FULL: Terms = Terms {
    largest: LARGEST,
    blocks: 2_000,
    boxes: 1_000_000,
    readings: 15,
};
const QUICK_TERMS: Terms = Terms {
    largest: 2_048,
    blocks: 200,
    boxes: 20_000,
    readings: 1,
};

named! {
    /// A part of the experiment.
    pub enum Part {
        /// What a block takes beyond the requested bytes.
        Overhead = "overhead",
        /// The tables over all sizes, and whether the peers' classes match them.
        Tables = "tables",
        /// The tables over the sizes of real programs.
        Programs = "programs",
        /// Boxed values of 24 bytes.
        Boxed = "boxed",
    }
}

/// What to run.
struct Plan {
    /// The heaps to measure.
    engines: Vec<Engine>,
    /// The sizes of real programs.
    programs: Vec<Sizes>,
    /// Rounds of the timed parts.
    rounds: u32,
    /// The amount of work.
    terms: Terms,
}

/// The amount of work.
#[derive(Clone, Copy)]
struct Terms {
    /// The largest size for which the peers' classes are measured.
    largest: usize,
    /// Live blocks among which distances are measured.
    blocks: usize,
    /// Live boxes.
    boxes: usize,
    /// Clock readings per process.
    readings: usize,
}

/// The sizes whose blocks are measured.
const SIZES: [usize; 12] = [1, 8, 16, 24, 32, 48, 64, 100, 200, 500, 1_000, 4_000];

/// The names of the parts' cases in the record.
const DISTANCES: &str = "bytes from one block to the next";
const TABLES: &str = "waste of the size classes; part of the block";
const AGREEMENT: &str = "sizes whose usable bytes were measured";
const SHARE: &str = "waste in real programs; part of the blocks";
const BYTES: &str = "waste in real programs; bytes a block";
const BOXED: &str = "boxed values of 24 bytes in Rust";

/// Carries out the parts that are set.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let peers = available_peers(settings)?;
    let parts = settings.chosen(("only", "part"), Part::ALL.to_vec(), |part| part.name())?;
    let folder = settings.path("sizes").unwrap_or_default();
    let plan = Plan {
        engines: engines(&peers),
        programs: programs(&folder, campaign),
        rounds: settings.rounds(FULL_ROUNDS),
        terms: match settings.is_quick() {
            true => QUICK_TERMS,
            false => FULL,
        },
    };
    let mut options = vec![
        ("rounds", plan.rounds.to_string()),
        ("boxes", plan.terms.boxes.to_string()),
    ];
    let source = |table: &ClassTable| ("classes", format!("{}: {}", table.name, table.source));
    options.extend(tables::all().iter().map(source));
    campaign.head(&options, &peers);
    for part in parts {
        match part {
            Part::Overhead => overhead(&plan, campaign),
            Part::Tables => tables(&plan, campaign),
            Part::Programs => programs_waste(&plan, campaign),
            Part::Boxed => boxed(&plan, campaign),
        }
    }
    Ok(Ended::Measured)
}

/// The peers, and for Neap's library also the program with Neap built in.
fn engines(peers: &[Ready]) -> Vec<Engine> {
    let mut engines = Vec::new();
    for peer in peers {
        engines.push(Engine::Peer(peer.clone()));
        if peer.name == "neap" {
            match Engine::rust() {
                Ok(rust) => engines.push(rust),
                Err(reason) => eprintln!("neap-rust is absent: {reason:#}"),
            }
        }
    }
    engines
}

fn programs(folder: &Path, campaign: &mut Campaign) -> Vec<Sizes> {
    match sizes::newest(folder) {
        Ok((_, programs)) => programs,
        Err(reason) => {
            campaign.leave_out(format!("the sizes of real programs: {reason:#}"));
            Vec::new()
        }
    }
}

fn overhead(plan: &Plan, campaign: &mut Campaign) {
    for engine in &plan.engines {
        campaign
            .progress
            .phase(&format!("distances under {}", engine.name()));
        let figures = heaps::distances(engine, &SIZES, plan.terms.blocks);
        campaign.note((DISTANCES, engine.name(), 0), figures);
    }
}

fn tables(plan: &Plan, campaign: &mut Campaign) {
    let tables = tables::all();
    for table in &tables {
        let figures = tables::of_all_sizes(table);
        campaign.note((TABLES, table.name, 0), Ok(figures));
    }
    for engine in &plan.engines {
        campaign
            .progress
            .phase(&format!("the classes of {}", engine.name()));
        let is_its = |table: &&ClassTable| {
            table.name == engine.name() || table.peers.contains(&engine.name())
        };
        match tables.iter().find(is_its) {
            Some(table) => agreement(table, engine, plan.terms.largest, campaign),
            None => measured_only(engine, campaign),
        }
    }
}

/// Checks that the peer's malloc has the classes of its table.
fn agreement(table: &ClassTable, engine: &Engine, largest: usize, campaign: &mut Campaign) {
    let told = heaps::usable(engine, largest).and_then(|measured| {
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
    campaign.note((AGREEMENT, engine.name(), 0), told);
}

/// A peer without a derived table: its table is what was measured.
fn measured_only(engine: &Engine, campaign: &mut Campaign) {
    let told = heaps::usable(engine, LARGEST).map(|measured| {
        let mut blocks = measured;
        blocks.dedup();
        let table = ClassTable {
            name: engine.name(),
            source: "measured",
            peers: &[],
            header: 0,
            blocks,
        };
        tables::of_all_sizes(&table)
    });
    campaign.note((TABLES, engine.name(), 0), told);
}

fn programs_waste(plan: &Plan, campaign: &mut Campaign) {
    for table in tables::all() {
        let lost = |sizes: &Sizes| (sizes.program.clone(), tables::of_program(&table, sizes));
        let all: Vec<_> = plan.programs.iter().map(lost).collect();
        let shares = all
            .iter()
            .map(|(name, lost)| Figure::share(name.as_str(), lost.share));
        campaign.note((SHARE, table.name, 0), Ok(shares.collect()));
        let bytes = all
            .iter()
            .map(|(name, lost)| Figure::block_bytes(name.as_str(), lost.bytes));
        campaign.note((BYTES, table.name, 0), Ok(bytes.collect()));
    }
}

fn boxed(plan: &Plan, campaign: &mut Campaign) {
    let Terms {
        boxes, readings, ..
    } = plan.terms;
    campaign.rounds(plan.rounds, (&[BOXED], &plan.engines), |_, engine| {
        heaps::boxed(engine, boxes, readings)
    });
}
