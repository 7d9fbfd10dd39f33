//! The rows of the page's tables.

use super::super::date::seconds;
use super::super::known::{History, Known};
use super::super::material::Material;
use super::super::sites::{Site, sites};
use super::super::subject::{Process, Subject, processes};
use crate::profile::Extent;
use crate::recording::format::{ClassRow, Told};
use neap_shared::ledger::{Ledger, Sign};
use neap_shared::stats::Bytes;

/// Most rows of a table.
const ROWS: usize = 25;

/// The headings of the places' columns.
pub struct SiteHeads {
    pub live: &'static str,
    pub objects: &'static str,
    pub all: &'static str,
    pub waste: &'static str,
}

impl SiteHeads {
    /// In the profile of a session, "live" means growth.
    pub fn of(subject: &Subject) -> Self {
        match subject.profile.map(|profile| profile.extent) {
            Some(Extent::Session { .. }) => Self {
                live: "More live than before",
                objects: "More objects",
                all: "Allocated in that time",
                waste: "More rounding",
            },
            _ => Self {
                live: "Live",
                objects: "Objects",
                all: "Allocated in all",
                waste: "Rounding",
            },
        }
    }
}

/// A place that allocates.
pub struct SiteRow {
    pub function: String,
    pub place: String,
    pub callers: String,
    pub live: String,
    pub objects: u64,
    pub all: String,
    pub waste: String,
    pub part: f64,
}

/// The places that hold or allocated most.
pub fn site_rows(subject: &Subject) -> Vec<SiteRow> {
    let Some(profile) = subject.profile else {
        return Vec::new();
    };
    let total = profile.total();
    let mut sites = sites(profile);
    let weight = |site: &Site| (site.figures.live_bytes, site.figures.alloc_bytes);
    sites.sort_by_key(|site| std::cmp::Reverse(weight(site)));
    let row = |site: Site| SiteRow {
        live: Bytes(site.figures.live_bytes).to_string(),
        objects: site.figures.live_objects,
        all: Bytes(site.figures.alloc_bytes).to_string(),
        waste: Bytes(site.waste()).to_string(),
        part: match total.live_bytes {
            0 => share_percent(site.figures.alloc_bytes, total.alloc_bytes),
            live => share_percent(site.figures.live_bytes, live),
        },
        callers: site.callers.join(" ← "),
        function: site.function,
        place: site.place,
    };
    sites.into_iter().take(ROWS).map(row).collect()
}

fn share_percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// A size class; its parts are in percent of the largest.
pub struct ClassLine {
    pub bytes: u64,
    pub live: u64,
    pub live_bytes: String,
    pub free_bytes: String,
    pub cached_bytes: String,
    pub mean: String,
    pub part: f64,
    pub free_part: f64,
}

/// When the size classes were counted.
pub fn class_moment(subject: &Subject) -> String {
    let at_ms = subject.classes.map_or(0, |classes| classes.t_ms);
    seconds(at_ms)
}

/// The last known size classes.
pub fn class_lines(subject: &Subject) -> Vec<ClassLine> {
    let rows = subject
        .classes
        .map_or(&[][..], |classes| classes.classes.as_slice());
    let all =
        |row: &ClassRow| row.bytes as f64 * (row.live as f64 + row.free as f64 + row.cached as f64);
    let most = rows.iter().map(all).fold(1.0, f64::max);
    let line = |row: &ClassRow| {
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(row.bytes)).to_string();
        ClassLine {
            bytes: row.bytes,
            live: row.live,
            live_bytes: bytes(row.live),
            free_bytes: bytes(row.free),
            cached_bytes: bytes(row.cached),
            mean: match row.allocations {
                0 => "–".to_owned(),
                count => format!("{:.0}", row.requested as f64 / count as f64),
            },
            part: 100.0 * row.bytes as f64 * row.live as f64 / most,
            free_part: 100.0 * row.bytes as f64 * (row.free as f64 + row.cached as f64) / most,
        }
    };
    rows.iter().map(line).collect()
}

/// A line of the ledger, at the peak and at the end.
pub struct LedgerLine {
    pub sign: &'static str,
    pub name: &'static str,
    pub peak: String,
    pub end: String,
    pub meaning: &'static str,
}

/// The headings of the ledger's two columns: the moments at which they hold.
#[derive(Default)]
pub struct LedgerHeads {
    pub peak: String,
    pub end: String,
}

/// The ledger at two moments.
#[derive(Default)]
pub struct LedgerTable {
    pub heads: LedgerHeads,
    pub lines: Vec<LedgerLine>,
}

/// Shown in place of an unknown figure.
const UNKNOWN: &str = "not known";

/// The ledger's lines, except those that are 0 at both moments, and its sum. The last figures are
/// labelled with their own time if it is not the end.
pub fn ledger_table(history: &History) -> LedgerTable {
    let Some(last) = history.told.last() else {
        return LedgerTable::default();
    };
    let peak = history.peak().and_then(Known::get);
    let at_peak = peak.map(|told| told.heap.ledger);
    let zero = Ledger::default();
    let pairs = at_peak.unwrap_or(zero).lines().into_iter();
    let pairs = pairs.zip(last.heap.ledger.lines());
    let shown = |bytes: u64| match at_peak {
        Some(_) => Bytes(bytes).to_string(),
        None => UNKNOWN.to_owned(),
    };
    let mut lines: Vec<_> = pairs
        .filter(|(peak, last)| peak.bytes > 0 || last.bytes > 0)
        .map(|(peak, last)| LedgerLine {
            sign: match last.sign {
                Sign::Plus => "+",
                Sign::Minus => "−",
            },
            name: last.name,
            peak: shown(peak.bytes),
            end: Bytes(last.bytes).to_string(),
            meaning: last.meaning,
        })
        .collect();
    lines.push(LedgerLine {
        sign: "=",
        name: "resident",
        peak: shown(at_peak.unwrap_or(zero).resident),
        end: Bytes(last.heap.ledger.resident).to_string(),
        meaning: "the heap in RAM",
    });
    LedgerTable {
        heads: LedgerHeads {
            peak: peak.map_or("At the peak".to_owned(), |told| {
                format!("At the peak, {}", moment(&told))
            }),
            end: match history.end() {
                Some(Known::Yes(_)) => "At the end".to_owned(),
                _ => format!("Last reported, {}", moment(last)),
            },
        },
        lines,
    }
}

/// `at 3.2 s`.
fn moment(told: &Told) -> String {
    format!("at {}", seconds(told.at_ms))
}

/// The counters of the whole time, with the time up to which they count if that is not the end.
pub fn counters(history: &History) -> Vec<(String, String)> {
    let Some(told) = history.told.last() else {
        return Vec::new();
    };
    let heap = told.heap;
    let (when, until) = match history.end() {
        Some(Known::Yes(_)) => ("at the end".to_owned(), String::new()),
        _ => (moment(told), format!(", up to {}", seconds(told.at_ms))),
    };
    let bytes = |bytes| Bytes(bytes).to_string();
    vec![
        ("most in RAM".to_owned(), bytes(history.most())),
        (
            format!("page faults{until}"),
            format!(
                "{} (and {} that read a disk)",
                heap.minor_faults, heap.major_faults
            ),
        ),
        (
            format!("given back{until}"),
            format!("{} in {} purges", bytes(heap.purged_bytes), heap.purges),
        ),
        (
            format!("wanted again{until}"),
            format!("{} within the decay time", bytes(heap.regretted_bytes)),
        ),
        (format!("zeroing done{until}"), bytes(heap.zeroed)),
        (
            format!("zeroing saved{until}"),
            bytes(heap.zero_spared.saturating_add(heap.zero_purged)),
        ),
        (format!("threads {when}"), heap.threads.to_string()),
        (
            format!("large blocks {when}"),
            format!(
                "{} of {} in all",
                heap.large_blocks,
                bytes(heap.large_bytes)
            ),
        ),
    ]
}

/// Coroutine stacks when there were most, if there ever were any.
pub fn stacks(history: &History) -> Vec<(&'static str, String)> {
    let most = history.told.iter().max_by_key(|told| {
        let stacks = told.heap.stacks;
        stacks.used.saturating_add(stacks.idle)
    });
    let Some(told) = most else {
        return Vec::new();
    };
    let (stacks, ledger) = (told.heap.stacks, told.heap.ledger);
    if stacks.used == 0 && stacks.idle == 0 {
        return Vec::new();
    }
    let bytes = |bytes| Bytes(bytes).to_string();
    vec![
        ("counted", moment(told)),
        ("in use", stacks.used.to_string()),
        ("resident of these", bytes(ledger.stacks_used)),
        ("idle", stacks.idle.to_string()),
        ("resident of these", bytes(ledger.stacks_idle)),
        ("address space", bytes(stacks.address)),
    ]
}

/// The processes with their PIDs, names and peaks, if there are several.
pub fn process_rows(material: &Material) -> Vec<(u32, String, String)> {
    let found = processes(material);
    if found.len() < 2 {
        return Vec::new();
    }
    let row = |process: Process| {
        (
            process.pid,
            process.program,
            Bytes(process.peak).to_string(),
        )
    };
    found.into_iter().take(ROWS).map(row).collect()
}
