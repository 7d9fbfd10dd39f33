//! Every program with its planted error, and without it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::chance::chance;
use super::programs::Program;
use super::run::{Extension, Neap, Outcome};
use super::views;
use crate::cases::install;
use crate::command;
use crate::engine::campaign::{Campaign, Named as _};
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::Figure;
use crate::engine::settings::{JSON, QUICK, RECORDS, ROUNDS, Setting, Settings};
use crate::peers::{self, Places};

/// Guarded samples in real programs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "guard",
    about: "After how many requests guarded samples find errors planted in real programs",
    settings: &[
        Setting::names("only", "Only these programs"),
        Setting::number("requests", "NUMBER", (100, 100_000_000))
            .default("10000")
            .about("Requests, unless the report comes earlier"),
        Setting::number("interval", "MS", (1, 3_600_000))
            .about("Mean time between two samples of a thread (default: 20)"),
        ROUNDS.about("Rounds (default: 5)"),
        Setting::switch("reports", "Print the first report of each program"),
        Setting::switch(
            "install",
            "Only obtain what the programs need from the registries",
        ),
        Setting::path("command", "PATH").about(
            "The command neap, with its library (default: target/dist/neap, or the one beside \
             this program)",
        ),
        QUICK.about("One round of the main programs, a sample each ms"),
        JSON,
        RECORDS,
    ],
    run: carry_out,
    tables: |record, _| views::table(record),
    notes: || NOTES.to_string(),
    ..PLAIN
};

const NOTES: &str = "Each request makes the wrong access once. computed: the probability that one \
    of the samples is that access's block, 1-(1-1/k)^samples.";

/// How the programs are run.
struct Terms {
    neap: Neap,
    requests: u64,
    /// Of those that are without the error.
    sound_requests: u64,
    interval_ms: u64,
    rounds: u32,
    shows_reports: bool,
}

impl Terms {
    fn of(settings: &Settings, neap: PathBuf) -> Terms {
        let is_quick = settings.is_quick();
        let requests = settings.number("requests");
        let (usual_interval, usual_rounds) = if is_quick { (1, 1) } else { (20, 5) };
        Terms {
            neap: Neap { command: neap },
            requests,
            sound_requests: if is_quick {
                requests.min(500)
            } else {
                requests
            },
            interval_ms: settings.maybe("interval").unwrap_or(usual_interval),
            rounds: settings.maybe("rounds").unwrap_or(usual_rounds) as u32,
            shows_reports: settings.is_on("reports"),
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(None)?;
    let programs = chosen(settings, &places)?;
    if settings.is_on("install") {
        for Program { case, home, .. } in &programs {
            install::install(case, home, &|what| eprintln!("{what}"))
                .with_context(|| format!("{} is not installed", case.name))?;
        }
        return Ok(Ended::Early(0));
    }
    for Program { case, home, .. } in &programs {
        let missing = install::missing(case, home);
        let told = missing.as_deref().unwrap_or_default();
        ensure!(
            missing.is_none(),
            "{}: {told} (remedy: neap lab guard --install)",
            case.name
        );
    }
    let neap = settings.path("command").or_else(command::neap);
    let neap = neap.context("the command neap is not beside this program; name it by --command")?;
    let neap = neap
        .canonicalize()
        .with_context(|| format!("cannot find {neap:?}"))?;
    let terms = Terms::of(settings, neap);
    head(campaign, &terms, &places);
    measure(campaign, &programs, &terms);
    judge(campaign, &programs);
    Ok(Ended::Measured)
}

fn chosen(settings: &Settings, places: &Places) -> anyhow::Result<Vec<Program>> {
    let all = Program::all(places)?;
    let only = settings.names("only");
    let known: Vec<String> = all.iter().map(Program::name).collect();
    if let Some(name) = only.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("no program {name:?}; there are {}", known.join(", "));
    }
    let is_chosen = |one: &Program| match only.is_empty() {
        true => one.is_main() || !settings.is_quick(),
        false => only.contains(&one.name()),
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn head(campaign: &mut Campaign, terms: &Terms, places: &Places) {
    let options = [
        (views::REQUESTS, terms.requests.to_string()),
        (views::INTERVAL, terms.interval_ms.to_string()),
    ];
    let ready = peers::find("neap").and_then(|neap| peers::locate(neap, places).ok());
    campaign.head(&options, &Vec::from_iter(ready));
}

/// The requests over which the allocations are counted.
const COUNTED: u64 = 500;

/// Counts the allocations of each program once, and runs it in every round.
fn measure(campaign: &mut Campaign, programs: &[Program], terms: &Terms) {
    let mut counted = Vec::new();
    for program in programs {
        campaign
            .progress
            .say(&format!("{}: allocations", program.name()));
        match terms.neap.candidates(program, COUNTED) {
            Ok(candidates) => counted.push((program, candidates)),
            Err(reason) => campaign.fail(format!("{}: {reason:#}", program.name())),
        }
    }
    campaign
        .progress
        .expect(u64::from(terms.rounds) * counted.len() as u64);
    for round in 0..terms.rounds {
        for (program, candidates) in &counted {
            campaign.progress.say(&program.name());
            let told = once(program, *candidates, (terms, round));
            campaign.note((&program.name(), "neap", round), told);
        }
    }
}

/// A run without the error, and one with it.
fn once(
    program: &Program,
    candidates: f64,
    (terms, round): (&Terms, u32),
) -> anyhow::Result<Vec<Figure>> {
    let guarded = |extension, requests| {
        let interval = format!("{}ms", terms.interval_ms);
        terms
            .neap
            .guarded(program, (extension, &interval), requests)
    };
    let sound = guarded(Extension::Sound, terms.sound_requests)?;
    ensure_whole(&sound, terms.sound_requests)?;
    let planted = guarded(Extension::Planted, terms.requests)?;
    let time = sound.time.div_f64(sound.answers as f64);
    let whole = time.mul_f64(terms.requests as f64);
    let mut figures = vec![
        Figure::text(views::ERROR, program.error()),
        Figure::number(views::CANDIDATES, candidates),
        Figure::nanoseconds(views::TIME, time.as_nanos() as f64),
        Figure::share(views::CHANCE, chance(candidates, whole, terms.interval())),
        Figure::count(views::SOUND, sound.answers),
        Figure::count(views::FALSE, u64::from(sound.report.is_some())),
    ];
    match &planted.report {
        None => ensure_whole(&planted, terms.requests)?,
        Some(report) => {
            let objection = program.objection(report);
            ensure!(objection.is_none(), "{}", objection.unwrap_or_default());
            if terms.shows_reports && round == 0 {
                eprintln!("{}", report.text);
            }
            figures.push(Figure::count(views::FOUND, planted.answers + 1));
            figures.push(Figure::text(views::LINE, &report.line));
        }
    }
    Ok(figures)
}

/// Fails unless every request got its answer.
fn ensure_whole(outcome: &Outcome, requests: u64) -> anyhow::Result<()> {
    let (answers, end) = (outcome.answers, &outcome.end);
    ensure!(
        answers == requests,
        "it answered {answers} of {requests} requests: {end}"
    );
    Ok(())
}

/// An error that no round found fails if that is less likely than this.
const LEAST_LIKELY: f64 = 1e-6;

/// Fails for a report where nothing is wrong, and for an error that no round found, unless that is
/// a matter of chance.
fn judge(campaign: &mut Campaign, programs: &[Program]) {
    let rounds = |name: &str, figure| campaign.record.rounds(name, "neap", figure);
    let mut told = Vec::new();
    for name in programs.iter().map(Program::name) {
        let wrong: f64 = rounds(&name, views::FALSE)
            .iter()
            .map(|(_, count)| count)
            .sum();
        if wrong > 0.0 {
            told.push(format!(
                "{name}: a report in {wrong} rounds without the error"
            ));
        }
        let chances = rounds(&name, views::CHANCE);
        let missed: f64 = chances.iter().map(|(_, chance)| 1.0 - chance).product();
        if missed < LEAST_LIKELY && rounds(&name, views::FOUND).is_empty() {
            told.push(format!(
                "{name}: no round found the error (probability {missed:.0e})"
            ));
        }
    }
    told.into_iter().for_each(|failure| campaign.fail(failure));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_false_report_and_an_unlikely_miss_fail() {
        let programs = Program::all(&Places::new(None).unwrap()).unwrap();
        let failures = |chance, rounds: [(u64, Option<u64>); 2]| {
            let mut campaign = Campaign::for_test();
            for (round, (wrong, found)) in (0..).zip(rounds) {
                let mut figures = vec![
                    Figure::share(views::CHANCE, chance),
                    Figure::count(views::FALSE, wrong),
                ];
                figures.extend(found.map(|request| Figure::count(views::FOUND, request)));
                campaign.record.push("sqlite", "neap", round, figures);
            }
            judge(&mut campaign, &programs);
            campaign.failures().to_vec()
        };
        let never = [(0, None), (0, None)];
        assert_eq!(failures(0.9, never), [""; 0]);
        assert_eq!(failures(0.9999, [(0, Some(7)), (0, None)]), [""; 0]);
        let told = "sqlite: no round found the error (probability 1e-8)";
        assert_eq!(failures(0.9999, never), [told]);
        let told = "sqlite: a report in 1 rounds without the error";
        assert_eq!(failures(0.9, [(1, Some(7)), (0, Some(7))]), [told]);
    }
}
