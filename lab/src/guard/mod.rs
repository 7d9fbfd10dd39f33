//! Guarded samples: after how many requests does `neap run --guard` report an error that was
//! planted in a real program? Every program runs with its planted error, and without it.
//!
//! A program is a directory of `lab/planted`, in the form of a case. With `PLANTED=1`, its
//! extension makes one wrong access in each request.
//!
//! | file | contents |
//! |---|---|
//! | `programs` | the programs, and what their reports must say |
//! | `run` | one run: a server under `neap run`, and its client |

mod programs;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::cases::install;
use crate::command;
use crate::engine::campaign::{Campaign, Named as _};
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::{Figure, Record};
use crate::engine::settings::{self, Settings};
use crate::engine::table::{duration, section};
use crate::peers::locate::{self, Places};
use programs::Program;
use run::{Extension, Neap, Outcome};

/// Guarded samples in real programs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "guard",
    about: "After how many requests guarded samples find errors planted in real programs",
    settings: || {
        vec![
            settings::names("only", "Only these programs"),
            settings::number("requests", "NUMBER", (100, 100_000_000))
                .default_value("10000")
                .help("Requests, unless the report comes earlier"),
            settings::number("interval", "MS", (1, 3_600_000))
                .help("Mean time between two samples of a thread (default: 20)"),
            settings::rounds().help("Rounds (default: 5)"),
            settings::switch("reports", "Print the first report of each program"),
            settings::switch(
                "install",
                "Only obtain what the programs need from the registries",
            ),
            settings::path("command", "PATH").help(
                "The command neap, with its library (default: target/dist/neap, or the one beside \
             this program)",
            ),
            settings::quick().help("One round of the main programs, a sample each ms"),
        ]
    },
    run: carry_out,
    tables: |record, _| table(record),
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
            sound_requests: settings.within("requests", 500),
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
        let cases = programs
            .iter()
            .map(|program| (&program.case, &program.home));
        return Ok(install::install_all(cases));
    }
    for Program { case, home, .. } in &programs {
        if let Some(obstacle) = install::obstacle(case, home, "guard --install") {
            bail!(obstacle);
        }
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
    let mut chosen = settings.chosen(("only", "program"), all, Program::word)?;
    let is_short = settings.is_quick() && settings.names("only").is_empty();
    chosen.retain(|program| program.is_main() || !is_short);
    Ok(chosen)
}

fn head(campaign: &mut Campaign, terms: &Terms, places: &Places) {
    let options = [
        (REQUESTS, terms.requests.to_string()),
        (INTERVAL, terms.interval_ms.to_string()),
    ];
    let ready = locate::neap(places).ok();
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
        Figure::text(ERROR, program.error()),
        Figure::number(CANDIDATES, candidates),
        Figure::nanoseconds(TIME, time.as_nanos() as f64),
        Figure::share(CHANCE, chance(candidates, whole, terms.interval())),
        Figure::count(SOUND, sound.answers),
        Figure::count(FALSE, u64::from(sound.report.is_some())),
    ];
    match &planted.report {
        None => ensure_whole(&planted, terms.requests)?,
        Some(report) => {
            let objection = program.objection(report);
            ensure!(objection.is_none(), "{}", objection.unwrap_or_default());
            if terms.shows_reports && round == 0 {
                eprintln!("{}", report.text);
            }
            figures.push(Figure::count(FOUND, planted.answers + 1));
            figures.push(Figure::text(LINE, &report.line));
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
        let wrong: f64 = rounds(&name, FALSE).iter().map(|(_, count)| count).sum();
        if wrong > 0.0 {
            told.push(format!(
                "{name}: a report in {wrong} rounds without the error"
            ));
        }
        let chances = rounds(&name, CHANCE);
        let missed: f64 = chances.iter().map(|(_, chance)| 1.0 - chance).product();
        if missed < LEAST_LIKELY && rounds(&name, FOUND).is_empty() {
            told.push(format!(
                "{name}: no round found the error (probability {missed:.0e})"
            ));
        }
    }
    told.into_iter().for_each(|failure| campaign.fail(failure));
}

/// The probability that one of the samples made in `time` is the block that an error misuses, if
/// that is one of `candidates` allocations of each request.
pub fn chance(candidates: f64, time: Duration, interval: Duration) -> f64 {
    1.0 - (1.0 - 1.0 / candidates.max(1.0)).powf(samples(time, interval))
}

/// How many samples a thread makes in `time`.
pub fn samples(time: Duration, interval: Duration) -> f64 {
    time.as_secs_f64() / interval.as_secs_f64()
}

/// What is planted.
pub const ERROR: &str = "planted";
/// The allocations of a request that can be guarded.
pub const CANDIDATES: &str = "guardable allocations a request";
/// The time of a request.
pub const TIME: &str = "time of a request";
/// The computed probability that the error is found.
pub const CHANCE: &str = "computed";
/// The request at which the report came; absent if none came.
pub const FOUND: &str = "request of the report";
/// The requests without the error, and the reports that came of them.
pub const SOUND: &str = "requests without the error";
pub const FALSE: &str = "reports without the error";
/// The first line of the report.
pub const LINE: &str = "report";

/// The keys of the head.
pub const REQUESTS: &str = "requests";
pub const INTERVAL: &str = "interval in ms";

const COLUMNS: [&str; 8] = [
    "planted",
    "k",
    "t",
    "samples",
    "computed",
    "found",
    "at request",
    "without the error",
];

/// A row for each program.
pub fn table(record: &Record) -> String {
    let said = |key| record.said(key).and_then(|text| text.parse::<f64>().ok());
    let (requests, interval) = (said(REQUESTS).unwrap_or(0.0), said(INTERVAL).unwrap_or(1.0));
    let heading = format!(
        "Errors found in {requests:.0} requests, one sample each {interval:.0} ms; k: allocations \
         of a request that can be guarded; t: time of a request"
    );
    section(
        &heading,
        "program",
        (&record.cases(), &COLUMNS),
        |case, column| {
            let median = |figure| record.median(case, "neap", figure);
            let rounds = |figure| record.rounds(case, "neap", figure);
            let all = rounds(TIME).len();
            match *column {
                "planted" => record.text(case, "neap", ERROR).map(str::to_string),
                "k" => Some(format!("{:.1}", median(CANDIDATES)?)),
                "t" => Some(duration(median(TIME)?)),
                "samples" => {
                    let time = Duration::from_secs_f64(requests * median(TIME)? / 1e9);
                    let interval = Duration::from_secs_f64(interval / 1e3);
                    Some(format!("{:.0}", samples(time, interval)))
                }
                "computed" => Some(percent(median(CHANCE)?)),
                "found" => Some(format!("{} of {all}", rounds(FOUND).len())),
                "at request" => median(FOUND).map(|request| format!("{request:.0}")),
                _ => {
                    let sum = |figure| rounds(figure).iter().map(|(_, value)| value).sum::<f64>();
                    Some(format!("{:.0} of {:.0}", sum(FALSE), sum(SOUND)))
                }
            }
        },
    )
}

/// A probability. One that is nearly 1 shows how nearly.
fn percent(chance: f64) -> String {
    match 1.0 - chance {
        ..1e-6 => "> 99.9999 %".to_string(),
        ..1e-3 => format!("{:.4} %", 100.0 * chance),
        _ => format!("{:.1} %", 100.0 * chance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::tests::record;

    #[test]
    fn a_false_report_and_an_unlikely_miss_fail() {
        let programs = Program::all(&Places::new(None).unwrap()).unwrap();
        let failures = |chance, rounds: [(u64, Option<u64>); 2]| {
            let mut campaign = Campaign::for_test();
            for (round, (wrong, found)) in (0..).zip(rounds) {
                let mut figures = vec![Figure::share(CHANCE, chance), Figure::count(FALSE, wrong)];
                figures.extend(found.map(|request| Figure::count(FOUND, request)));
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

    #[test]
    fn the_chance_is_that_of_independent_samples() {
        let seconds = Duration::from_secs;
        let after = |candidates, time| chance(candidates, seconds(time), seconds(1));
        assert_eq!(after(2.0, 1), 0.5);
        assert_eq!(after(2.0, 3), 0.875);
        assert_eq!(after(1.0, 1), 1.0);
        assert_eq!(after(20.0, 0), 0.0);
        // Ten seconds at 20 ms, of a thousand allocations a request.
        let rare = chance(1000.0, seconds(10), Duration::from_millis(20));
        assert!((0.39..0.40).contains(&rare), "{rare}");
    }

    #[test]
    fn a_program_has_a_row_with_its_chance_and_its_reports() {
        let round = |found: Option<u64>| {
            let mut figures = vec![
                Figure::text(ERROR, "read after free"),
                Figure::number(CANDIDATES, 28.0),
                Figure::nanoseconds(TIME, 1e6),
                Figure::share(CHANCE, 0.9876),
                Figure::count(SOUND, 10_000),
                Figure::count(FALSE, 0),
            ];
            figures.extend(found.map(|request| Figure::count(FOUND, request)));
            figures
        };
        let mut record = record([
            ("redis", "neap", 0, round(Some(100))),
            ("redis", "neap", 1, round(Some(300))),
            ("redis", "neap", 2, round(None)),
        ]);
        record.head = vec![
            (REQUESTS.into(), "10000".into()),
            (INTERVAL.into(), "20".into()),
        ];
        let text = table(&record);
        let row = text.lines().find(|line| line.contains("redis")).unwrap();
        for part in [
            "read after free",
            "28.0",
            "1.00 ms",
            " 500 ",
            "98.8 %",
            "2 of 3",
            " 200 ",
            "0 of 30000",
        ] {
            assert!(row.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn a_probability_of_nearly_one_shows_how_nearly() {
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.99999), "99.9990 %");
        assert_eq!(percent(1.0), "> 99.9999 %");
    }
}
