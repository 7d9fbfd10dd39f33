//! The ledger of every process that runs under the library, compared with what the kernel counts, while the programs run.
//!
//! A thread looks for the processes that a world's commands started, asks each through its board for its figures, and reads the
//! kernel's count of the arenas (`/proc/PID/smaps`) before, meanwhile and after. The lines must add up to their sum, always; the sum
//! must lie between the least and the most that the kernel counted, or beside it by at most 1 % or 256 KiB.

mod process;

use crate::Outcome;
use process::{Answer, Reading};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often processes are looked for: some live for some ten ms.
const ROUND: Duration = Duration::from_millis(5);
/// One that did not answer is left alone for so long.
const LONG_REST: Duration = Duration::from_secs(4);
/// A process is left alone for so long after a question. It bounds by itself what its answers cost.
const REST: Duration = Duration::from_millis(20);
/// A program that allocates meanwhile may be caught between two of the kernel's counts: it is asked again, so often.
const ATTEMPTS: u32 = 5;
/// What the two sums may differ by, whichever is more.
const TOLERANCE: (u64, u64) = (256 << 10, 100);

/// What was seen of one world's processes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Readings, by the name of their process.
    readings: BTreeMap<String, Vec<Reading>>,
    /// Questions that nobody answered in time: the process slept.
    unanswered: u32,
    /// Readings beyond the tolerance that the next one did not confirm.
    repeated: u32,
    /// Those that were confirmed, in words.
    failures: Vec<String>,
}

impl Audit {
    /// The columns of [`Audit::to_line`].
    pub const COLUMNS: &str = "program,processes,readings,at_rest,unanswered,repeated,worst_bytes,of_bytes,worst_at_rest_bytes,worst_to_nearest_bytes";

    /// Fails if a ledger was wrong.
    ///
    /// # Errors
    /// Each wrong ledger, one a line.
    pub fn judge(&self) -> Outcome<()> {
        match self.failures.as_slice() {
            [] => Ok(()),
            failures => Err(failures.join("\n").into()),
        }
    }

    /// The audit as a line of a record.
    #[must_use]
    pub fn to_line(&self, program: &str) -> String {
        let all = || self.readings.values().flatten();
        let at_rest = || all().filter(|reading| reading.is_at_rest());
        let worst = all().max_by_key(|reading| reading.difference());
        let worst_at_rest = at_rest().map(Reading::difference).max();
        format!(
            "{program},{},{},{},{},{},{},{},{},{}",
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

    /// Asks a process until its ledger fits, or until it is clear that it does not. Gives how long it is to be left alone.
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
                Answer::Nobody => return,
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
    /// Whether it is as it must be.
    fn fits(&self) -> bool {
        let (bytes, part) = TOLERANCE;
        self.adds_up() && self.difference() <= bytes.max(self.high / part)
    }
}

/// What the thread and its owner share.
#[derive(Default)]
struct Shared {
    /// The commands whose processes are looked at.
    roots: Mutex<Vec<u32>>,
    ended: AtomicBool,
}

/// The thread that looks. Dropped, it ends.
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

    /// From now on the descendants of `root` are looked at.
    pub fn watch(&self, root: u32) {
        let mut roots = self
            .shared
            .roots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        roots.push(root);
    }

    /// Ends it, and gives what it saw.
    ///
    /// # Errors
    /// When the thread panicked.
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

/// All processes that `roots` started, and those that these did.
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
