//! The rows of the page's tables.

use super::super::material::Material;
use super::super::sites::{Site, sites};
use super::super::subject::{Process, Subject, processes};
use crate::profile::Extent;
use crate::recording::format::ClassRow;
use neap::ledger::Sign;
use neap::stats::Bytes;

/// Rows of a table.
const ROWS: usize = 25;

/// What stands over the columns of places.
pub struct SiteHeads {
    pub live: &'static str,
    pub objects: &'static str,
    pub all: &'static str,
    pub waste: &'static str,
}

impl SiteHeads {
    /// In the profile of a session what is live is by how much it grew.
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

/// The places that hold, or allocated, most.
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

/// A size class; parts are of the largest, in percent.
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

/// The size classes at the end.
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

/// The ledger without the lines that are 0 at both times, then its sum.
pub fn ledger_lines(subject: &Subject) -> Vec<LedgerLine> {
    let (Some((_, peak)), Some((_, last))) = (subject.peak(), subject.last()) else {
        return Vec::new();
    };
    let pairs = peak.ledger.lines().into_iter().zip(last.ledger.lines());
    let mut lines: Vec<_> = pairs
        .filter(|(peak, last)| peak.bytes > 0 || last.bytes > 0)
        .map(|(peak, last)| LedgerLine {
            sign: match peak.sign {
                Sign::Plus => "+",
                Sign::Minus => "−",
            },
            name: peak.name,
            peak: Bytes(peak.bytes).to_string(),
            end: Bytes(last.bytes).to_string(),
            meaning: peak.meaning,
        })
        .collect();
    lines.push(LedgerLine {
        sign: "=",
        name: "resident",
        peak: Bytes(peak.ledger.resident).to_string(),
        end: Bytes(last.ledger.resident).to_string(),
        meaning: "the heap in RAM",
    });
    lines
}

/// What was counted over the whole time.
pub fn counters(subject: &Subject) -> Vec<(&'static str, String)> {
    let Some(heap) = subject.totals() else {
        return Vec::new();
    };
    let bytes = |bytes| Bytes(bytes).to_string();
    vec![
        ("most in RAM", bytes(subject.peak_rss())),
        (
            "page faults",
            format!(
                "{} (and {} that read a disk)",
                heap.minor_faults, heap.major_faults
            ),
        ),
        (
            "given back",
            format!("{} in {} purges", bytes(heap.purged_bytes), heap.purges),
        ),
        ("zeroing done", bytes(heap.zeroed)),
        (
            "zeroing saved",
            bytes(heap.zero_spared.saturating_add(heap.zero_purged)),
        ),
        ("threads at the end", heap.threads.to_string()),
        (
            "large blocks at the end",
            format!(
                "{} of {} in all",
                heap.large_blocks,
                bytes(heap.large_bytes)
            ),
        ),
    ]
}

/// Coroutine stacks, if there ever were any, when there were most.
pub fn stacks(subject: &Subject) -> Vec<(&'static str, String)> {
    let most = subject
        .told()
        .max_by_key(|(_, heap)| heap.stacks.used.saturating_add(heap.stacks.parked));
    match most {
        Some((_, heap)) if heap.stacks.used > 0 || heap.stacks.parked > 0 => vec![
            ("in use", heap.stacks.used.to_string()),
            (
                "resident of these",
                Bytes(heap.ledger.stacks_used).to_string(),
            ),
            ("parked", heap.stacks.parked.to_string()),
            (
                "resident of these",
                Bytes(heap.ledger.stacks_parked).to_string(),
            ),
            ("address space", Bytes(heap.stacks.address).to_string()),
        ],
        _ => Vec::new(),
    }
}

/// The processes with their numbers, names and peaks, if there are several.
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
