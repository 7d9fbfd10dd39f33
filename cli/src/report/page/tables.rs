//! The rows of the page's tables.

use super::super::date::seconds;
use super::super::known::{History, Known};
use super::super::material::Material;
use super::super::sites::{Site, sites};
use super::super::subject::{Process, Subject, processes};
use crate::recording::format::{ClassRow, Told};
use neap_shared::ledger::Sign;

/// The most rows of places and of processes.
const ROWS: usize = 25;

/// Places with the most live bytes first, each with its percentage.
pub fn site_rows(subject: &Subject) -> Vec<(Site, f64)> {
    let Some(profile) = subject.profile else {
        return Vec::new();
    };
    let total = profile.total();
    let mut sites = sites(profile);
    let weight = |site: &Site| (site.figures.live_bytes, site.figures.alloc_bytes);
    sites.sort_by_key(|site| std::cmp::Reverse(weight(site)));
    let row = |site: Site| {
        let (part, whole) = match total.live_bytes {
            0 => (site.figures.alloc_bytes, total.alloc_bytes),
            live => (site.figures.live_bytes, live),
        };
        (site, 100.0 * part as f64 / whole.max(1) as f64)
    };
    sites.into_iter().take(ROWS).map(row).collect()
}

/// One size class.
pub struct ClassLine {
    pub row: ClassRow,
    pub live_bytes: u64,
    pub free_bytes: u64,
    pub cached_bytes: u64,
    pub mean: String,
    /// Percentages of the largest class.
    pub part: f64,
    pub free_part: f64,
}

/// The size classes at the last count.
pub fn class_lines(subject: &Subject) -> Vec<ClassLine> {
    let rows = (subject.classes).map_or(&[][..], |classes| classes.classes.as_slice());
    let all =
        |row: &ClassRow| row.bytes as f64 * (row.live as f64 + row.free as f64 + row.cached as f64);
    let most = rows.iter().map(all).fold(1.0, f64::max);
    let line = |row: &ClassRow| ClassLine {
        row: *row,
        live_bytes: row.live.saturating_mul(row.bytes),
        free_bytes: row.free.saturating_mul(row.bytes),
        cached_bytes: row.cached.saturating_mul(row.bytes),
        mean: match row.allocations {
            0 => "–".to_owned(),
            count => format!("{:.0}", row.requested as f64 / count as f64),
        },
        part: 100.0 * row.bytes as f64 * row.live as f64 / most,
        free_part: 100.0 * row.bytes as f64 * (row.free as f64 + row.cached as f64) / most,
    };
    rows.iter().map(line).collect()
}

/// The ledger at the peak and at the last report.
#[derive(Default)]
pub struct LedgerTable {
    pub peak_head: String,
    pub end_head: String,
    pub lines: Vec<LedgerLine>,
}

/// One line.
pub struct LedgerLine {
    pub sign: &'static str,
    pub name: &'static str,
    /// Bytes at the peak, if they are known.
    pub peak: Option<u64>,
    /// Bytes at the last report.
    pub end: u64,
    pub meaning: &'static str,
}

/// The ledger without the lines that are zero; empty if the process never reported one.
pub fn ledger_table(history: &History) -> LedgerTable {
    let Some(last) = history.told.last() else {
        return LedgerTable::default();
    };
    let peak = history.peak().and_then(Known::get);
    let at_peak = peak.map(|told| told.heap.ledger);
    let peaks = at_peak.unwrap_or_default().lines();
    let mut lines: Vec<LedgerLine> = Vec::new();
    for (peak, last) in peaks.into_iter().zip(last.heap.ledger.lines()) {
        if peak.bytes > 0 || last.bytes > 0 {
            let sign = match last.sign {
                Sign::Plus => "+",
                Sign::Minus => "−",
            };
            lines.push(LedgerLine {
                sign,
                name: last.name,
                peak: at_peak.map(|_| peak.bytes),
                end: last.bytes,
                meaning: last.meaning,
            });
        }
    }
    lines.push(LedgerLine {
        sign: "=",
        name: "resident",
        peak: at_peak.map(|ledger| ledger.resident),
        end: last.heap.ledger.resident,
        meaning: "the heap in RAM",
    });
    LedgerTable {
        peak_head: peak.map_or("At the peak".to_owned(), |told| {
            format!("At the peak, at {}", seconds(told.at_ms))
        }),
        end_head: match history.end() {
            Some(Known::Yes(_)) => "At the end".to_owned(),
            _ => format!("Last reported, at {}", seconds(last.at_ms)),
        },
        lines,
    }
}

/// The counters of the last report.
pub struct Counted<'a> {
    pub told: Told<'a>,
    /// The most that was in RAM.
    pub most: u64,
    /// When it was, and until when counters have counted if that is not the end.
    pub when: String,
    pub until: String,
}

/// The counters; none if the process never reported them.
pub fn counted<'a>(history: &History<'a>) -> Option<Counted<'a>> {
    let told = *history.told.last()?;
    let at = seconds(told.at_ms);
    let (when, until) = match history.end() {
        Some(Known::Yes(_)) => ("at the end".to_owned(), String::new()),
        _ => (format!("at {at}"), format!(", up to {at}")),
    };
    let most = history.most();
    Some(Counted {
        told,
        most,
        when,
        until,
    })
}

/// The moment with the most coroutine stacks; none if there were none.
pub fn stacks<'a>(history: &History<'a>) -> Option<Told<'a>> {
    let count = |told: &&Told| {
        let stacks = told.heap.stacks;
        stacks.used.saturating_add(stacks.idle)
    };
    let most = history.told.iter().max_by_key(count)?;
    (count(&most) > 0).then_some(*most)
}

/// The processes, largest first; empty if there is only one.
pub fn process_rows(material: &Material) -> Vec<Process> {
    let mut found = processes(material);
    found.truncate(if found.len() < 2 { 0 } else { ROWS });
    found
}
