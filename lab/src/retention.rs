//! How much of its freed memory a sleeping process keeps, observed from outside, and whether any of
//! its threads wakes up when nothing is left to give back.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use procfs::process::Process;

use crate::command::Dialogue;
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::record::Figure;
use crate::engine::settings::{self, Settings};
use crate::peers::locate::Ready;
use crate::work::retention::{MOMENTS, Pattern};
use crate::{machine, run};

/// How much of its freed memory a sleeping process keeps.
pub const EXPERIMENT: Experiment = Experiment {
    name: "retention",
    about: "How much of its freed memory a sleeping process keeps, and whether it wakes",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::names("only", "Only these patterns"),
            settings::number("mib", "MIB", (1, 1 << 20))
                .default_value("100")
                .help("MiB to allocate and free"),
            settings::rounds(),
            settings::quick(),
        ]
    },
    run: carry_out,
    ..PLAIN
};

/// When resident memory is read, in milliseconds after the frees.
const READINGS: [u64; 5] = [500, 1_000, 2_000, 5_000, 12_000];
const IDLE: Duration = Duration::from_secs(5);
/// The readings of a quick run; below, the most MiB that it allocates.
const QUICK_READINGS: [u64; 1] = [100];
const QUICK_IDLE: Duration = Duration::from_millis(100);
const QUICK_MIB: u64 = 4;

/// The work of one process, and when it is observed.
struct Terms {
    /// Bytes allocated and freed.
    bytes: usize,
    /// When its resident memory is read, in order, counted from the end of the frees.
    moments: &'static [u64],
    /// How long its wake-ups are counted after the last of them.
    idle: Duration,
}

/// Runs every pattern under every peer. The peers of one pattern run at the same time: they sleep
/// almost all the time, and bytes do not depend on the processor.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let peers = available_peers(settings)?;
    let patterns = settings.chosen(("only", "pattern"), Pattern::ALL.to_vec(), |one| one.name())?;
    let (rounds, quick) = (settings.rounds(1), settings.is_quick());
    let (moments, idle) = if quick {
        (&QUICK_READINGS[..], QUICK_IDLE)
    } else {
        (&READINGS[..], IDLE)
    };
    let mib = settings.within("mib", QUICK_MIB);
    let options = [("rounds", rounds.to_string()), ("MiB", mib.to_string())];
    campaign.head(&options, &peers);
    let terms = Terms {
        bytes: (mib as usize) << 20,
        moments,
        idle,
    };
    let runs = patterns.len() * peers.len();
    campaign.progress.expect(u64::from(rounds) * runs as u64);
    for round in 0..rounds {
        for &pattern in &patterns {
            campaign.progress.phase(pattern.name());
            for (peer, told) in at_once(pattern, &peers, &terms) {
                campaign.note((pattern.name(), peer, round), told);
            }
        }
    }
    Ok(Ended::Measured)
}

type Told = (&'static str, anyhow::Result<Vec<Figure>>);

fn at_once(pattern: Pattern, peers: &[Ready], terms: &Terms) -> Vec<Told> {
    thread::scope(|scope| {
        let start = |peer| (scope.spawn(move || once(pattern, peer, terms)), peer);
        let running: Vec<_> = peers.iter().map(start).collect();
        let end = |(thread, peer): (thread::ScopedJoinHandle<'_, _>, &Ready)| {
            let told = thread.join();
            let told = told.unwrap_or_else(|_| Err(anyhow::anyhow!("the observer panicked")));
            (peer.name, told)
        };
        running.into_iter().map(end).collect()
    })
}

/// One process under one peer.
///
/// # Errors
/// If it fails, used another malloc, or /proc cannot be read.
fn once(pattern: Pattern, peer: &Ready, terms: &Terms) -> anyhow::Result<Vec<Figure>> {
    let mut worker = Worker::start(pattern, peer, terms.bytes)?;
    worker.wait_for(MOMENTS[0])?;
    let before = worker.resident()?;
    worker.go_on()?;
    worker.wait_for(MOMENTS[1])?;
    let filled = worker.resident()?;
    worker.go_on()?;
    worker.wait_for(MOMENTS[2])?;
    let freed = Instant::now();
    let mut figures = vec![
        Figure::bytes("resident before", before),
        Figure::bytes("resident when filled", filled),
        Figure::bytes("kept at once", worker.resident()? - before),
    ];
    for moment in terms.moments.iter().copied().map(Duration::from_millis) {
        thread::sleep(moment.saturating_sub(freed.elapsed()));
        let name = format!("kept after {} s", moment.as_secs_f64());
        figures.push(Figure::bytes(name, worker.resident()? - before));
    }
    figures.extend(worker.wake_ups(terms.idle)?);
    worker.end(peer)?;
    Ok(figures)
}

/// A worker process.
struct Worker(Dialogue);

impl Worker {
    fn start(pattern: Pattern, peer: &Ready, bytes: usize) -> anyhow::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "retention", pattern.name(), &bytes.to_string()]);
        Dialogue::start(command.env("LD_PRELOAD", &peer.library)).map(Worker)
    }

    /// Waits until the process reports this moment.
    fn wait_for(&mut self, moment: &str) -> anyhow::Result<()> {
        let line = self.0.hear()?;
        let told = run::field(&line, "moment");
        ensure!(
            told == Some(moment),
            "the worker told {line:?} instead of {moment}"
        );
        Ok(())
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        self.0.say("")
    }

    /// Resident bytes now, read without disturbing the process.
    fn resident(&self) -> anyhow::Result<f64> {
        Ok(machine::resident_bytes(&self.0.id().to_string())? as f64)
    }

    /// What runs within `span`, while the process itself sleeps.
    fn wake_ups(&self, span: Duration) -> anyhow::Result<Vec<Figure>> {
        let before = Activity::of(self.0.id())?;
        thread::sleep(span);
        let after = Activity::of(self.0.id())?;
        let seconds = span.as_secs_f64();
        let time = (after.nanoseconds - before.nanoseconds) as f64;
        let switches = after.switches - before.switches;
        Ok(vec![
            Figure::count("tasks then", after.tasks),
            Figure::count(
                format!("context switches in the next {seconds} s"),
                switches,
            ),
            Figure::nanoseconds("processor time in them", time),
        ])
    }

    /// Lets it run to its end, and checks that it used the peer.
    fn end(mut self, peer: &Ready) -> anyhow::Result<()> {
        let (report, errors) = self.0.dismiss()?;
        self.0.wait(&errors)?;
        run::ensure_heap(&report, &peer.library)
    }
}

/// The activity of all tasks of a process so far.
#[derive(Debug, Default)]
struct Activity {
    tasks: u64,
    switches: u64,
    nanoseconds: u64,
}

impl Activity {
    fn of(pid: u32) -> anyhow::Result<Activity> {
        let mut all = Activity::default();
        for task in Process::new(pid as i32)?.tasks()? {
            let task = task?;
            let status = task.status()?;
            let switches = [
                status.voluntary_ctxt_switches,
                status.nonvoluntary_ctxt_switches,
            ];
            all.tasks += 1;
            all.switches += switches.into_iter().flatten().sum::<u64>();
            all.nanoseconds += task.schedstat()?.sum_exec_runtime;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_tasks_that_have_run() {
        let activity = Activity::of(std::process::id()).unwrap();
        assert!(activity.tasks >= 1 && activity.nanoseconds > 0 && activity.switches > 0);
    }
}
