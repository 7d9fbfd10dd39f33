//! Tests of the suite itself: its assertions must be able to fail.

use libtest_mimic::{Failed, Trial};
use neap_programs::bench::Bench;
use neap_programs::witness::Presence;
use neap_programs::world::Allocator;
use neap_programs::{Outcome, World};
use std::sync::Arc;
use std::time::Duration;

type Check = fn(&Bench) -> Outcome<()>;

const CHECKS: &[(&str, Check)] = &[
    (
        "harness::sees_a_crash_that_a_parent_hides",
        sees_a_hidden_crash,
    ),
    (
        "harness::sees_a_process_without_the_library",
        sees_a_process_without_the_library,
    ),
    (
        "harness::sees_every_process_of_a_pipeline",
        sees_every_process,
    ),
    ("harness::hands_on_the_status", hands_on_the_status),
    (
        "harness::sees_the_library_serve_malloc",
        sees_the_library_serve_malloc,
    ),
    (
        "harness::sees_what_the_library_writes",
        sees_what_the_library_writes,
    ),
    ("harness::kills_at_the_deadline", kills_at_the_deadline),
];

/// The harness's own tests.
pub fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let trial = |(name, check): &(&str, Check)| {
        let (bench, check) = (Arc::clone(bench), *check);
        Trial::test(*name, move || check(&bench).map_err(Failed::from))
    };
    CHECKS.iter().map(trial).collect()
}

fn world<'b>(bench: &'b Bench, name: &str, seconds: f32) -> Outcome<World<'b>> {
    World::open(
        bench,
        name,
        Allocator::Library,
        Duration::from_secs_f32(seconds),
    )
}

fn expect_error<T>(result: Outcome<T>, part: &str) -> Outcome<()> {
    match result {
        Ok(_) => Err(format!("succeeded, but {part:?} was expected").into()),
        Err(error) if error.to_string().contains(part) => Ok(()),
        Err(error) => Err(format!("{part:?} was expected, not: {error}").into()),
    }
}

fn sees_a_hidden_crash(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "hidden-crash", 60.0)?;
    expect_error(
        world.run("sh", &["-c", "sh -c 'kill -SEGV $$'; true"]),
        "no crash",
    )
}

fn sees_a_process_without_the_library(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "unset-preload", 60.0)?;
    let script = "env -u LD_PRELOAD cat /dev/null; true";
    expect_error(world.run("sh", &["-c", script]), "absent\t0\t/usr/bin/cat")
}

fn sees_every_process(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "pipeline", 60.0)?;
    let mut command = world.command("sh");
    command.args(["-c", "printf 'b\na\n' | sort | cat"]);
    let ended = world.finish(command)?;
    let ran = |name| ended.processes.iter().filter(|p| p.name() == name).count();
    let all_carry = ended
        .processes
        .iter()
        .all(|p| p.presence == Presence::Carried);
    if ended.stdout == "a\nb\n" && ran("sort") == 1 && ran("cat") == 1 && all_carry {
        return Ok(());
    }
    Err(format!("{:?}: {:?}", ended.stdout, ended.processes).into())
}

/// A mapped library need not serve malloc: asks the dynamic loader what it bound the names to.
fn sees_the_library_serve_malloc(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "bindings", 60.0)?;
    let mut command = world.command("sh");
    command.args(["-c", "LD_BIND_NOW=1 LD_DEBUG=bindings sort /dev/null"]);
    let bindings = world.finish(command)?.stderr;
    let library = bench.library.display();
    for name in ["malloc", "calloc", "realloc", "free"] {
        let bound = format!("sort [0] to {library} [0]: normal symbol `{name}'");
        if !bindings.contains(&bound) {
            return Err(format!("sort's {name} is not the library's").into());
        }
    }
    Ok(())
}

fn sees_what_the_library_writes(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "loud", 60.0)?;
    expect_error(
        world.run("sh", &["-c", "echo 'neap: something' >&2"]),
        "the library wrote",
    )
}

fn hands_on_the_status(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "status", 60.0)?;
    expect_error(world.run("sh", &["-c", "exit 7"]), "exit status: 7")
}

fn kills_at_the_deadline(bench: &Bench) -> Outcome<()> {
    let world = world(bench, "deadline", 0.2)?;
    expect_error(world.run("sleep", &["1000"]), "out of time")
}
