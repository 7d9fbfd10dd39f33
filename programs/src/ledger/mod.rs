//! Compares the ledger of every process under the library with the kernel's counts, while the
//! programs run.
//!
//! A thread looks for the processes that a world's commands started, and requests the figures of
//! each through its status page. It reads the kernel's count of the arenas (`/proc/PID/smaps`)
//! before, during and after that. The lines must always add up to their sum. The sum must lie
//! between the least and the most that the kernel counted, or outside by at most 1 % or 256 KiB.

mod process;

use crate::bench::Tier;
use crate::outcome::Outcome;
use process::{Answer, Reading};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often processes are searched: some live for only about ten ms.
const ROUND: Duration = Duration::from_millis(5);
/// Pause after a process did not answer.
const LONG_REST: Duration = Duration::from_secs(4);
/// Pause after a question. A process itself limits the cost of its answers.
const REST: Duration = Duration::from_millis(20);
/// Most questions about one ledger. A program that allocates may change between two of the kernel's
/// counts, so it is asked again. On a busy machine two answers in five are beyond the tolerance.
const ATTEMPTS: u32 = 12;
/// Allowed difference of the two sums, in bytes or as one part in this many; the larger one
/// applies.
const TOLERANCE: (u64, u64) = (256 << 10, 100);

/// The observations of one world's processes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Readings by process name.
    readings: BTreeMap<String, Vec<Reading>>,
    /// Questions without an answer in time: the process slept.
    unanswered: u32,
    /// Readings beyond the tolerance that the next one did not confirm.
    repeated: u32,
    /// Confirmed ones, in words.
    failures: Vec<String>,
}

impl Audit {
    /// The columns of [`Audit::to_line`].
    pub const COLUMNS: &str = "program,tier,processes,readings,at_rest,unanswered,repeated,worst_bytes,of_bytes,worst_at_rest_bytes,worst_to_nearest_bytes";

    /// Fails if a ledger was wrong. In the full tier, where programs run long enough, also fails if
    /// none was seen.
    ///
    /// # Errors
    /// Each wrong ledger, one per line.
    pub fn judge(&self, tier: Tier) -> Outcome<()> {
        match self.failures.as_slice() {
            [] if tier == Tier::Full && self.readings.is_empty() => {
                Err("no process reported its ledger".into())
            }
            [] => Ok(()),
            failures => Err(failures.join("\n").into()),
        }
    }

    /// The audit as a line of a record.
    #[must_use]
    pub fn to_line(&self, program: &str, tier: Tier) -> String {
        let all = || self.readings.values().flatten();
        let at_rest = || all().filter(|reading| reading.is_at_rest());
        let worst = all().max_by_key(|reading| reading.difference());
        let worst_at_rest = at_rest().map(Reading::difference).max();
        format!(
            "{program},{},{},{},{},{},{},{},{},{},{}",
            tier.pick("quick", "full"),
            self.readings.keys().cloned().collect::<Vec<_>>().join(" "),
            all().count(),
            at_rest().count(),
            self.unanswered,
            self.repeated,
            worst.map_or(0, Reading::difference),
            worst.map_or(0, |reading| reading.high),
            worst_at_rest.unwrap_or(0),
            all().map(|reading| reading.nearest).max().unwrap_or(0),
        )
    }

    /// Asks a process until its ledger fits or is confirmed to be wrong. Returns the pause before
    /// the next question.
    fn look_at(&mut self, pid: u32) -> Duration {
        let before = self.unanswered;
        self.ask(pid);
        match self.unanswered == before {
            true => REST,
            false => LONG_REST,
        }
    }

    fn ask(&mut self, pid: u32) {
        for attempt in 1..=ATTEMPTS {
            match process::ask(pid) {
                Answer::Absent => return,
                Answer::Late => return self.unanswered += 1,
                Answer::Figures(name, reading) if reading.fits() => {
                    return self.readings.entry(name).or_default().push(reading);
                }
                Answer::Figures(name, reading) if attempt == ATTEMPTS || !reading.adds_up() => {
                    return self.failures.push(format!("{name} ({pid}): {reading}"));
                }
                Answer::Figures(..) => self.repeated += 1,
            }
        }
    }
}

impl Reading {
    /// Whether the reading meets both conditions.
    fn fits(&self) -> bool {
        let (bytes, part) = TOLERANCE;
        self.adds_up() && self.difference() <= bytes.max(self.high / part)
    }
}

/// The state that the thread and its owner share.
#[derive(Default)]
struct Shared {
    /// The commands whose processes are observed.
    roots: Mutex<Vec<u32>>,
    ended: AtomicBool,
}

/// The observing thread, which ends when this value is dropped.
#[derive(Default)]
pub struct Auditor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Audit>>,
}

impl Auditor {
    /// Starts it.
    #[must_use]
    pub fn start() -> Auditor {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || look_around(&shared)
        });
        Auditor {
            shared,
            thread: Some(thread),
        }
    }

    /// Observes the descendants of `root` from now on.
    pub fn watch(&self, root: u32) {
        let mut roots = self
            .shared
            .roots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        roots.push(root);
    }

    /// Ends it, and returns its observations.
    ///
    /// # Errors
    /// If the thread panicked.
    pub fn end(&mut self) -> Outcome<Audit> {
        self.shared.ended.store(true, Ordering::Relaxed);
        match self.thread.take() {
            None => Ok(Audit::default()),
            Some(thread) => Ok(thread.join().map_err(|_| "the auditor panicked")?),
        }
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error}");
        }
    }
}

fn look_around(shared: &Shared) -> Audit {
    let mut audit = Audit::default();
    let mut rests: HashMap<u32, Instant> = HashMap::new();
    while !shared.ended.load(Ordering::Relaxed) {
        let roots = shared
            .roots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for pid in descendants(&roots) {
            if rests.get(&pid).is_none_or(|until| *until <= Instant::now()) {
                let rest = audit.look_at(pid);
                rests.insert(pid, Instant::now() + rest);
            }
        }
        thread::sleep(ROUND);
    }
    audit
}

/// All descendants of `roots`.
fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut unvisited = roots.to_vec();
    while let Some(pid) = unvisited.pop() {
        let before = unvisited.len();
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            unvisited.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        found.extend_from_slice(&unvisited[before..]);
    }
    found
}
