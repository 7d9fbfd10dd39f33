//! The page: one file of HTML.
//!
//! Names of programs, functions and files are untrusted. The template escapes all text. Data for
//! the script is JSON without `<`. Prose is escaped before its names are marked up. The page's own
//! policy forbids any other script and any request.

use super::date::seconds;
use super::flame::Flame;
use super::known::{History, Split};
use super::material::Material;
use super::sites::{Site, sites};
use super::subject::{Process, Subject, processes};
use super::timeline::Timeline;
use super::verdict::Verdict;
use crate::failure::Failure;
use crate::profile::{Extent, Profile};
use crate::recording::format::{ClassRow, Head, Told};
use crate::statistics::secret;
use askama::Template;
use askama::filters::{Html, escape};
use neap_shared::ledger::{Ledger, Line, Sign};
use neap_shared::stats::Bytes;
use std::ffi::OsStr;

/// The template's values. Text in them is untrusted.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    nonce: String,
    subject: &'a Subject<'a>,
    head: Option<&'a Head>,
    command: String,
    verdict: &'a Verdict,
    notes: &'a [String],
    timeline: Option<Timeline>,
    /// JSON.
    points: String,
    /// JSON.
    flame: Option<String>,
    sites: Vec<(Site, f64)>,
    /// Whether the profile is of one session, so that "live" means growth.
    is_session: bool,
    classes: Vec<ClassLine>,
    ledger: Option<LedgerTable>,
    counted: Option<Counted<'a>>,
    /// When the most stacks were in use.
    stacks: Option<Told<'a>>,
    /// Empty if there is one.
    processes: Vec<Process>,
}

/// The page.
///
/// # Errors
///
/// The kernel provides no random numbers, which the page's policy needs.
pub fn render(
    material: &Material,
    subject: &Subject,
    verdict: &Verdict,
) -> Result<String, Failure> {
    let head = material.recording.as_ref().map(|recording| &recording.head);
    let timeline = Timeline::of(subject);
    let history = subject.history();
    let points = timeline.as_ref().map(|timeline| json(&timeline.points));
    let page = Page {
        nonce: nonce()?,
        subject,
        head,
        command: head.map_or_else(String::new, command),
        verdict,
        notes: &material.notes,
        points: points.unwrap_or_default(),
        timeline,
        flame: (subject.profile)
            .filter(|profile| !profile.stacks.is_empty())
            .map(|profile| flame(profile, subject)),
        sites: site_rows(subject),
        is_session: subject
            .profile
            .is_some_and(|profile| profile.extent != Extent::Whole),
        classes: class_lines(subject),
        ledger: ledger_table(&history),
        counted: counted(&history),
        stacks: stacks(&history),
        processes: process_rows(material),
    };
    page.render()
        .map_err(|error| failure!("cannot write the report: {error}"))
}

fn flame(profile: &Profile, subject: &Subject) -> String {
    let peak = subject.at_peak.map(|(_, profile)| profile.folded());
    json(&Flame::of(
        &profile.folded(),
        peak.as_ref(),
        &subject.program,
    ))
}

fn command(head: &Head) -> String {
    let words = std::iter::once(&head.program).chain(&head.arguments);
    let words: Vec<_> = words.map(quoted).collect();
    words.join(" ")
}

/// Bytes for people.
pub fn bytes(bytes: &u64) -> String {
    Bytes(*bytes).to_string()
}

/// Prose with names in backticks, as HTML.
pub fn prose(text: &str) -> String {
    // Writing to a string does not fail.
    let escaped = escape(text, Html).map_or_else(|_| String::new(), |text| text.to_string());
    let parts = escaped.split('`').enumerate();
    let marked = parts.map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    marked.collect()
}

/// JSON for a `<script>`. It contains no `<`, so it cannot end the script or begin a comment.
pub fn json(value: &impl serde::Serialize) -> String {
    // Plain data with strings as keys always has a JSON form.
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    text.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A random number named in the page's policy, so that only the page's own script runs.
///
/// # Errors
///
/// The kernel provides no random numbers.
pub fn nonce() -> Result<String, Failure> {
    let halves = secret().and_then(|half| Ok((half, secret()?)));
    let (one, other) =
        halves.map_err(|error| failure!("the kernel gives no random numbers: {error}"))?;
    Ok(format!("{one:016x}{other:016x}"))
}

/// A word quoted for a shell.
pub fn quoted(word: &(impl AsRef<OsStr> + ?Sized)) -> String {
    let word = word.as_ref().to_string_lossy();
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

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
    let blocks = |row: &ClassRow| row.live as f64 + row.free as f64 + row.cached as f64;
    let all = |row: &ClassRow| row.bytes as f64 * blocks(row);
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

/// The ledger near the peak and at the last report.
pub struct LedgerTable {
    pub peak_head: String,
    pub end_head: String,
    pub peak: Ledger,
    pub end: Ledger,
}

impl LedgerTable {
    /// The lines that are not zero, with the bytes at the end.
    fn lines(&self) -> Vec<(Line, u64)> {
        let both = self.peak.lines().into_iter().zip(self.end.lines());
        let both = both.map(|(peak, end)| (peak, end.bytes));
        both.filter(|(peak, end)| peak.bytes > 0 || *end > 0)
            .collect()
    }
}

/// The ledger; `None` if the process never reported one.
pub fn ledger_table(history: &History) -> Option<LedgerTable> {
    let last = history.told.last()?;
    let split = history.peak().and_then(|peak| peak.split);
    let split = split.unwrap_or(Split::Nearest(*last));
    Some(LedgerTable {
        peak_head: split.head(),
        end_head: match history.end() {
            Some(Split::Holds(_)) => "At the end".to_owned(),
            _ => format!("Last reported, at {}", seconds(last.at_ms)),
        },
        peak: split.told().heap.ledger,
        end: last.heap.ledger,
    })
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
        Some(Split::Holds(_)) => ("at the end".to_owned(), String::new()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_escaped_before_its_names_are_marked() {
        let text = prose("a `b<script>` & \"c\"");
        assert_eq!(text, "a <code>b&#60;script&#62;</code> &#38; &#34;c&#34;");
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
