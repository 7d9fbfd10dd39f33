//! One process of the tree.

use super::bare;
use crate::attach::{Board, Region, kernel};
use crate::recording::Record;
use crate::recording::format::{Classes, Event, Happening, Heap};
use neap::stats::Snapshot;
use std::time::{Duration, Instant};

/// How long a process keeps writing its figures after the last word from us.
const LEASE: Duration = Duration::from_secs(5);
/// Size classes are written so often.
const CLASSES_MS: u64 = 5_000;
/// Looking at the kernel's count of the arenas may take one part in so many of the time: it holds up the process.
const KERNEL_PART: u32 = 200;

/// A process that has handed us its board, its profile, or both.
pub struct Watched {
    /// Its number.
    pub pid: u32,
    /// What it runs.
    pub program: String,
    /// Its profile, if it samples.
    pub region: Option<Region>,
    board: Option<Board>,
    page_bytes: u64,
    purged: u64,
    leased: Option<Instant>,
    classes_at: Option<u64>,
    kernel_from: Instant,
    peak: Peak,
}

/// The profile when the program held most, as far as it was read in time.
#[derive(Default)]
pub struct Peak {
    /// When, in ms.
    pub t_ms: u64,
    /// The region's bytes; empty: never read.
    pub region: Vec<u8>,
    /// What the program held then, in bytes.
    held: u64,
    /// No reading before that.
    from: Option<Instant>,
}

impl Watched {
    /// A process that has just come.
    pub fn new(pid: u32, board: Option<Board>) -> Self {
        let process = board.as_ref().and_then(Board::process);
        let program = process.map_or_else(String::new, crate::attach::Process::name);
        Self {
            pid,
            program,
            region: None,
            board,
            page_bytes: rustix::param::page_size() as u64,
            purged: 0,
            leased: None,
            classes_at: None,
            kernel_from: Instant::now(),
            peak: Peak::default(),
        }
    }

    /// Whether it was there when we last looked.
    pub fn is_alive(&self) -> bool {
        self.board.is_some()
    }

    /// It has ended, or executed another program. Its profile stays.
    pub fn end(&mut self) {
        self.board = None;
    }

    /// Its profile at the peak, if it holds less by now.
    pub fn peak(&self) -> Option<&Peak> {
        Some(&self.peak).filter(|peak| !peak.region.is_empty())
    }

    /// Its state as lines of a recording; asks it to go on telling. Where there is no recording, only whether it still
    /// lives is looked at.
    pub fn look(
        &mut self,
        t_ms: u64,
        interval: Duration,
        recorded: bool,
        main: u32,
    ) -> Vec<Record> {
        let Some(board) = &self.board else {
            return Vec::new();
        };
        let Some(rss) = rss(board, self.page_bytes) else {
            return self.gone(t_ms, main);
        };
        if !recorded {
            return Vec::new();
        }
        if self
            .leased
            .is_none_or(|leased| leased.elapsed() > LEASE / 4)
        {
            // A process that cannot be told is sampled all the same, with what it writes by itself.
            let _ = board.watch(interval, LEASE);
            self.leased = Some(Instant::now());
        }
        let figures = board.figures();
        let age_ms = figures.map_or(u64::MAX, |figures| age_ms(&figures));
        if u128::from(age_ms) > interval.as_millis() * 2 {
            // The lease is kept by the purge thread. Where that is not there, the program's own calls answer a question.
            let _ = board.nudge();
        }
        if let (Some(region), Some(figures)) = (&self.region, figures) {
            self.peak.look(t_ms, &figures, region);
        }
        let arenas_rss = self.kernel_count();
        self.lines(t_ms, rss, arenas_rss, figures)
    }

    /// Its last figures: those it wrote at its end, or before it was killed.
    pub fn last_words(&mut self, t_ms: u64) -> Vec<Record> {
        self.classes_at = None;
        let figures = self.board.as_ref().and_then(Board::figures);
        self.lines(t_ms, 0, None, figures)
    }

    /// Only of the main program is it known how it ended; that is told by whoever waited for it.
    fn gone(&mut self, t_ms: u64, main: u32) -> Vec<Record> {
        let mut records = self.last_words(t_ms);
        self.end();
        if self.pid != main {
            records.push(self.event(t_ms, Happening::Ended));
        }
        records
    }

    fn lines(
        &mut self,
        t_ms: u64,
        rss: u64,
        arenas_rss: Option<u64>,
        figures: Option<Snapshot>,
    ) -> Vec<Record> {
        let mut sample = bare(t_ms, self.pid, rss);
        sample.arenas_rss = arenas_rss;
        let Some(figures) = figures else {
            return vec![Record::Sample(Box::new(sample))];
        };
        sample.heap = Some(Heap::new(&figures, age_ms(&figures)));
        let mut records = vec![Record::Sample(Box::new(sample))];
        records.extend(self.purge(t_ms, &figures));
        if self.classes_at.is_none_or(|at| t_ms >= at + CLASSES_MS) {
            records.push(Record::Classes(Classes::new(t_ms, self.pid, &figures)));
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

    /// The kernel's count of the arenas, now and then: it walks the page tables of the whole process.
    fn kernel_count(&mut self) -> Option<u64> {
        let start = Instant::now();
        if start < self.kernel_from {
            return None;
        }
        let view = self.board.as_ref().map(kernel::of_board);
        let pause = (start.elapsed() * KERNEL_PART).max(Duration::from_secs(1));
        self.kernel_from = Instant::now() + pause;
        Some(view?.ok()?.arenas_rss)
    }
}

/// How long ago these figures were written, in ms.
fn age_ms(figures: &Snapshot) -> u64 {
    crate::attach::now_ms().saturating_sub(figures.at_ms)
}

impl Peak {
    /// Reads the region, if the program holds more than ever: by a tenth, so that a growing program is not read at every
    /// tick, and not for more than one part in [`KERNEL_PART`] of the time.
    fn look(&mut self, t_ms: u64, figures: &Snapshot, region: &Region) {
        let (held, start) = (figures.ledger.requested, Instant::now());
        let early = self.from.is_some_and(|from| start < from);
        if early || held < LEAST_PEAK || held < self.held.saturating_add(self.held / 10) {
            return;
        }
        let Ok(bytes) = region.read() else {
            return;
        };
        self.from = Some(Instant::now() + start.elapsed() * KERNEL_PART);
        (self.t_ms, self.held, self.region) = (t_ms, held, bytes);
    }
}

/// A peak below that interests nobody, in bytes.
const LEAST_PEAK: u64 = 8 << 20;

/// Resident bytes; `None` when the process has ended.
fn rss(board: &Board, page_bytes: u64) -> Option<u64> {
    let text = board.process()?.text("statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    (pages > 0).then(|| pages.saturating_mul(page_bytes))
}
