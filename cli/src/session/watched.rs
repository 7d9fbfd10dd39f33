//! One process of the tree, and the time of the run.

use crate::attach::{Process, Region, StatusPage, kernel, now_ms};
use crate::recording::Record;
use crate::recording::format::{
    Classes, Event, Frontend, GuardCounts, Happening, Heap, Sample, Spans,
};
use neap_shared::stats::Snapshot;
use neap_shared::status_page::NAME;
use std::mem;
use std::time::{Duration, Instant};

/// Time since the program's start, by the clock of the processes' figures.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// In ms of `CLOCK_MONOTONIC`.
    origin: u64,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { origin: now_ms() }
    }

    /// The time now.
    pub fn now_ms(self) -> u64 {
        self.of(now_ms())
    }

    /// Converts `CLOCK_MONOTONIC`; a time before the start becomes the start.
    pub fn of(self, monotonic_ms: u64) -> u64 {
        monotonic_ms.saturating_sub(self.origin)
    }
}

/// How long a process keeps writing its figures after this session's last request.
const LEASE: Duration = Duration::from_secs(5);
/// Interval between two records of size classes, in ms.
const CLASSES_MS: u64 = 5_000;
/// Reading the kernel's count of the arenas holds up the process, so it may take at most one part
/// in this many of the time.
const KERNEL_PART: u32 = 200;

/// A process that has sent its status page, its profile, or both.
pub struct Watched {
    /// Its PID.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Its profile, if it samples.
    pub region: Option<Region>,
    status_page: Option<StatusPage>,
    purged: u64,
    leased: Option<Instant>,
    classes_at: Option<u64>,
    kernel_from: Instant,
    peak: Peak,
    early: Early,
}

/// A profile as it was read before the end.
#[derive(Default)]
pub struct Reading {
    /// When, in ms.
    pub t_ms: u64,
    /// The region's bytes; empty if never read.
    pub region: Vec<u8>,
}

/// The profile from when the program held most, as far as it was read in time.
#[derive(Default)]
struct Peak {
    reading: Reading,
    /// Bytes that the program held then.
    held: u64,
    /// The earliest time of the next reading.
    from: Option<Instant>,
}

impl Watched {
    /// A process that has just started.
    pub fn new(pid: u32, status_page: Option<StatusPage>) -> Self {
        let process = status_page.as_ref().and_then(StatusPage::process);
        let program = process.map_or_else(String::new, Process::name);
        Self {
            pid,
            program,
            region: None,
            status_page,
            purged: 0,
            leased: None,
            classes_at: None,
            kernel_from: Instant::now(),
            peak: Peak::default(),
            early: Early::default(),
        }
    }

    /// Whether the process was alive at the last tick.
    pub fn is_alive(&self) -> bool {
        self.status_page.is_some()
    }

    /// Notes that the process has ended or executed another program. Keeps its profile.
    pub fn end(&mut self) {
        self.status_page = None;
    }

    /// Its profile at the peak, if it holds less now.
    pub fn peak(&self) -> Option<&Reading> {
        Some(&self.peak.reading).filter(|reading| !reading.region.is_empty())
    }

    /// Its profile from the second quarter of its time.
    pub fn early(&self) -> Option<&Reading> {
        Some(&self.early.older).filter(|reading| !reading.region.is_empty())
    }

    /// Its kind of heap, from its status page.
    pub fn frontend(&self) -> Frontend {
        let status_page = self.status_page.as_ref();
        if status_page.is_some_and(StatusPage::is_own_heap) {
            Frontend::Rust
        } else {
            Frontend::Library
        }
    }

    /// Replaces the status page if `status_page` is a second heap of the same program. A Rust
    /// program with Neap as its own allocator also loads the library, but uses its own heap.
    /// Otherwise ends this one and returns the status page: the process has executed another
    /// program.
    pub fn take_own_heap(&mut self, status_page: StatusPage) -> Option<StatusPage> {
        let is_second = self.frontend() == Frontend::Library
            && status_page.is_own_heap()
            && status_page.process().is_some_and(has_two_heaps);
        if !is_second {
            self.end();
            return Some(status_page);
        }
        self.status_page = Some(status_page);
        self.purged = 0;
        self.leased = None;
        None
    }

    /// The process's state as lines of a recording. Renews the request for figures. Without a
    /// recording, only checks whether the process is alive.
    pub fn look(
        &mut self,
        clock: Clock,
        interval: Duration,
        recorded: bool,
        main: u32,
    ) -> Vec<Record> {
        let Some(status_page) = &self.status_page else {
            return Vec::new();
        };
        let Some(rss) = rss(status_page) else {
            return self.conclude(clock, main);
        };
        if !recorded {
            return Vec::new();
        }
        let seen = Seen::of(status_page, clock, rss);
        self.keep_answering(interval, &seen);
        if let (Some(region), Some(spans)) = (&self.region, seen.spans) {
            self.peak.look(seen.t_ms, spans.taken(), region);
            self.early.look(seen.t_ms, region);
        }
        let arenas_rss = self.kernel_count();
        self.lines(seen, clock, arenas_rss)
    }

    /// Has the process write its figures at every interval.
    fn keep_answering(&mut self, interval: Duration, seen: &Seen) {
        let Some(status_page) = &self.status_page else {
            return;
        };
        if self.leased.is_none_or(|at| at.elapsed() > LEASE / 4) {
            // If the request fails, the process is sampled nevertheless, with the figures that it
            // writes by itself.
            let _ = status_page.watch(interval, LEASE);
            self.leased = Some(Instant::now());
        }
        let age_ms = seen.figures.map_or(u64::MAX, |figures| age_ms(&figures));
        if u128::from(age_ms) > interval.as_millis() * 2 {
            // Only the purge thread honours a lease. Without one, the program's own calls answer a
            // single request.
            let _ = status_page.nudge();
        }
    }

    /// Its last figures: after the main program's end, or written at its own, or before it was
    /// killed. Of the main program the exit status is known, so its parent reports its end.
    pub fn conclude(&mut self, clock: Clock, main: u32) -> Vec<Record> {
        let Some(status_page) = self.status_page.take() else {
            return Vec::new();
        };
        let rss = rss(&status_page);
        self.classes_at = None;
        let seen = Seen::of(&status_page, clock, rss.unwrap_or(0));
        let mut records = self.lines(seen, clock, None);
        if rss.is_none() && self.pid != main {
            records.push(self.event(clock.now_ms(), Happening::Ended));
        }
        records
    }

    fn lines(&mut self, seen: Seen, clock: Clock, arenas_rss: Option<u64>) -> Vec<Record> {
        let t_ms = seen.t_ms;
        let sample = Sample {
            t_ms,
            pid: self.pid,
            rss: seen.rss,
            arenas_rss,
            // For a process that has ended, these would be of the moment before.
            spans: seen.spans.filter(|_| seen.rss > 0),
            guards: seen.guards,
            ..Sample::default()
        };
        let Some(figures) = seen.figures else {
            return vec![Record::Sample(Box::new(sample))];
        };
        let at_ms = clock.of(figures.at_ms).min(t_ms);
        let sample = sample.with(Heap::new(&figures, t_ms - at_ms));
        let mut records = vec![Record::Sample(Box::new(sample))];
        records.extend(self.purge(t_ms, &figures));
        if self.classes_at.is_none_or(|at| t_ms >= at + CLASSES_MS) {
            records.push(Record::Classes(Classes::new(at_ms, self.pid, &figures)));
            self.classes_at = Some(t_ms);
        }
        records
    }

    fn purge(&mut self, t_ms: u64, figures: &Snapshot) -> Option<Record> {
        let bytes = figures.purged_bytes.saturating_sub(self.purged);
        self.purged = figures.purged_bytes;
        (bytes > 0).then(|| self.event(t_ms, Happening::Purge { bytes }))
    }

    fn event(&self, t_ms: u64, what: Happening) -> Record {
        Record::Event(Event {
            t_ms,
            pid: self.pid,
            what,
        })
    }

    /// The kernel's count of the arenas, at intervals, because it walks the page tables of the
    /// whole process.
    fn kernel_count(&mut self) -> Option<u64> {
        let start = Instant::now();
        if start < self.kernel_from {
            return None;
        }
        let view = self.status_page.as_ref().map(kernel::of_status_page);
        let pause = (start.elapsed() * KERNEL_PART).max(Duration::from_secs(1));
        self.kernel_from = Instant::now() + pause;
        Some(view?.ok()?.arenas_rss)
    }
}

/// Whether two status pages are mapped. `exec` would have unmapped both.
fn has_two_heaps(process: &Process) -> bool {
    let name = NAME.to_string_lossy();
    let maps = process.text("maps").unwrap_or_default();
    let status_pages = maps.lines().filter(|line| line.contains(&*name));
    status_pages.count() > 1
}

/// What was read of a process at once, before any slow step.
#[derive(Clone, Copy)]
struct Seen {
    t_ms: u64,
    rss: u64,
    spans: Option<Spans>,
    guards: Option<GuardCounts>,
    figures: Option<Snapshot>,
}

impl Seen {
    fn of(status_page: &StatusPage, clock: Clock, rss: u64) -> Self {
        Self {
            t_ms: clock.now_ms(),
            rss,
            spans: status_page.coarse().as_ref().map(Spans::from),
            guards: guards(status_page),
            figures: status_page.figures(),
        }
    }
}

/// Its guarded samples, if there were any.
fn guards(status_page: &StatusPage) -> Option<GuardCounts> {
    let served = status_page.served();
    let counts = GuardCounts {
        blocks: served.guarded_blocks,
        errors: served.memory_errors,
    };
    (counts != GuardCounts::default()).then_some(counts)
}

/// The age of these figures, in ms.
fn age_ms(figures: &Snapshot) -> u64 {
    now_ms().saturating_sub(figures.at_ms)
}

impl Peak {
    /// Reads the region if the program holds more than ever, by the page heap's count. Requires a
    /// tenth more, so that a growing program is not read at every tick, and takes at most one part
    /// in [`KERNEL_PART`] of the time.
    fn look(&mut self, t_ms: u64, held: u64, region: &Region) {
        let start = Instant::now();
        let early = self.from.is_some_and(|from| start < from);
        if early || held < LEAST_PEAK || held < self.held.saturating_add(self.held / 10) {
            return;
        }
        let Ok(region) = region.read() else {
            return;
        };
        self.from = Some(Instant::now() + start.elapsed() * KERNEL_PART);
        self.held = held;
        self.reading = Reading { t_ms, region };
    }
}

/// The last two of a series of profiles. At each, the process was at least twice as old as at the
/// one before.
#[derive(Default)]
struct Early {
    from_ms: Option<u64>,
    older: Reading,
    newer: Reading,
}

impl Early {
    /// Reads the region if the process is twice as old as at the last reading.
    fn look(&mut self, t_ms: u64, region: &Region) {
        let from_ms = *self.from_ms.get_or_insert(t_ms);
        let age_ms = self.newer.t_ms.saturating_sub(from_ms);
        let is_due = t_ms > self.newer.t_ms && t_ms - from_ms >= 2 * age_ms;
        if is_due && let Ok(region) = region.read() {
            let newer = Reading { t_ms, region };
            self.older = mem::replace(&mut self.newer, newer);
        }
    }
}

/// A lower peak is not worth a profile, in bytes.
const LEAST_PEAK: u64 = 8 << 20;

/// Resident bytes; `None` if the process has ended.
fn rss(status_page: &StatusPage) -> Option<u64> {
    let text = status_page.process()?.text("statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    (pages > 0).then(|| pages.saturating_mul(rustix::param::page_size() as u64))
}
