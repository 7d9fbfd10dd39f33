//! The suite: every program in both worlds, as tests of a libtest-like harness.
//!
//! A program that is not installed is a skipped test, with the command that installs it; with
//! `REQUIRE_ALL=1` it is a failure.

mod compilers;
mod git;
mod harness;
mod languages;
mod memcached;
mod nginx;
mod php;
mod postgres;
mod python;
mod redis;
mod runtimes;
mod sqlite;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use neap_programs::Program;
use neap_programs::bench::Bench;
use neap_programs::ledger::Audit;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Long tests come first, so that the last minutes are not spent on a single one.
const PROGRAMS: &[&Program] = &[
    &compilers::GXX,
    &postgres::POSTGRES,
    &compilers::GCC,
    &runtimes::GO,
    &git::GIT,
    &python::PYTHON_MALLOC,
    &python::PYTHON,
    &redis::REDIS,
    &nginx::NGINX,
    &sqlite::SQLITE,
    &memcached::MEMCACHED,
    &runtimes::NODE,
    &runtimes::JAVA,
    &php::PHP,
    &php::PHP_MALLOC,
    &languages::PERL,
    &languages::RUBY,
];

/// Lines for the end of the run.
#[derive(Default)]
struct Notes {
    skipped: Mutex<Vec<String>>,
    times: Mutex<Vec<String>>,
    ledgers: Mutex<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let witness = Path::new(env!("CARGO_BIN_EXE_witness"));
    let bench = match Bench::new(witness, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(bench) => Arc::new(bench),
        Err(error) => {
            eprintln!("programs: {error}");
            return ExitCode::FAILURE;
        }
    };
    let notes = Arc::new(Notes::default());
    let mut trials = harness::trials(&bench);
    trials.extend(
        PROGRAMS
            .iter()
            .map(|program| trial(program, &bench, &notes)),
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("ledger: {}", Audit::COLUMNS);
        lines(&notes.ledgers)
            .iter()
            .for_each(|audit| println!("ledger: {audit}"));
        println!("seconds: {}", lines(&notes.times).join(", "));
        println!("skipped: {}", lines(&notes.skipped).len());
        lines(&notes.skipped)
            .iter()
            .for_each(|entry| println!("  {entry}"));
    }
    conclusion.exit_code()
}

fn trial(program: &'static Program, bench: &Arc<Bench>, notes: &Arc<Notes>) -> Trial {
    let (bench, notes) = (Arc::clone(bench), Arc::clone(notes));
    Trial::ignorable_test(program.name, move || {
        let missing = program.missing();
        if missing.is_empty() {
            return check(program, &bench, &notes);
        }
        let advice = format!("apt-get install {}", missing.join(" "));
        if std::env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1") {
            return Err(Failed::from(format!("not installed: {advice}")));
        }
        lines(&notes.skipped).push(format!("{} ({advice})", program.name));
        Ok(Completion::ignored_with(advice))
    })
}

fn check(program: &Program, bench: &Bench, notes: &Notes) -> Result<Completion, Failed> {
    let start = Instant::now();
    let checked = program.check(bench);
    let seconds = start.elapsed().as_secs_f32();
    lines(&notes.times).push(format!("{} {seconds:.1}", program.name));
    lines(&notes.ledgers).push(checked?.to_line(program.name, bench.tier));
    Ok(Completion::Completed)
}

fn lines(notes: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    notes
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
