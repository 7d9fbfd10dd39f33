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

pub(crate) mod allocators;
pub(crate) mod case;
pub(crate) mod figures;
pub(crate) mod install;
mod observe;
pub(crate) mod party;
pub(crate) mod tree;
mod views;

use anyhow::ensure;

use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN, available};
use crate::engine::record::Figure;
use crate::engine::settings::{self, Settings};
use crate::peers::locate::Places;
use allocators::{Allocator, GLIBC, Located, NEAP};
use case::{Case, Home, Kind};
use figures::COURSE;
use observe::{Keeping, once};
use views::fault;
pub(crate) use views::picture;

/// The case book.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cases",
    about: "Published complaints about memory, reproduced by real programs under every allocator",
    settings: || {
        vec![
        settings::neap(),
        settings::peers(),
        settings::names("only", "Only these cases"),
        settings::rounds().default_value("1").help(
            "Interleaved rounds. One shows the memory, which differs more between allocators than \
             between rounds; take three or more to compare times",
        ),
        settings::seconds(),
        settings::switch("list", "List the cases and what is missing; run nothing"),
        settings::switch(
            "install",
            "Only obtain what the cases need from the registries; nothing if all is there",
        )
        .conflicts_with("list"),
        settings::quick().help("Neap and the C library only, and a rest of three seconds"),
        settings::switch("keep-work", "Leave the directory of each run"),
        settings::path("cases", "FOLDER").help("The folder of the cases (default: lab/cases)"),
        settings::switch("quiet", "Show no progress"),
        settings::seed(),
    ]
    },
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(picture(record, 4, (230.0, 140.0))),
    derived: |record, _| views::derived(record),
    ..PLAIN
};

/// The lab's own folder of cases.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

/// The rest of a quick run, in seconds.
const QUICK_REST: u64 = 3;

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    let mut cases = Case::chosen(settings, ("cases", "case"), FOLDER)?;
    if settings.is_on("list") {
        list(&cases, &places)?;
        return Ok(Ended::Early(0));
    }
    if settings.is_on("install") {
        let homes = homes(&cases, &places)?;
        return Ok(install::install_all(cases.iter().zip(&homes)));
    }
    let allocators = chosen_allocators(settings)?;
    let allocators = available(&allocators, |allocator| allocator.locate(&places))?;
    if settings.is_quick() {
        cases.iter_mut().for_each(|case| case.rest = QUICK_REST);
    }
    let here = here(&cases, settings, campaign, &places)?;
    let rounds = settings.number("rounds") as u32;
    let ran = format!("{} of {}", here.len(), cases.len());
    let mut options = vec![
        ("rounds".to_string(), rounds.to_string()),
        ("seed".to_string(), settings.number("seed").to_string()),
        ("cases that ran".to_string(), ran),
    ];
    let titles = here.iter();
    options.extend(titles.map(|(case, _)| (views::title_key(&case.name), case.title.clone())));
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

fn homes(cases: &[Case], places: &Places) -> anyhow::Result<Vec<Home>> {
    cases.iter().map(|case| Home::of(case, places)).collect()
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
    for (case, home) in cases.iter().zip(homes(cases, places)?) {
        let remedy = format!("cases --install --only {}", case.name);
        match install::obstacle(case, &home, &remedy) {
            None => here.push((case, home)),
            Some(obstacle) => absent.push(obstacle),
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

fn list(cases: &[Case], places: &Places) -> anyhow::Result<()> {
    for case in cases {
        let program = match case.kind {
            Kind::Real => "the software of the complaint",
            Kind::Like => "a program of its shape",
        };
        println!("{}: {}, {program}\n  {}", case.name, case.title, case.what);
        for complaint in &case.complaint {
            println!("  {complaint}");
        }
        if let Some(missing) = install::missing(case, &Home::of(case, places)?) {
            println!("  {missing}");
        }
    }
    Ok(())
}
