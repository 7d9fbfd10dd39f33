//! Every system call of the library fails, once and each time, with every error that the kernel
//! might give. Nothing is lost, and nothing hangs.
//!
//! Each place in the library that makes a call has its own runs. With `INJECT=all` these are ten,
//! and there are more sets of options; otherwise it fails once with one error and each time with
//! another.

use crate::c_library::leaves_out;
use crate::skips::announce;
use crate::support::{Artifact, Machine, compile, library, preloaded};
use crate::tracer::{Call, Injection, Run, Site, Times, trace};
use nix::errno::Errno;
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use syscalls::Sysno;

/// What the kernel may answer.
const ERRORS: [Errno; 5] = [
    Errno::ENOMEM,
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::ENOSYS,
    Errno::EPERM,
];

/// Calls that end the caller or only return a number of its own, and the one that wakes others: the
/// kernel's manual lists no error of them that a correct argument gives. Without the last, no lock
/// of the C library works either.
fn can_fail(call: Call) -> bool {
    let numbers = [
        Sysno::exit,
        Sysno::exit_group,
        Sysno::getpid,
        Sysno::gettid,
        Sysno::rt_sigreturn,
    ];
    let is_wake = call.number == Sysno::futex && call.operation == libc::FUTEX_WAKE as u64;
    // A program's own fork, which the library carries out, may fail.
    let is_fork = matches!(call.number, Sysno::clone | Sysno::fork | Sysno::vfork);
    !(numbers.contains(&call.number) || is_wake || is_fork)
}

/// Some options of the library.
type Options = &'static [(&'static str, &'static str)];

/// Options under which the library makes many calls.
const EAGER: Options = &[
    ("NEAP_DECAY", "10ms"),
    ("NEAP_PURGE_THREAD", "always"),
    ("NEAP_STATUS_PAGE", "1"),
];

/// Options under which it makes others.
const OTHERS: [Options; 2] = [
    &[
        ("NEAP_DECAY", "10ms"),
        ("NEAP_SAMPLE", "16K"),
        ("NEAP_CHECK", "1"),
        ("NEAP_STATS", "text"),
        ("NEAP_STATS_FILE", "/dev/null"),
    ],
    &[
        ("NEAP_DECAY", "0"),
        ("NEAP_PURGE_THREAD", "never"),
        ("NEAP_LIMIT", "64M"),
    ],
];

/// Much longer than a run takes on a busy machine.
const MOST: Duration = Duration::from_secs(120);

/// How often a call that failed in no run is tried again: whether the library makes some calls
/// depends on when its purge thread runs.
const MOST_REPEATS: usize = 20;

/// A call that fails under some options.
struct Trial {
    options: Options,
    injection: Injection,
}

impl Trial {
    /// Runs the program. What is wrong with the run, if anything; notes that the call failed.
    fn fault(&self, program: &Path, failed: &Mutex<BTreeSet<Call>>) -> Option<String> {
        let Injection { site, error, times } = self.injection;
        let Site { call, offset } = site;
        let run = run(program, self.options, Some(self.injection));
        if run.injected > 0 {
            failed.lock().expect("no panic").insert(call);
        }
        let (fault, options) = (fault(&run, &COMPLAINTS)?, self.options);
        Some(format!(
            "{call} before {offset:#x}, {error:?} {times:?}, {options:?}: {fault}"
        ))
    }
}

fn run(program: &Path, options: Options, injection: Option<Injection>) -> Run {
    let refusals = match injection.map(|injection| injection.times) {
        None => "never",
        Some(Times::Once) => "once",
        Some(Times::Always) => "ever",
    };
    let mut command = preloaded(program, &[]);
    command.env("REFUSALS", refusals);
    command.envs(options.iter().copied());
    trace(&mut command, &library(), injection, MOST)
}

/// What the library says where an option asks for statistics that it cannot write.
const COMPLAINTS: [&str; 2] = [
    "neap: no memory to write the statistics",
    "neap: cannot write the statistics to /dev/null",
];

fn fault(run: &Run, complaints: &[&str]) -> Option<String> {
    let is_unexpected = |line: &str| !complaints.contains(&line);
    match &run.end {
        Err(end) => Some(format!("{end} {}", run.stderr)),
        Ok(()) if run.stderr.lines().any(is_unexpected) => {
            Some(format!("it wrote: {}", run.stderr))
        }
        Ok(()) => None,
    }
}

/// The trials of the `nth` site.
fn trials(options: Options, nth: usize, site: Site, are_all: bool) -> Vec<Trial> {
    let trial = |error, times| Trial {
        options,
        injection: Injection { site, error, times },
    };
    if are_all {
        let both = |error| [Times::Once, Times::Always].map(|times| trial(error, times));
        return ERRORS.into_iter().flat_map(both).collect();
    }
    let error = |nth: usize| ERRORS[nth % ERRORS.len()];
    vec![
        trial(error(nth), Times::Once),
        trial(error(nth + 1), Times::Always),
    ]
}

/// Whether a trial's call failed in no run. A thread waits only where it meets another, which may
/// happen in no later run.
fn missed(trial: &Trial, failed: &BTreeSet<Call>) -> bool {
    let call = trial.injection.site.call;
    let waits = [Sysno::futex, Sysno::clock_nanosleep];
    !failed.contains(&call) && !waits.contains(&call.number)
}

/// What is wrong with each trial, and which calls failed. As many run at once as there are
/// processors.
fn faults(program: &Path, trials: &[impl Borrow<Trial> + Sync]) -> (Vec<String>, BTreeSet<Call>) {
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let failed = Mutex::new(BTreeSet::new());
    let work = || {
        while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fault = trial.borrow().fault(program, &failed);
            faults.lock().expect("no panic").extend(fault);
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, Into::into);
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let failed = failed.into_inner().expect("no panic");
    (faults.into_inner().expect("no panic"), failed)
}

#[test]
fn nothing_is_lost_when_a_system_call_fails() {
    if leaves_out("injected faults") {
        return;
    }
    if Machine::under_test() != Machine::Own {
        return announce("injected faults: an emulator is not traced");
    }
    let are_all = env::var_os("INJECT").is_some_and(|word| word == "all");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let flags = [include].map(OsStr::new);
    let Some(program) = compile("programs/workload.c", Artifact::Program, &flags) else {
        return;
    };
    let others = OTHERS.iter().copied().filter(|_| are_all);
    let mut all = Vec::new();
    for options in [EAGER].into_iter().chain(others) {
        let plain = run(&program, options, None);
        assert_eq!(fault(&plain, &[]), None, "{options:?}");
        let sites = plain.calls.into_keys().filter(|site| can_fail(site.call));
        let trials = sites
            .enumerate()
            .map(|(nth, site)| trials(options, nth, site, are_all));
        all.extend(trials.flatten());
    }
    let (mut faults, mut failed) = faults(&program, &all);
    for _ in 0..MOST_REPEATS {
        let missed: Vec<_> = all.iter().filter(|trial| missed(trial, &failed)).collect();
        let (more, late) = self::faults(&program, &missed);
        faults.extend(more);
        failed.extend(late);
    }
    let names: Vec<_> = failed.iter().map(Call::to_string).collect();
    // Not eprintln: the harness would hide it in a test that passes.
    let _ = writeln!(
        io::stderr(),
        "{} runs, in which these calls failed: {}",
        all.len(),
        names.join(" ")
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let missed: Vec<_> = (all.iter().filter(|trial| missed(trial, &failed)))
        .map(|trial| trial.injection.site.call.to_string())
        .collect();
    assert!(missed.is_empty(), "never failed: {}", missed.join(" "));
}
