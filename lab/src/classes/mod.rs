//! The third published experiment: what a block takes beyond the requested bytes, and how much each
//! table of size classes wastes. Each part is a case of the record.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | the size classes of Go, as data, and of the heaps, as measured, and their waste |
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
use crate::engine::settings::{self, RECORDS_FOLDER, Settings};
use crate::engine::table::by_case;
use crate::names::named;
use crate::peers::locate::Ready;
use heaps::Engine;
use tables::{ClassTable, LARGEST, Sizes};

/// What a block takes beyond the requested bytes, and what size classes waste.
pub const EXPERIMENT: Experiment = Experiment {
    name: "classes",
    about: "What a block takes beyond the requested bytes, and what size classes waste",
    settings: || {
        vec![
            settings::neap(),
            settings::peers().help(
                "Only these (`neap` includes `neap-rust`, a Rust program with Neap built in)",
            ),
            settings::names(
                "only",
                "Only these parts: overhead, tables, programs, boxed",
            ),
            settings::rounds(),
            settings::quick(),
            settings::seed(),
            settings::path("sizes", "FOLDER")
                .default_value(RECORDS_FOLDER)
                .help("The folder whose newest record of sizes is used"),
        ]
    },
    run: carry_out,
    tables: |record, _| {
        // The list of every class is for the picture only.
        let mut shown = record.clone();
        shown.rows.retain(|row| row.figure.name != tables::BLOCKS);
        by_case(&shown)
    },
    picture: |record, _| tables::picture(record),
    ..PLAIN
};

/// The rounds of a full run: the fewest that can separate two allocators.
const FULL_ROUNDS: u32 = 7;
const FULL: Terms = Terms {
    blocks: 2_000,
    boxes: 1_000_000,
    readings: 15,
};
const QUICK_TERMS: Terms = Terms {
    blocks: 200,
    boxes: 20_000,
    readings: 1,
};

named! {
    /// A part of the experiment.
    pub enum Part {
        /// What a block takes beyond the requested bytes.
        Overhead = "overhead",
        /// The tables over all sizes.
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
    /// Go's classes, and those of the heaps.
    tables: Vec<ClassTable>,
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
const SHARE: &str = "waste in real programs; part of the blocks";
const BYTES: &str = "waste in real programs; bytes a block";
const BOXED: &str = "boxed values of 24 bytes in Rust";

/// Carries out the parts that are set.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let peers = available_peers(settings)?;
    let parts = settings.chosen(("only", "part"), Part::ALL.to_vec(), |part| part.name())?;
    let folder = settings.path("sizes").unwrap_or_default();
    let mut plan = Plan {
        engines: engines(&peers),
        tables: Vec::new(),
        programs: programs(&folder, campaign),
        rounds: settings.rounds(FULL_ROUNDS),
        terms: if settings.is_quick() {
            QUICK_TERMS
        } else {
            FULL
        },
    };
    let options = [
        ("rounds", plan.rounds.to_string()),
        ("boxes", plan.terms.boxes.to_string()),
        ("go's classes", tables::GO_SOURCE.to_string()),
    ];
    campaign.head(&options, &peers);
    if parts.contains(&Part::Tables) || parts.contains(&Part::Programs) {
        plan.tables = class_tables(&plan.engines, campaign);
    }
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

/// Go's tables, and that of each heap.
fn class_tables(engines: &[Engine], campaign: &mut Campaign) -> Vec<ClassTable> {
    let mut tables = tables::go().to_vec();
    for engine in engines {
        campaign
            .progress
            .phase(&format!("the classes of {}", engine.name()));
        match heaps::usable(engine, LARGEST) {
            Ok(usable) => tables.push(ClassTable::measured(engine.name(), usable)),
            Err(reason) => campaign.fail(format!("the classes of {}: {reason:#}", engine.name())),
        }
    }
    tables
}

fn tables(plan: &Plan, campaign: &mut Campaign) {
    for table in &plan.tables {
        campaign.note((TABLES, &table.name, 0), Ok(tables::of_all_sizes(table)));
    }
}

fn programs_waste(plan: &Plan, campaign: &mut Campaign) {
    for table in &plan.tables {
        let lost = |sizes: &Sizes| (sizes.program.clone(), tables::of_program(table, sizes));
        let all: Vec<_> = plan.programs.iter().map(lost).collect();
        let shares = all
            .iter()
            .map(|(name, lost)| Figure::share(name.as_str(), lost.share));
        campaign.note((SHARE, &table.name, 0), Ok(shares.collect()));
        let bytes = all
            .iter()
            .map(|(name, lost)| Figure::block_bytes(name.as_str(), lost.bytes));
        campaign.note((BYTES, &table.name, 0), Ok(bytes.collect()));
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
