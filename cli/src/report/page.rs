//! The page: one file of HTML.
//!
//! Names of programs, functions and files are hostile: the template escapes all text, data for the script is JSON without
//! a `<`, prose is escaped before its names are marked, and the page's own policy forbids whatever else would run or be fetched.

use super::flame::Flame;
use super::material::Material;
use super::sites::{Site, sites};
use super::subject::{Subject, processes};
use super::timeline::Timeline;
use super::verdict::{Finding, Verdict};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::recording::format::{ClassRow, Head};
use askama::Template;
use neap::stats::Bytes;
use std::fmt::{self, Write};

/// Rows of a table.
const ROWS: usize = 25;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    nonce: String,
    title: String,
    command: String,
    about: Vec<(&'static str, String)>,
    opening: Prose<'a>,
    findings: Vec<Card<'a>>,
    notes: &'a [String],
    timeline: Option<Timeline>,
    points: String,
    flame: Option<String>,
    sites: Vec<SiteRow>,
    classes: Vec<ClassLine>,
    ledger: Vec<LedgerLine>,
    counters: Vec<(&'static str, String)>,
    stacks: Vec<(&'static str, String)>,
    processes: Vec<(u32, String, String)>,
    options: Vec<(String, String)>,
    machine: Vec<(&'static str, String)>,
}

/// Writes the page.
///
/// # Errors
///
/// Without random numbers, from which its policy is made.
pub fn render(
    material: &Material,
    subject: &Subject,
    verdict: &Verdict,
) -> Result<String, Failure> {
    let head = material.recording.as_ref().map(|recording| &recording.head);
    let timeline = Timeline::of(subject);
    let points = timeline.as_ref().map(|timeline| json(&timeline.points));
    let page = Page {
        nonce: nonce()?,
        title: subject.program.clone(),
        command: head.map_or_else(String::new, command),
        about: about(head, subject),
        opening: Prose(&verdict.opening),
        findings: verdict.findings.iter().map(Card::new).collect(),
        notes: &material.notes,
        points: points.unwrap_or_default(),
        timeline,
        flame: (subject.profile)
            .filter(|profile| !profile.stacks.is_empty())
            .map(|profile| flame(profile, subject)),
        sites: site_rows(subject),
        classes: class_lines(subject),
        ledger: ledger_lines(subject),
        counters: counters(subject),
        stacks: stacks(subject),
        processes: process_rows(material),
        options: head.map_or_else(Vec::new, options),
        machine: head.map_or_else(Vec::new, machine),
    };
    page.render()
        .map_err(|error| Failure::own(format!("cannot write the report: {error}")))
}

fn flame(profile: &Profile, subject: &Subject) -> String {
    let peak = subject.at_peak.map(|(_, profile)| profile);
    json(&Flame::of(profile, peak, &subject.program))
}

/// Prose with names in backticks, as HTML.
struct Prose<'a>(&'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.split('`').enumerate() {
            match index % 2 {
                0 => escaped(out, part)?,
                _ => {
                    out.write_str("<code>")?;
                    escaped(out, part)?;
                    out.write_str("</code>")?;
                }
            }
        }
        Ok(())
    }
}

fn escaped(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for letter in text.chars() {
        match letter {
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            '&' => out.write_str("&amp;")?,
            '"' => out.write_str("&quot;")?,
            '\'' => out.write_str("&#39;")?,
            _ => out.write_char(letter)?,
        }
    }
    Ok(())
}

/// JSON that may stand in a `<script>`: it has no `<`, so nothing in it ends that or begins a comment.
fn json(value: &impl serde::Serialize) -> String {
    // Plain data with strings as keys always has a JSON form.
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    text.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn nonce() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the pointer and the length are those of `bytes`.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match count {
        16 => Ok(bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })),
        _ => Err(Failure::own("the kernel gives no random numbers")),
    }
}

struct Card<'a> {
    headline: Prose<'a>,
    detail: Prose<'a>,
    remedy: Prose<'a>,
    kind: &'static str,
    bytes: String,
    percent: f64,
    of: &'static str,
}

impl<'a> Card<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self {
            headline: Prose(&finding.headline),
            detail: Prose(&finding.detail),
            remedy: Prose(&finding.remedy),
            kind: finding.kind,
            bytes: Bytes(finding.bytes).to_string(),
            percent: (finding.share * 100.0).clamp(0.0, 100.0),
            of: finding.of,
        }
    }
}

fn command(head: &Head) -> String {
    let words = std::iter::once(&head.program).chain(&head.arguments);
    let words: Vec<_> = words.map(|word| quoted(word)).collect();
    words.join(" ")
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn about(head: Option<&Head>, subject: &Subject) -> Vec<(&'static str, String)> {
    let mut about = Vec::new();
    if subject.pid != 0 {
        about.push(("process", subject.pid.to_string()));
    }
    if let Some(head) = head {
        about.push(("started", super::date::utc(head.started_ms)));
        about.push(("seen for", seconds(subject.duration_ms())));
    }
    if let Some(profile) = subject.profile {
        let rate = match profile.rate {
            0 => "yes".to_owned(),
            rate => format!("every {}", Bytes(rate)),
        };
        about.push(("sampled", rate));
    }
    about
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1e3)
}

struct SiteRow {
    function: String,
    place: String,
    callers: String,
    live: String,
    objects: u64,
    all: String,
    waste: String,
    part: f64,
}

fn site_rows(subject: &Subject) -> Vec<SiteRow> {
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

struct ClassLine {
    bytes: u64,
    live: u64,
    live_bytes: String,
    free_bytes: String,
    cached_bytes: String,
    mean: String,
    part: f64,
    free_part: f64,
}

fn class_lines(subject: &Subject) -> Vec<ClassLine> {
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

struct LedgerLine {
    sign: &'static str,
    name: &'static str,
    peak: String,
    end: String,
    meaning: &'static str,
}

fn ledger_lines(subject: &Subject) -> Vec<LedgerLine> {
    let (Some((_, peak)), Some((_, last))) = (subject.peak(), subject.last()) else {
        return Vec::new();
    };
    let pairs = peak.ledger.lines().into_iter().zip(last.ledger.lines());
    let mut lines: Vec<_> = pairs
        .filter(|(peak, last)| peak.bytes > 0 || last.bytes > 0)
        .map(|(peak, last)| LedgerLine {
            sign: match peak.sign {
                neap::ledger::Sign::Plus => "+",
                neap::ledger::Sign::Minus => "−",
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

fn counters(subject: &Subject) -> Vec<(&'static str, String)> {
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

fn stacks(subject: &Subject) -> Vec<(&'static str, String)> {
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

fn process_rows(material: &Material) -> Vec<(u32, String, String)> {
    let found = processes(material);
    if found.len() < 2 {
        return Vec::new();
    }
    let row = |process: super::subject::Process| {
        (
            process.pid,
            process.program,
            Bytes(process.peak).to_string(),
        )
    };
    found.into_iter().take(ROWS).map(row).collect()
}

fn options(head: &Head) -> Vec<(String, String)> {
    let pairs = head.options.iter();
    pairs
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn machine(head: &Head) -> Vec<(&'static str, String)> {
    let machine = &head.machine;
    vec![
        ("kernel", machine.kernel.clone()),
        ("processors", machine.cpus.to_string()),
        ("memory", Bytes(machine.memory).to_string()),
        ("OS page", Bytes(machine.page_bytes).to_string()),
        ("huge pages", machine.huge_pages.clone()),
        ("recorded by", head.written_by.clone()),
        ("sampled every", format!("{} ms", head.interval_ms)),
    ]
}

/// What the template may do with values.
mod filters {
    use askama::{Result, Values, filter_fn};

    /// Bytes for people.
    #[filter_fn]
    pub fn bytes(bytes: &u64, _: &dyn Values) -> Result<String> {
        Ok(neap::stats::Bytes(*bytes).to_string())
    }

    /// The last one first.
    #[filter_fn]
    pub fn reversed<'a, T>(
        list: &'a [T],
        _: &dyn Values,
    ) -> Result<std::iter::Rev<std::slice::Iter<'a, T>>> {
        Ok(list.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_escaped_before_its_names_are_marked() {
        let text = Prose("a `b<script>` & \"c\"").to_string();
        assert_eq!(text, "a <code>b&lt;script&gt;</code> &amp; &quot;c&quot;");
    }

    #[test]
    fn data_cannot_end_its_script() {
        let text = json(&"</script><!--\u{2028}");
        assert_eq!(text, r#""\u003c/script>\u003c!--\u2028""#);
    }

    #[test]
    fn a_command_can_be_copied_into_a_shell() {
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
        assert_eq!(quoted("--x=1"), "--x=1");
        assert_eq!(quoted(""), "''");
    }
}
