//! The soak: mixed real load for half an hour, under which every answer must be right and no
//! process may grow. All members run at once. A member of the load is a directory of `lab/soak`, in
//! the form of a case.
//!
//! | file | contents |
//! |---|---|
//! | `member` | one program of the load, from its start to its end |
//! | `observers` | the commands that look into the members meanwhile, and their guarded samples |
//! | `views` | how much memory grew, the table and the picture |

mod member;
mod observers;
mod views;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::cases::case::Case;
use crate::cases::case::Home;
use crate::cases::{install, tree};
use crate::command;
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::Figure;
use crate::engine::settings::{self, Settings};
use crate::peers::locate::{self, Places, Ready};
use member::Member;
use observers::{Looks, Observers};
use views::{ALL, ANSWERS, GUARDED, sum};

/// The soak.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soak",
    about: "Mixed real load for half an hour: every answer right, and no process grows",
    settings: || {
        vec![
            settings::neap(),
            settings::names("only", "Only these members"),
            settings::number("minutes", "MINUTES", (1, 24 * 60))
                .default_value("30")
                .help("How long the load lasts"),
            settings::switch(
                "install",
                "Only obtain what the members need from the registries",
            ),
            settings::quick().help("A quarter of a minute. Growth is shown and not judged"),
            settings::switch("unguarded", "Without guarded samples"),
            settings::path("members", "FOLDER")
                .help("The folder of the members (default: lab/soak)"),
        ]
    },
    run: carry_out,
    tables: |record, _| views::table(record),
    picture: |record, _| Some(views::picture(record)),
    ..PLAIN
};

/// The lab's own folder of members.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/soak");

/// More growth than this is a failure.
const MOST_GROWTH: f64 = 0.02;

/// How long the load lasts, and how often memory is read.
struct Terms {
    load: Duration,
    interval: Duration,
    /// The variable that switches guarded samples on; `None`: the members run without them.
    guards: Option<(&'static str, &'static str)>,
}

impl Terms {
    fn of(settings: &Settings) -> Terms {
        let guards = (!settings.is_on("unguarded")).then_some(observers::VARIABLE);
        let (load, interval) = if settings.is_quick() {
            (15, Duration::from_millis(250))
        } else {
            (60 * settings.number("minutes"), Duration::from_secs(2))
        };
        Terms {
            load: Duration::from_secs(load),
            interval,
            guards,
        }
    }
}

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    let cases = Case::chosen(settings, ("members", "member"), FOLDER)?;
    let homes = cases.iter().map(|case| Home::of(case, &places));
    let homes: Vec<Home> = homes.collect::<anyhow::Result<_>>()?;
    let both: Vec<(&Case, &Home)> = cases.iter().zip(&homes).collect();
    if settings.is_on("install") {
        return Ok(install::install_all(both));
    }
    let terms = Terms::of(settings);
    let ready = locate::neap(&places)?;
    head(campaign, &cases, &terms, &ready);
    if let Err(reason) = soak(&both, &ready, &terms, campaign) {
        campaign.fail(format!("{reason:#}"));
    }
    if !settings.is_quick() {
        judge(campaign);
    }
    Ok(Ended::Measured)
}

fn head(campaign: &mut Campaign, cases: &[Case], terms: &Terms, ready: &Ready) {
    let seconds = terms.load.as_secs().to_string();
    let mut options = vec![("seconds".to_string(), seconds)];
    let variables = terms.guards.into_iter();
    options.extend(variables.map(|(name, value)| (name.to_string(), value.to_string())));
    let titles = cases.iter();
    options.extend(titles.map(|case| (views::title_key(&case.name), case.title.clone())));
    options.push((views::title_key(ALL), "All together".into()));
    campaign.head(&options, std::slice::from_ref(ready));
}

/// Runs all members, and adds their figures.
fn soak(
    both: &[(&Case, &Home)],
    ready: &Ready,
    terms: &Terms,
    campaign: &mut Campaign,
) -> anyhow::Result<()> {
    for (case, home) in both {
        if let Some(obstacle) = install::obstacle(case, home, "soak --install") {
            bail!(obstacle);
        }
    }
    let library = ready.library.canonicalize()?;
    tree::adopt_orphans();
    let _end = tree::EndAll;
    let mut members = Vec::new();
    for (case, home) in both {
        let start = || {
            let mut member = Member::start((case, home), &library, terms.guards)?;
            member.wait_until_ready()?;
            let has_own = case.env.contains_key("LD_PRELOAD");
            ensure!(
                has_own || member.has_mapped(&library),
                "it is not under Neap"
            );
            Ok(member)
        };
        let member: anyhow::Result<Member> = start();
        members.push(member.with_context(|| case.name.clone())?);
    }
    let processes = members.iter().map(|one| (one.name.clone(), one.id()));
    let neap = command::neap();
    if neap.is_none() {
        campaign.leave_out(
            "observers and counts of guarded blocks: the command neap is not beside this program",
        );
    }
    let start = |neap| Observers::start(neap, processes.collect());
    let observers = neap.clone().map(start);
    let outcome = watch(&mut members, terms, campaign);
    let seen = observers.map(Observers::stop).unwrap_or_default();
    let outcome = outcome.and_then(|()| match neap.filter(|_| terms.guards.is_some()) {
        Some(neap) => observers::count(&neap, &mut members),
        None => Ok(()),
    });
    let outcome = outcome.and_then(|()| finish(&mut members));
    note(campaign, &members, seen);
    outcome
}

/// Samples every member until the time is over.
fn watch(members: &mut [Member], terms: &Terms, campaign: &Campaign) -> anyhow::Result<()> {
    let start = Instant::now();
    let samples = (terms.load.as_millis() / terms.interval.as_millis()) as u32;
    campaign.progress.expect(u64::from(samples));
    for n in 0..samples {
        let next = terms.interval * n;
        thread::sleep(next.saturating_sub(start.elapsed()));
        let at = start.elapsed();
        for member in members.iter_mut() {
            let told = member.look(at);
            told.with_context(|| format!("{} after {} s", member.name, at.as_secs()))?;
        }
        campaign.progress.step();
    }
    Ok(())
}

fn finish(members: &mut [Member]) -> anyhow::Result<()> {
    for member in members {
        member.finish().with_context(|| member.name.clone())?;
    }
    Ok(())
}

/// Adds the figures of every member and of all together.
fn note(campaign: &mut Campaign, members: &[Member], seen: Looks) {
    for member in members {
        let mut figures = views::figures(&member.samples);
        figures.push(Figure::count(ANSWERS, member.answers));
        figures.extend(member.guarded.map(|blocks| Figure::count(GUARDED, blocks)));
        campaign.record.push(&member.name, "neap", 0, figures);
    }
    let courses = members.iter().map(|member| member.samples.as_slice());
    let mut figures = views::figures(&sum(courses));
    let answers = members.iter().map(|member| member.answers).sum();
    figures.push(Figure::count(ANSWERS, answers));
    let guarded: Option<u64> = members.iter().map(|member| member.guarded).sum();
    figures.extend(guarded.map(|blocks| Figure::count(GUARDED, blocks)));
    figures.push(Figure::count("looks of observers", seen.looks));
    campaign.record.push(ALL, "neap", 0, figures);
    seen.complaints
        .into_iter()
        .for_each(|told| campaign.fail(told));
}

/// Fails for every member that grew.
fn judge(campaign: &mut Campaign) {
    let grown = campaign.record.runs().filter_map(|run| {
        let growth = run.number(views::GROWTH)?;
        let told = format!("{} grew by {:.1} %", run.case(), 100.0 * growth);
        (growth > MOST_GROWTH).then_some(told)
    });
    let grown: Vec<String> = grown.collect();
    grown.into_iter().for_each(|told| campaign.fail(told));
}

#[cfg(test)]
mod tests {
    use super::views::{Sample, growth};
    use super::*;

    #[test]
    fn every_member_is_read_and_one_that_grew_fails() {
        let names = Case::all(FOLDER.as_ref()).unwrap();
        assert!(names.len() >= 6);
        let course = |rise: u64| -> Vec<Sample> {
            let sample = |n| Sample {
                at: Duration::from_secs(n),
                bytes: 1_000_000 + rise * n,
            };
            (0..200).map(sample).collect()
        };
        let mut campaign = Campaign::for_test();
        for (name, rise) in [("flat", 10), ("leaks", 1_000)] {
            assert!(growth(&course(rise)).is_some());
            let figures = views::figures(&course(rise));
            campaign.record.push(name, "neap", 0, figures);
        }
        judge(&mut campaign);
        assert_eq!(campaign.failures().len(), 1);
        assert!(campaign.failures()[0].starts_with("leaks grew by"));
    }
}
