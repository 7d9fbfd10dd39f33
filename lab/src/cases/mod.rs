//! The case book: published complaints about memory, reproduced by real programs under every
//! allocator, in interleaved rounds. A case is a directory of `lab/cases`, whose `README.md`
//! describes its form.
//!
//! | file | contents |
//! |---|---|
//! | `case` | a case as its directory says it, where its files are, its programs' variables |
//! | `install` | obtains what a case needs |
//! | `allocators` | the allocators, with their settings |
//! | `tree` | the processes of a run, seen from outside: memory, time, whose malloc, end |
//! | `party` | one of a run's two programs |
//! | `observe` | one run, from its start to its end |
//! | `figures` | what a run's samples say |
//! | `views` | Neap among the allocators, the tables and the picture |

mod allocators;
pub(crate) mod case;
mod figures;
pub(crate) mod install;
mod observe;
pub(crate) mod party;
pub(crate) mod tree;
mod views;

use std::path::PathBuf;

use anyhow::ensure;

use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN, available};
use crate::engine::record::Figure;
use crate::engine::settings::{
    JSON, NEAP as LIBRARY, PEERS, QUICK, RECORDS, ROUNDS, SECONDS, SEED, Setting, Settings,
};
use crate::peers::locate::Places;
use allocators::{Allocator, GLIBC, Located, NEAP};
use case::{Case, Home, Kind};
use figures::COURSE;
use observe::{Keeping, once};
use views::fault;

/// The case book.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cases",
    about: "Published complaints about memory, reproduced by real programs under every allocator",
    settings: &[
        LIBRARY,
        PEERS,
        Setting::names("only", "Only these cases"),
        ROUNDS.default("1").about(
            "Interleaved rounds. One shows the memory, which differs more between allocators than \
             between rounds; take three or more to compare times",
        ),
        SECONDS,
        Setting::switch("list", "List the cases and what is missing; run nothing"),
        Setting::switch(
            "install",
            "Only obtain what the cases need from the registries; nothing if all is there",
        )
        .without(&["list"]),
        QUICK.about("Neap and the C library only, and a rest of three seconds"),
        Setting::switch("keep-work", "Leave the directory of each run"),
        Setting::path("cases", "FOLDER").about("The folder of the cases (default: lab/cases)"),
        JSON,
        RECORDS,
        Setting::switch("quiet", "Show no progress"),
        SEED,
    ],
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(views::picture(record)),
    derived: |record, _| views::derived(record),
    ..PLAIN
};

/// The lab's own folder of cases.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

/// The rest of a quick run, in seconds.
const QUICK_REST: u64 = 3;

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    let mut cases = chosen_cases(settings)?;
    if settings.is_on("list") {
        list(&cases, &places)?;
        return Ok(Ended::Early(0));
    }
    if settings.is_on("install") {
        return install_all(&cases, &places);
    }
    let allocators = chosen_allocators(settings)?;
    let allocators = available(&allocators, |allocator| allocator.locate(&places))?;
    if settings.is_quick() {
        cases.iter_mut().for_each(|case| case.rest = QUICK_REST);
    }
    let here = here(&cases, settings, campaign, &places)?;
    let rounds = settings.number("rounds") as u32;
    let mut options = vec![
        ("rounds", rounds.to_string()),
        ("seed", settings.number("seed").to_string()),
        (
            "cases that ran",
            format!("{} of {}", here.len(), cases.len()),
        ),
    ];
    let titles: Vec<_> = here
        .iter()
        .map(|(case, _)| (views::title_key(&case.name), case.title.clone()))
        .collect();
    let titles = titles.iter();
    options.extend(titles.map(|(key, title)| (key.as_str(), title.clone())));
    let ready: Vec<_> = allocators.iter().map(|one| one.ready.clone()).collect();
    campaign.head(&options, &ready);
    tree::adopt_orphans();
    let keeping = if settings.is_on("keep-work") {
        Keeping::Directory
    } else {
        Keeping::Nothing
    };
    campaign.rounds(rounds, (&here, &allocators), |(case, home), allocator| {
        run(case, home, allocator, keeping)
    });
    // One course of an allocator is enough for the picture, and they are most of a record.
    let rows = &mut campaign.record.rows;
    rows.retain(|row| row.round == 0 || row.figure.name != COURSE);
    judge(campaign, &here, &allocators);
    Ok(Ended::Measured)
}

impl Named for (&Case, Home) {
    fn name(&self) -> String {
        self.0.name.clone()
    }
}

/// One run; nothing if the case has no such setting.
fn run(
    case: &Case,
    home: &Home,
    allocator: &Located,
    keeping: Keeping,
) -> anyhow::Result<Vec<Figure>> {
    match allocator.variables(case) {
        Some(variables) => once((case, home), (allocator, &variables), keeping),
        None => Ok(vec![]),
    }
}

/// The folder's cases that are named, or all.
fn chosen_cases(settings: &Settings) -> anyhow::Result<Vec<Case>> {
    let folder = settings.path("cases");
    let folder = folder.unwrap_or_else(|| PathBuf::from(FOLDER));
    settings.chosen(("only", "case"), Case::all(&folder)?, |case| &case.name)
}

fn chosen_allocators(settings: &Settings) -> anyhow::Result<Vec<&'static Allocator>> {
    let chosen = settings.chosen(("peers", "allocator"), allocators::ALL.to_vec(), |one| {
        one.name
    })?;
    let is_brief = |one: &&Allocator| [NEAP, GLIBC].contains(&one.name);
    Ok(
        if settings.is_quick() && settings.names("peers").is_empty() {
            chosen.into_iter().filter(is_brief).collect()
        } else {
            chosen
        },
    )
}

/// The cases that can run. What is missing for the others is told. A case that was named must run.
fn here<'a>(
    cases: &'a [Case],
    settings: &Settings,
    campaign: &mut Campaign,
    places: &Places,
) -> anyhow::Result<Vec<(&'a Case, Home)>> {
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for case in cases {
        let home = Home::of(case, places)?;
        match install::missing(case, &home) {
            None => here.push((case, home)),
            Some(missing) => {
                let name = &case.name;
                let remedy = format!("neap lab cases --install --only {name}");
                absent.push(format!("{name}: {missing} ({remedy})"));
            }
        }
    }
    ensure!(!here.is_empty(), "no case can run: {}", absent.join("; "));
    for told in absent {
        if settings.names("only").is_empty() {
            campaign.leave_out(told)
        } else {
            campaign.fail(told)
        }
    }
    Ok(here)
}

/// A run that failed is a finding about its allocator, and shown as such. Under Neap it is our
/// failure, and under the C library the case's.
fn judge(campaign: &mut Campaign, cases: &[(&Case, Home)], allocators: &[Located]) {
    let pairs = cases
        .iter()
        .flat_map(|(case, _)| allocators.iter().map(move |one| (&case.name, one.name())));
    for (case, name) in pairs {
        let Some(fault) = fault(&campaign.record, case, &name) else {
            continue;
        };
        let told = format!("{case} under {name}: {fault}");
        if [NEAP, GLIBC].contains(&name.as_str()) {
            campaign.fail(told)
        } else {
            campaign.leave_out(told)
        }
    }
}

fn install_all(cases: &[Case], places: &Places) -> anyhow::Result<Ended> {
    let mut failed = 0;
    for case in cases {
        let home = Home::of(case, places)?;
        match install::install(case, &home, &|what| eprintln!("{what}")) {
            Ok(()) => println!("{}: installed", case.name),
            Err(error) => {
                failed += 1;
                eprintln!("{}: not installed: {error:#}", case.name);
            }
        }
    }
    Ok(Ended::Early(u8::from(failed > 0)))
}

fn list(cases: &[Case], places: &Places) -> anyhow::Result<()> {
    for case in cases {
        let program = match case.kind {
            Kind::Real => "the software of the complaint",
            Kind::Like => "a program of its shape",
        };
        println!("{}: {}, {program}\n  {}", case.name, case.title, case.what);
        for complaint in case.complaints() {
            println!("  {complaint}");
        }
        if let Some(missing) = install::missing(case, &Home::of(case, places)?) {
            println!("  {missing}");
        }
    }
    Ok(())
}
