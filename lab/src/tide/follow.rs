//! One process through its steps: controlled over a pipe, observed from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::engines::Present;
use super::observed::{Observation, Run, Sample, Step};
use crate::command::Dialogue;
use crate::work::tide::protocol::{Action, Done, Sizes};
use crate::{command, machine, status};

/// How often the resident size is read.
const EVERY: Duration = Duration::from_millis(20);

/// The observations of a run.
pub struct Followed {
    /// Its steps.
    pub steps: Vec<Observation>,
    /// The resident size over time.
    pub samples: Vec<Sample>,
}

/// Takes `engine` through a run, with this wait where the run has one.
///
/// # Errors
/// If the process fails, hangs, or uses the wrong heap.
pub fn follow(
    engine: &Present,
    sizes: &Sizes,
    run: Run,
    wait: Duration,
) -> anyhow::Result<Followed> {
    let mut worker = Worker::start(engine, sizes, wait)?;
    let seen = worker.greeting(engine).and_then(|()| {
        let step = |&step: &Step| worker.step(step, run.waits_after(step), wait);
        run.steps().iter().map(step).collect::<anyhow::Result<_>>()
    });
    worker.end(seen)
}

struct Worker {
    dialogue: Dialogue,
    watch: Watch,
}

impl Worker {
    fn start(engine: &Present, sizes: &Sizes, wait: Duration) -> anyhow::Result<Worker> {
        let dialogue = Dialogue::start(&mut engine.command(sizes)?)?;
        let longest = command::LONGEST + wait * Step::ALL.len() as u32;
        let watch = Watch::over(dialogue.id(), longest);
        Ok(Worker { dialogue, watch })
    }

    fn greeting(&mut self, engine: &Present) -> anyhow::Result<()> {
        engine.ensure_heap(&self.dialogue.hear()?)
    }

    fn ask(&mut self, action: Action) -> anyhow::Result<String> {
        self.dialogue.say(action.name())?;
        self.dialogue.hear()
    }

    fn step(&mut self, step: Step, waits: bool, wait: Duration) -> anyhow::Result<Observation> {
        let pid = self.dialogue.id();
        let from = self.watch.now();
        let done = match step.action() {
            Some(action) => Done::parse(&self.ask(action)?)?,
            None => Done::default(),
        };
        let rss = machine::resident_kib(&pid.to_string())?;
        let to = self.watch.now();
        let tables = machine::tables_kib(pid)?;
        let mut later = None;
        if waits && step != Step::Start {
            std::thread::sleep(wait);
            later = Some(machine::resident_kib(&pid.to_string())?);
        }
        let neap =
            status::of_process(pid).map(|heap| (heap.free_dirty >> 10, heap.purged_bytes >> 10));
        Ok(Observation {
            step,
            ms: (from, to),
            peak: rss.max(done.full_kib),
            done,
            rss,
            later,
            tables,
            neap,
        })
    }

    /// Lets the process end, and combines the observations.
    fn end(mut self, seen: anyhow::Result<Vec<Observation>>) -> anyhow::Result<Followed> {
        let (_, errors) = self.dialogue.dismiss()?;
        // Stop the watch first: it may still kill the process, whose PID must not be reused before.
        let overdue = self.watch.overdue();
        let samples = self.watch.finish();
        let ended = self.dialogue.wait(&errors);
        if let Some(longest) = overdue {
            bail!("killed after {} s", longest.as_secs());
        }
        ended?;
        let mut steps = seen?;
        for step in &mut steps {
            step.peak = step.peak.max(peak_within(&samples, step.ms));
        }
        Ok(Followed { steps, samples })
    }
}

fn peak_within(samples: &[Sample], (from, to): (u64, u64)) -> u64 {
    let within = samples.iter().filter(|s| (from..=to).contains(&s.ms));
    within.map(|sample| sample.kib).max().unwrap_or(0)
}

/// Reads a process's resident size continuously, and kills it if it takes too long.
struct Watch {
    start: Instant,
    longest: Duration,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Watch {
    fn over(pid: u32, longest: Duration) -> Watch {
        let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || watch(pid, start, longest, &told));
        Watch {
            start,
            longest,
            stop,
            thread,
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// The limit, if the process exceeded it.
    fn overdue(&self) -> Option<Duration> {
        (self.start.elapsed() > self.longest).then_some(self.longest)
    }

    fn finish(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn watch(pid: u32, start: Instant, longest: Duration, stop: &AtomicBool) -> Vec<Sample> {
    let (who, mut samples) = (pid.to_string(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let ms = start.elapsed();
        if ms > longest {
            // SAFETY: the child is not waited for before this thread ended, so the number is its.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            break;
        }
        // A process that has ended reports 0, which is not a measurement.
        if let Ok(kib @ 1..) = machine::resident_kib(&who) {
            let ms = ms.as_millis() as u64;
            samples.push(Sample { ms, kib });
        }
        std::thread::sleep(EVERY);
    }
    samples
}

/// Drops redundant samples: of a stretch within `tolerance` KiB of its first sample, only the first
/// and the last stay.
pub fn thinned(samples: &[Sample], tolerance: u64) -> Vec<Sample> {
    let mut kept: Vec<Sample> = Vec::new();
    let mut first = None;
    for (place, sample) in samples.iter().enumerate() {
        let stays = first.is_some_and(|kib: u64| kib.abs_diff(sample.kib) <= tolerance);
        if stays {
            continue;
        }
        if let Some(before) = place.checked_sub(1).map(|place| samples[place])
            && kept.last() != Some(&before)
        {
            kept.push(before);
        }
        kept.push(*sample);
        first = Some(sample.kib);
    }
    match samples.last() {
        Some(last) if kept.last() != Some(last) => kept.push(*last),
        _ => {}
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::tide::protocol::Blocks;

    fn samples(kib: &[u64]) -> Vec<Sample> {
        let sample = |(place, &kib): (usize, &u64)| Sample {
            ms: 20 * place as u64,
            kib,
        };
        kib.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn flat_stretches_keep_their_ends() {
        let all = samples(&[10, 10, 11, 10, 90, 200, 200, 200]);
        let kept: Vec<(u64, u64)> = thinned(&all, 5).iter().map(|s| (s.ms, s.kib)).collect();
        assert_eq!(kept, [(0, 10), (60, 10), (80, 90), (100, 200), (140, 200)]);
        assert!(thinned(&[], 5).is_empty());
        assert_eq!(thinned(&samples(&[7]), 5).len(), 1);
    }

    #[test]
    fn a_peak_is_of_its_own_step() {
        let all = samples(&[1, 9, 3, 20]);
        assert_eq!(peak_within(&all, (15, 45)), 9);
        assert_eq!(peak_within(&all, (61, 99)), 0);
    }

    #[test]
    fn a_process_that_does_nothing_is_killed_in_its_time() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let watch = Watch::over(child.id(), Duration::from_millis(30));
        assert!(!child.wait().unwrap().success());
        assert_eq!(watch.overdue(), Some(Duration::from_millis(30)));
        assert!(!watch.finish().is_empty());
    }

    #[test]
    fn a_process_that_is_no_worker_is_an_error_with_its_words() {
        // The shell takes the first argument, a number of bytes, as the name of a script.
        let shell = Present::of_program("sh");
        let sizes = Sizes {
            heap_bytes: 1 << 20,
            blocks: Blocks::One,
            coroutines: 1,
            stack_bytes: 64 << 10,
        };
        let error = follow(&shell, &sizes, Run::AtOnce, Duration::ZERO).err();
        let error = error.expect("a run").to_string();
        assert!(
            error.contains("ended with") && error.contains("1048576"),
            "{error}"
        );
    }
}
